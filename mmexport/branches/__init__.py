"""Record Python branches on sizes and values, which a tracer decides once, and find inputs that turn them."""
from .findings import Branches, judge_branches, once_in
from .recorder import recorded
from .run import Run, Site
from .search import BranchLog, is_place
from .settle import Settled, Unclear, settle

__all__ = ['BranchLog', 'is_place', 'once_in', 'Branches', 'Run', 'Settled', 'Site', 'Unclear', 'judge_branches', 'recorded', 'settle']
