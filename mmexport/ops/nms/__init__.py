"""Compute greedy suppression of boxes, with outputs of a fixed size."""
from ..op import EXPORTED, Op, register
from .classes import moved_apart
from .forms import first_kept

__all__ = ['first_kept', 'moved_apart']

register(Op('nms', default='script', takes={EXPORTED: 'while_loop'}))
