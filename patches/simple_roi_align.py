"""Replace mmcv's SimpleRoIAlign, which cuts the regions of one picture after the other."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmexport.ops.bilinear import sampled
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class SimpleRoIAlign(Patch):
    """Take the samples of all regions at once, each from its own picture.

    mmcv asks of every picture whether it has regions, and joins what it finds in the order of the pictures: the number of regions of each
    is fixed by a trace. Regions must come in the order of their pictures, as mmdet gives them.

    Source: mmcv/ops/point_sample.py.
    """

    targets = ('mmcv.ops.point_sample.SimpleRoIAlign.forward',)
    upstream = 'mmcv 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return simple_roi_align


def simple_roi_align(layer: Any, features: Tensor, rois: Tensor) -> Tensor:
    """Return the features (R, C, h, w) in the cells of regions (R, 5)."""
    height, width = layer.output_size
    rows, columns = ((torch.arange(side, device=rois.device) + 0.5) / side for side in (height, width))
    points = torch.stack([columns.expand(height, -1), rows[:, None].expand(-1, width)], dim=2).flatten(0, 1)
    places = (rois[:, None, 1:3] + points * (rois[:, 3:5] - rois[:, 1:3])[:, None]) * layer.spatial_scale
    if layer.aligned:
        places = places - 0.5
    else:
        # Corners are aligned: a map that is one cell shorter is stretched over the region.
        places = places * torch.stack([1 - 1 / (rois.new_zeros(()) + side) for side in (features.shape[3], features.shape[2])])
    answers: Tensor = sampled(features, rois[:, 0].long(), places).unflatten(2, (height, width))
    return answers
