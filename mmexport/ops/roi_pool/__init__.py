"""Take the largest values of a feature map in regions of interest."""
from ..op import EXPORTED, Op, register
from .forms import PoolSettings, roi_pool

__all__ = ['PoolSettings', 'roi_pool']

register(Op('roi_pool', default='script', takes={EXPORTED: 'while_loop'}))
