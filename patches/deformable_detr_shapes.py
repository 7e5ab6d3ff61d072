"""Replace the level shapes of mmdet's Deformable DETR: they stay sizes."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mmexport.ops.padding import padding_masks
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class DeformableDetrShapes(Patch):
    """Hand level shapes on as sizes. A tensor would have to be read back to make grids by.

    ``pre_transformer`` puts the sizes into a tensor, and the encoder's reference points and the proposals of two-stage decoders (DINO
    inherits both) make ``torch.linspace`` of its elements: exporters without data-dependent shapes cannot. Masks of padding are made of
    the whole batch at once. Everything else is as upstream.

    Sources: mmdet/models/detectors/deformable_detr.py and mmdet/models/layers/transformer/deformable_detr_layers.py.
    """

    targets = ('mmdet.models.detectors.deformable_detr.DeformableDETR.pre_transformer',
               'mmdet.models.detectors.deformable_detr.DeformableDETR.gen_encoder_output_proposals',
               'mmdet.models.layers.transformer.deformable_detr_layers.DeformableDetrTransformerEncoder.get_encoder_reference_points')
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        replacements: dict[str, Callable[..., Any]] = {'pre_transformer': pre_transformer, 'gen_encoder_output_proposals': proposals}
        return replacements.get(target.rsplit('.', 1)[1], references)


def pre_transformer(model: Any, mlvl_feats: Sequence[Tensor], batch_data_samples: Sequence[Any] = ()) -> tuple[dict[str, Any], ...]:
    masks = padding_masks(batch_data_samples, mlvl_feats)
    positions = [model.positional_encoding(mask, input=feat).flatten(2).permute(0, 2, 1) + model.level_embed[level].view(1, 1, -1)
                 for level, (feat, mask) in enumerate(zip(mlvl_feats, masks, strict=True))]
    ratios = [mlvl_feats[0].new_ones(mlvl_feats[0].shape[0], 2) if mask is None else model.get_valid_ratio(mask) for mask in masks]
    shared = dict(spatial_shapes=[(feat.shape[2], feat.shape[3]) for feat in mlvl_feats], level_start_index=None,
                  valid_ratios=torch.stack(ratios, dim=1))
    feat = torch.cat([feat.flatten(2).permute(0, 2, 1) for feat in mlvl_feats], dim=1)
    given = [mask.flatten(1) for mask in masks if mask is not None]
    mask = torch.cat(given, dim=1) if given else None
    return dict(shared, feat=feat, feat_mask=mask, feat_pos=torch.cat(positions, dim=1)), dict(shared, memory_mask=mask)


def references(spatial_shapes: Sequence[tuple[Any, Any]], valid_ratios: Tensor, device: Any) -> Tensor:
    """Return the centre of every place as a share of its level (N, places, levels, 2)."""
    levels = []
    for level, (height, width) in enumerate(spatial_shapes):
        rows, columns = _centres(height, valid_ratios), _centres(width, valid_ratios)
        ratios = valid_ratios[:, None, level]
        x = columns[None, :].expand(height, -1).reshape(1, -1) / (ratios[..., 0] * width)
        y = rows[:, None].expand(-1, width).reshape(1, -1) / (ratios[..., 1] * height)
        levels.append(torch.stack([x, y], dim=-1))
    return torch.cat(levels, dim=1)[:, :, None] * valid_ratios[:, None]


def proposals(model: Any, memory: Tensor, memory_mask: Tensor | None, spatial_shapes: Sequence[tuple[Any, Any]]) -> tuple[Tensor, Tensor]:
    """Return the memory and the unactivated boxes of its places. Those near the border and in padding are masked."""
    boxes, far = [], []
    start = 0
    for level, (height, width) in enumerate(spatial_shapes):
        sides: tuple[Any, Any] = (height, width)
        if memory_mask is not None:
            mask = memory_mask[:, start:start + height * width].view(-1, height, width)
            sides = (~mask[:, :, 0]).sum(1)[:, None, None], (~mask[:, 0]).sum(1)[:, None, None]
        start = start + height * width
        columns, rows = _centres(width, memory)[None, None], _centres(height, memory)[None, :, None]
        x, y = (columns / sides[1]).expand(-1, height, -1), (rows / sides[0]).expand(-1, -1, width)
        length = torch.full_like(x, 0.05 * 2.0 ** level)
        boxes.append(torch.stack([x, y, length, length], dim=-1).flatten(1, 2))
        far.append((_far_from_ends(columns, sides[1]) & _far_from_ends(rows, sides[0]) & (length > 0.01) & (length < 0.99)).flatten(1, 2))
    shares = torch.cat(boxes, dim=1).expand(memory.shape[0], -1, -1)
    inside = torch.cat(far, dim=1).expand(memory.shape[0], -1)[..., None]
    if memory_mask is not None:
        inside = inside & ~memory_mask[..., None]
    unactivated = torch.log(shares / (1 - shares)).masked_fill(~inside, float('inf'))
    memory = model.memory_trans_norm(model.memory_trans_fc(memory.masked_fill(~inside, 0.0)))
    return memory, unactivated


def _far_from_ends(centres: Tensor, side: Any) -> Tensor:
    """Return whether centres are more than a hundredth of the side from both ends.

    Upstream compares quotients with 0.01 and 0.99. The last row of 50 (a picture of 800 at stride 16) is at 49.5 / 50: in a file of
    OpenVINO 2026.4 that was less than 0.99, and most queries of DINO had other places than in eager. Products of whole numbers are exact.
    """
    return (100 * centres - side > 0) & (100 * centres - 99 * side < 0)


def _centres(side: Any, like: Tensor) -> Tensor:
    return torch.arange(side, device=like.device, dtype=torch.float32) + 0.5
