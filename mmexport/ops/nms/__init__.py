"""Compute greedy suppression of boxes, with outputs of a fixed size."""
from ..op import EXPORTED, Op, register
from .forms import suppress

__all__ = ['suppress']

register(Op('nms', default='script', takes={EXPORTED: 'while_loop'}))
