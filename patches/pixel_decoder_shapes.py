"""Replace the level shapes of mmdet's pixel decoder: they stay sizes."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class PixelDecoderShapes(Patch):
    """Hand level shapes on as sizes. A tensor would have to be read back to split and reshape by.

    ``MSDeformAttnPixelDecoder.forward`` puts the sizes into a tensor on the device (``_shape_as_tensor(feat)[2:].to(device)``) and
    later reshapes by its elements, which costs a transfer from the GPU for every use and, in exporters without data-dependent
    shapes, an error. Everything else is as upstream.

    Source: mmdet/models/layers/msdeformattn_pixel_decoder.py.
    """

    targets = ('mmdet.models.layers.msdeformattn_pixel_decoder.MSDeformAttnPixelDecoder.forward',)
    upstream = 'mmdet 3.0.0 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return forward


def forward(self: Any, feats: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    batch = feats[0].shape[0]
    levels = [self.num_input_levels - index - 1 for index in range(self.num_encoder_levels)]
    shapes = [(feats[level].shape[2], feats[level].shape[3]) for level in levels]
    inputs, positions, references = [], [], []
    for index, level in enumerate(levels):
        feat = feats[level]
        no_padding = feat.new_zeros((batch, *feat.shape[-2:]), dtype=torch.bool)
        position = self.level_encoding.weight[index].view(1, -1, 1, 1) + self.postional_encoding(no_padding)
        inputs.append(self.input_convs[index](feat).flatten(2).permute(0, 2, 1))
        positions.append(position.flatten(2).permute(0, 2, 1))
        references.append(_reference_points(self, feat, level))
    reference = torch.cat(references, dim=0)[None, :, None].repeat(batch, 1, self.num_encoder_levels, 1)
    memory = self.encoder(query=torch.cat(inputs, dim=1), query_pos=torch.cat(positions, dim=1), key_padding_mask=None,
                          spatial_shapes=shapes, reference_points=reference, level_start_index=None, valid_ratios=None)
    outs = [part.unflatten(-1, shape) for part, shape in
            zip(memory.permute(0, 2, 1).split([h * w for h, w in shapes], dim=-1), shapes, strict=True)]
    for index in range(self.num_input_levels - self.num_encoder_levels - 1, -1, -1):
        lateral = self.lateral_convs[index](feats[index])
        upper = F.interpolate(outs[-1], size=lateral.shape[-2:], mode='bilinear', align_corners=False)
        outs.append(self.output_convs[index](lateral + upper))
    return self.mask_feature(outs[-1]), outs[:self.num_outs]


def _reference_points(self: Any, feat: Tensor, level: int) -> Tensor:
    """Return the centres of the level's cells: (h * w, 2), 0..1, x first."""
    points = self.point_generator.single_level_grid_priors(feat.shape[-2:], level, device=feat.device)
    # By numbers, not by a tensor of them: making one fixes a symbolic size.
    return torch.stack([points[:, axis] / (feat.shape[3 - axis] * self.strides[level]) for axis in (0, 1)], dim=-1)
