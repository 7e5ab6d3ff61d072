"""Pool to a grid of any size, for formats without that operator."""
from ..op import EXPORTED, Op, register
from .forms import adaptive_avg_pool2d, adaptive_max_pool2d

__all__ = ['adaptive_avg_pool2d', 'adaptive_max_pool2d']

register(Op('adaptive_pooling', default='operator', takes={EXPORTED: 'matrix'}))
