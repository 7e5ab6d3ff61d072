"""Convolve at positions that the network chooses, in plain PyTorch."""
from ..op import Op, register
from .forms import SAMPLINGS, deform_conv2d, pair
from .probe import ConvProbe

__all__ = ['SAMPLINGS', 'deform_conv2d', 'pair']

register(Op('deformable_conv', default='grid', takes={'onnx': 'grid', 'openvino': 'grid', 'tensorrt': 'grid'},
            probed=('grid', 'gather'), probe=ConvProbe, axes=('batch', 'channel', 'h', 'w'),
            classes=frozenset({'DeformConv2d', 'ModulatedDeformConv2d'})))
