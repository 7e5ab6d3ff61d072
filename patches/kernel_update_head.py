"""Replace the kernel update head of mmseg's K-Net: no loop over the batch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class KernelUpdateHead(Patch):
    """Apply all images' kernels in one product: a loop over the batch is traced for as many images as the traced batch has.

    Each image has kernels of its own, so upstream convolves image by image. A convolution is a product of the kernels with unfolded
    patches, and that product takes a batch. The steps before it are upstream's.

    Paper: K-Net, arXiv:2106.14855. Source: mmseg/models/decode_heads/knet_head.py, ``KernelUpdateHead.forward``.
    """

    targets = ('mmseg.models.decode_heads.knet_head.KernelUpdateHead.forward',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _forward


def _forward(head: Any, x: Tensor, proposal_feat: Tensor, mask_preds: Tensor, mask_shape: Any = None) -> tuple[Tensor, Tensor]:
    if head.feat_transform is not None:
        x = head.feat_transform(x)
    kernels = _updated_kernels(head, x, proposal_feat, mask_preds)
    masks = _masks(head, x, kernels)
    if mask_shape is not None:
        masks = F.interpolate(masks, mask_shape, mode='bilinear', align_corners=False)
    side = head.conv_kernel_size
    return masks, kernels.permute(0, 1, 3, 2).unflatten(-1, (side, side))


def _updated_kernels(head: Any, x: Tensor, proposal_feat: Tensor, mask_preds: Tensor) -> Tensor:
    """Update kernels (N, P, K * K, C) by the features that each mask gathers; equation 3 of the paper."""
    # Upstream skips this where the sizes agree; resizing to the same size changes nothing, and a trace must not keep the branch.
    weights = F.interpolate(mask_preds, x.shape[-2:], mode='bilinear', align_corners=False).softmax(dim=1)
    gathered = torch.einsum('bnhw,bchw->bnc', weights, x)
    batch, proposals = proposal_feat.shape[:2]
    kernels = head.kernel_update_conv(gathered, proposal_feat.flatten(3).permute(0, 1, 3, 2))
    # The updator may work on fewer channels and then returns more rows (256 for 512 in the configs of K-Net), so no flatten here.
    tokens = kernels.reshape(batch, proposals, -1).permute(1, 0, 2)
    tokens = head.attention_norm(head.attention(tokens)).permute(1, 0, 2)
    kernels = tokens.unflatten(-1, (-1, head.in_channels))
    return head.ffn_norm(head.ffn(kernels)) if head.with_ffn else kernels


def _masks(head: Any, x: Tensor, kernels: Tensor) -> Tensor:
    """Convolve every image with its own kernels -> (N, P, h, w)."""
    for layer in head.mask_fcs:
        kernels = layer(kernels)
    # (N, P, C, K * K), as unfold orders patches.
    filters = head.fc_mask(kernels).permute(0, 1, 3, 2).flatten(2)
    halved = head.mask_transform_stride == 2
    if halved and head.feat_gather_stride == 1:
        x = F.interpolate(x, scale_factor=0.5, mode='bilinear', align_corners=False)
    side = head.conv_kernel_size
    patches = x.flatten(2) if side == 1 else F.unfold(x, side, padding=side // 2)
    masks = torch.bmm(filters, patches).unflatten(-1, (x.shape[2], x.shape[3]))
    return F.interpolate(masks, scale_factor=2, mode='bilinear', align_corners=False) if halved else masks
