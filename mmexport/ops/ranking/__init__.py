"""Rank scores, ties by the lower index, in the way that each format has."""
from ..op import Op, register
from .forms import ranked

__all__ = ['ranked']

register(Op('ranking', default='stable', takes={'onnx': 'plain'}))
