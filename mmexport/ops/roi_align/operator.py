"""Define RoIAlign as one operator, and translate it to ONNX and OpenVINO.

Both have upstream's sampling. OpenVINO calls ``half_pixel_for_nn`` what ONNX and mmcv's ``aligned`` mean: tried on OpenVINO 2026.4.1, whose
``half_pixel`` gives other values.
"""
from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, library

from ..op import Operator

NAME = 'mmexport::roi_align'
_SCHEMA = '(Tensor feature, Tensor rois, int height, int width, float scale, int sampling_ratio, bool aligned) -> Tensor'
# What is declared ends with its library.
_LIBRARIES: list[library.Library] = []


@cache
def define() -> Any:
    """Add the operator to torch, and return its overload."""
    namespace, name = NAME.split('::')
    # By the class, whose methods torch has had since 2.1; its functions of these names took other arguments there.
    own = library.Library(namespace, 'FRAGMENT')
    own.define(name + _SCHEMA)
    own.impl(name, _computed, 'CompositeExplicitAutograd')
    _LIBRARIES.append(own)
    # Only exported programs need it, which torch before 2.8 does not make with open sizes.
    if hasattr(library, 'register_fake'):
        library.register_fake(NAME, _empty)
    return torch.ops.mmexport.roi_align.default


def _computed(feature: Tensor, rois: Tensor, height: int, width: int, scale: float, sampling_ratio: int, aligned: bool) -> Tensor:
    from .bags import Settings, bags
    return bags([feature], rois, torch.zeros_like(rois[:, 0]).long(), Settings((height, width), (scale,), sampling_ratio, aligned))


def _empty(feature: Tensor, rois: Tensor, height: int, width: int, *_: Any) -> Tensor:
    return feature.new_empty(rois.shape[0], feature.shape[1], height, width)


def _onnx(feature: Any, rois: Any, height: int, width: int, scale: float, sampling_ratio: int, aligned: bool) -> Any:
    from onnxscript import opset18
    op: Any = opset18
    image = op.Cast(op.Squeeze(op.Slice(rois, [0], [1], [1]), [1]), to=7)
    return op.RoiAlign(feature, op.Slice(rois, [1], [5], [1]), image, mode='avg', output_height=height, output_width=width,
                       coordinate_transformation_mode=_mode(aligned), sampling_ratio=sampling_ratio, spatial_scale=scale)


def _traced_onnx(g: Any, *args: Any) -> Any:
    from torch.onnx.symbolic_helper import parse_args
    return parse_args('v', 'v', 'i', 'i', 'f', 'i', 'b')(_written)(g, *args)


def _written(g: Any, feature: Any, rois: Any, height: int, width: int, scale: float, sampling_ratio: int, aligned: bool) -> Any:
    numbers = {name: g.op('Constant', value_t=torch.tensor(values)) for name, values in (('0', [0]), ('1', [1]), ('5', [5]))}
    image = g.op('Squeeze', g.op('Slice', rois, numbers['0'], numbers['1'], numbers['1']), numbers['1'])
    boxes = g.op('Slice', rois, numbers['1'], numbers['5'], numbers['1'])
    return g.op('RoiAlign', feature, boxes, g.op('Cast', image, to_i=7), mode_s='avg', output_height_i=height,
                output_width_i=width, coordinate_transformation_mode_s=_mode(aligned), sampling_ratio_i=sampling_ratio,
                spatial_scale_f=scale)


def _mode(aligned: bool) -> str:
    return 'half_pixel' if aligned else 'output_half_pixel'


def _openvino(context: Any) -> Any:
    import openvino.opset14 as op
    feature, rois = context.get_input(0), context.get_input(1)
    height, width, scale, sampling_ratio, aligned = (context.get_values_from_const_input(number) for number in range(2, 7))
    one, axis = op.constant([1]), op.constant([1])
    image = op.convert(op.squeeze(op.slice(rois, op.constant([0]), one, one, axis), axis), 'i64')
    boxes = op.slice(rois, one, op.constant([5]), one, axis)
    return op.roi_align(feature, boxes, image, height, width, sampling_ratio, scale, 'avg',
                        'half_pixel_for_nn' if aligned else 'asymmetric').outputs()


OPERATOR = Operator(NAME, define, _onnx, _traced_onnx, _openvino)
