"""Sample multi-scale deformable attention in plain PyTorch."""
from ..op import Op, register
from .forms import SAMPLINGS, bag, corners, gather, grid, sampled
from .probe import AttentionProbe

__all__ = ['SAMPLINGS', 'bag', 'corners', 'gather', 'grid', 'sampled']

register(Op('deformable_attention', default='bag', takes={'onnx': 'grid', 'openvino': 'grid', 'tensorrt': 'grid'},
            probed=('grid', 'gather'), probe=AttentionProbe, axes=('batch', 'query', 'channel'),
            classes=frozenset({'MultiScaleDeformableAttention'})))
