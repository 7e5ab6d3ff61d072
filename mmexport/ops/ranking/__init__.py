"""Rank scores in the way that each format has, ties by the lower index but in OpenVINO; take rows in that order."""
from ..op import Op, register
from .forms import ranked, rows_at

__all__ = ['ranked', 'rows_at']

register(Op('ranking', default='stable', takes={'onnx': 'plain', 'openvino': 'plain'}))
