"""Replace the padding masks of mmdet's MaskFormer: no loop over the batch."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.errors import PatchError
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class MaskFormerPadding(Patch):
    """Mask no padding where there is none: upstream clears the mask image by image, in a loop as long as the traced batch.

    A second image then stays masked everywhere, its softmax runs over nothing, and half of the output is NaN. An exported file sees
    images that fill its input, so the mask is all False; images with padding of their own are refused.

    Sources: mmdet/models/dense_heads/maskformer_head.py (``MaskFormerHead.forward``) and mmdet/models/layers/pixel_decoder.py
    (``TransformerEncoderPixelDecoder.forward``). mmseg's MaskFormer inherits both.
    """

    targets = ('mmdet.models.dense_heads.maskformer_head.MaskFormerHead.forward',
               'mmdet.models.layers.pixel_decoder.TransformerEncoderPixelDecoder.forward')
    upstream = 'mmdet 3.0.0 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _head_forward if 'MaskFormerHead' in target else _pixel_decoder_forward


def _head_forward(head: Any, x: Sequence[Tensor], batch_data_samples: Sequence[Any]) -> tuple[Tensor, Tensor]:
    metas = [sample.metainfo for sample in batch_data_samples]
    _refuse_padding(metas)
    mask_features, memory = head.pixel_decoder(x, metas)
    padding = _no_padding(x[-1])
    batch = x[-1].shape[0]
    queries = head.query_embed.weight.unsqueeze(0).repeat(batch, 1, 1)
    memory = head.decoder_input_proj(memory).flatten(2).permute(0, 2, 1)
    decoded = head.transformer_decoder(
        query=torch.zeros_like(queries), key=memory, value=memory, query_pos=queries,
        key_pos=head.decoder_pe(padding).flatten(2).permute(0, 2, 1), key_padding_mask=padding.flatten(1))
    return head.cls_embed(decoded), torch.einsum('lbqc,bchw->lbqhw', head.mask_embed(decoded), mask_features)


def _pixel_decoder_forward(decoder: Any, feats: Sequence[Tensor], batch_img_metas: Sequence[Any]) -> tuple[Tensor, Tensor]:
    _refuse_padding(batch_img_metas)
    last = feats[-1]
    padding = _no_padding(last)
    memory = decoder.encoder(
        query=decoder.encoder_in_proj(last).flatten(2).permute(0, 2, 1),
        query_pos=decoder.positional_encoding(padding).flatten(2).permute(0, 2, 1), key_padding_mask=padding.flatten(1))
    memory = memory.permute(0, 2, 1).unflatten(-1, (last.shape[2], last.shape[3]))
    y = decoder.encoder_out_proj(memory)
    for index in range(decoder.num_inputs - 2, -1, -1):
        lateral = decoder.lateral_convs[index](feats[index])
        y = decoder.output_convs[index](lateral + F.interpolate(y, size=lateral.shape[-2:], mode='nearest'))
    return decoder.mask_feature(y), memory


def _no_padding(feature: Tensor) -> Tensor:
    return feature.new_zeros((feature.shape[0], *feature.shape[-2:]), dtype=torch.bool)


def _refuse_padding(metas: Sequence[Any]) -> None:
    for meta in metas:
        if meta['img_shape'] is meta['batch_input_shape']:
            continue  # An adapter's own, of symbolic sizes perhaps, which comparing would fix.
        if any(int(inner) != int(outer) for inner, outer in zip(meta['img_shape'], meta['batch_input_shape'], strict=True)):
            raise PatchError(f"an image of {tuple(meta['img_shape'])} in an input of {tuple(meta['batch_input_shape'])}: an exported "
                             'MaskFormer takes images that fill its input')
