"""Compute what mask classification decides from enlarged masks. This is done a few queries at a time, or in whole maps."""
from ..op import Op, register
from .forms import MaskStatistics, mask_statistics, masks_at

__all__ = ['MaskStatistics', 'mask_statistics', 'masks_at']

register(Op('mask_statistics', default='tiles', takes={'aotinductor': 'whole'}))
