"""Rank scores, ties by the lower index, in the way that each format has; take rows in that order."""
from ..op import Op, register
from .forms import ranked, rows_at

__all__ = ['ranked', 'rows_at']

register(Op('ranking', default='stable', takes={'onnx': 'plain', 'openvino': 'plain'}))
