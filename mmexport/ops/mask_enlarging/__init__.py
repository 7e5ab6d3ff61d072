"""Resize masks bilinearly, by the operator or by products of matrices."""
from ..op import Op, register
from .forms import enlarge_masks

__all__ = ['enlarge_masks']

register(Op('mask_enlarging', default='operator', takes={'openvino': 'matrix'}))
