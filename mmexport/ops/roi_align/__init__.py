"""Sample a feature map in regions of interest."""
from ..op import Op, register
from .forms import Settings, roi_align
from .operator import OPERATOR

__all__ = ['Settings', 'roi_align']

register(Op('roi_align', default='bags', takes={'onnx': 'operator', 'openvino': 'operator'}, operator=OPERATOR))
