"""Record Python branches on sizes and values, which a tracer decides once, and find inputs that turn them."""
from .findings import Branches, judge_branches
from .recorder import recorded
from .run import Run, Site
from .search import BranchLog, is_place
from .settle import Settled, Unclear, settle
from .traced import has_own_code, sizes_that_leave

__all__ = ['BranchLog', 'Branches', 'Run', 'Settled', 'Site', 'Unclear', 'has_own_code', 'is_place', 'judge_branches', 'recorded', 'settle',
           'sizes_that_leave']
