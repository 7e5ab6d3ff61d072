"""Compute Soft-NMS of boxes, with outputs of a fixed size."""
from ..op import EXPORTED, Op, register
from .forms import METHODS, SoftNms, softly_kept

__all__ = ['METHODS', 'SoftNms', 'softly_kept']

register(Op('soft_nms', default='script', takes={EXPORTED: 'while_loop'}))
