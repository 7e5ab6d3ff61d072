"""Python branches on sizes and values: a tracer decides them once, so each must be turned by an input of the verification, or named."""
from .findings import Branches, judge_branches, once_in
from .recorder import Run, Site, recorded
from .search import BranchLog, is_place
from .settle import Settled, Unclear, settle

__all__ = ['BranchLog', 'is_place', 'once_in', 'Branches', 'Run', 'Settled', 'Site', 'Unclear', 'judge_branches', 'recorded', 'settle']
