"""Replace mmcv's RoIAlign by pure PyTorch, or by the operator that a format has."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmexport.errors import LoweringError
from mmexport.ops.roi_align import Settings, roi_align
from mmexport.ops.roi_pool import PoolSettings, roi_pool
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class RoIAlign(Patch):
    """Compute RoIAlign in pure PyTorch, and of several levels at once RoIPool too.

    mmcv's kernel allocates an output and fills it where no tracer sees it. mmdet's extractor asks which regions belong to a level and goes
    on with these alone: their number depends on the picture.

    Compared with compiled mmcv 2.1.0 by its recorded results, and with mmexport's reference kernel.

    Sources: mmcv/ops/roi_align.py, ``RoIAlign.forward``; mmdet/models/roi_heads/roi_extractors/single_level_roi_extractor.py.
    """

    targets = ('mmcv.ops.roi_align.RoIAlign.forward',
               'mmdet.models.roi_heads.roi_extractors.single_level_roi_extractor.SingleRoIExtractor.forward')
    upstream = 'mmcv 2.0.1 2.1.0, mmdet 3.0.0 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _one_level if 'mmcv' in target else _by_level


def _one_level(layer: Any, feature: Tensor, rois: Tensor) -> Tensor:
    return roi_align([feature], rois, torch.zeros_like(rois[:, 0]).long(), settings_of([layer]))


def _by_level(extractor: Any, feats: Any, rois: Tensor, roi_scale_factor: float | None = None) -> Tensor:
    rois = rois.type_as(feats[0])
    levels = extractor.roi_layers[:len(feats)]
    if len(feats) == 1:
        answer: Tensor = levels[0](feats[0], rois)
        return answer
    level = extractor.map_roi_levels(rois, len(feats))
    moved = rois if roi_scale_factor is None else extractor.roi_rescale(rois, roi_scale_factor)
    if all(type(layer).__name__ == 'RoIPool' for layer in levels):
        settings = PoolSettings(tuple(levels[0].output_size), tuple(float(layer.spatial_scale) for layer in levels))
        return roi_pool(list(feats), moved, level, settings)
    return roi_align(list(feats), moved, level, settings_of(levels))


def settings_of(layers: Any) -> Settings:
    """Return the options of mmcv's layers, one a level.

    Raises:
        LoweringError: they are other layers, or differ in more than their scale.
    """
    first = layers[0]
    if any(type(layer).__name__ != 'RoIAlign' or layer.pool_mode != 'avg' for layer in layers):
        raise LoweringError(f'{type(first).__name__} with pool_mode {getattr(first, "pool_mode", None)!r} is not supported: RoIAlign with '
                            'the average of samples is')
    if len({(layer.output_size, layer.sampling_ratio, layer.aligned) for layer in layers}) > 1:
        raise LoweringError('the levels of the RoI extractor have RoIAlign layers of different options')
    return Settings(tuple(first.output_size), tuple(layer.spatial_scale for layer in layers), first.sampling_ratio, first.aligned)
