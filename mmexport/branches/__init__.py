"""Record Python branches on sizes and values, and find inputs that turn them. A tracer decides such a branch once."""
from .findings import Branches, judge_branches
from .inputs import BranchInputs, InsufficientMargin, inputs_for_branches
from .recorder import recorded
from .run import Run, Site
from .search import BranchLog, is_place
from .traced import has_own_code, is_own_file, sizes_that_leave

__all__ = ['BranchLog', 'Branches', 'BranchInputs', 'Run', 'Site', 'InsufficientMargin', 'has_own_code', 'inputs_for_branches',
           'is_own_file', 'is_place', 'judge_branches', 'recorded', 'sizes_that_leave']
