"""Test each patch against the code that it replaces, at sizes and batches that no trace saw."""
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from mmengine.registry import DefaultScope
from torch import Tensor, nn

from mmexport.compat import provide_mmcv_ext
from mmexport.errors import PatchError
from mmexport.patching import patched
from tests.patches.comparing import ROUNDING, both, traced_once

provide_mmcv_ext()


class Shaped(nn.Module):
    """Run windowed attention on a picture: a size has to come from a tensor to be traced."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, image: Tensor) -> Any:
        return self.layer(image.flatten(2).transpose(1, 2), (image.shape[2], image.shape[3]))


@pytest.mark.parametrize('package', ['mmseg', 'mmdet'])
@pytest.mark.parametrize('padding', ['same', 'corner'])
@pytest.mark.parametrize(('kernel', 'stride', 'dilation'), [(16, 16, 1), (4, 4, 1), (7, 4, 1), (3, 2, 2), (2, 3, 1)])
def test_adaptive_padding_equals_upstream(package: str, padding: str, kernel: int, stride: int, dilation: int) -> None:
    if package == 'mmseg':
        from mmseg.models.utils.embed import AdaptivePadding
    else:
        from mmdet.models.layers.transformer.utils import AdaptivePadding
    layer = AdaptivePadding(kernel, stride, dilation, padding)
    traced = traced_once('AdaptivePadding', layer, (torch.randn(1, 1, 16, 16),))
    for size in ((16, 16), (17, 31), (5, 48)):
        image = torch.randn(2, 1, *size)
        one, other = both('AdaptivePadding', lambda image=image: layer(image))
        assert torch.equal(one, other)
        assert torch.equal(one, traced(image))


@pytest.mark.parametrize(('kernel', 'stride', 'dilation'), [(3, 2, 1), (5, 2, 1), (3, 1, 2), (1, 1, 1), (1, 2, 1)])
def test_a_convolution_that_pads_for_itself_equals_upstream(kernel: int, stride: int, dilation: int) -> None:
    from mmcv.cnn.bricks import Conv2dAdaptivePadding
    layer = Conv2dAdaptivePadding(3, 4, kernel, stride, dilation=dilation).eval()
    traced = traced_once('ConvAdaptivePadding', layer, (torch.randn(1, 3, 16, 16),))
    for size in ((16, 16), (17, 31), (9, 48)):
        image = torch.randn(2, 3, *size)
        one, other = both('ConvAdaptivePadding', lambda image=image: layer(image))
        assert torch.equal(one, other)
        assert torch.equal(one, traced(image))


@pytest.mark.parametrize('package', ['mmseg', 'mmdet'])
@pytest.mark.parametrize('shift', [0, 3])
def test_shift_window_attention_equals_upstream(package: str, shift: int) -> None:
    if package == 'mmseg':
        from mmseg.models.backbones.swin import ShiftWindowMSA
    else:
        from mmdet.models.backbones.swin import ShiftWindowMSA
    torch.manual_seed(0)
    layer = ShiftWindowMSA(embed_dims=16, num_heads=2, window_size=7, shift_size=shift).eval()
    nn.init.normal_(layer.w_msa.relative_position_bias_table)

    # Traced at whole windows, where upstream's crop is not taken.
    windows_equal_upstream('ShiftWindowMSA', layer, (14, 21), ((1, 16, 14, 21), (2, 16, 9, 16), (3, 16, 5, 22)))


def test_locally_grouped_attention_equals_upstream() -> None:
    from mmseg.models.backbones.twins import LocallyGroupedSelfAttention
    torch.manual_seed(0)
    layer = LocallyGroupedSelfAttention(16, 2, qkv_bias=True, window_size=7).eval()
    nn.init.normal_(layer.qkv.weight)
    nn.init.normal_(layer.qkv.bias)
    # Padded nowhere, in both directions, and in one: there upstream attends to the padding.
    windows_equal_upstream('LocallyGroupedAttention', layer, (9, 16), ((1, 16, 14, 21), (2, 16, 9, 16), (3, 16, 5, 21), (2, 16, 14, 9)))


def windows_equal_upstream(patch: str, layer: nn.Module, traced_at: tuple[int, int], shapes: tuple[tuple[int, ...], ...]) -> None:
    shaped = Shaped(layer)
    traced = traced_once(patch, shaped, (torch.randn(1, 16, *traced_at),))
    for shape in shapes:
        image = torch.randn(shape)
        one, other = both(patch, lambda image=image: shaped(image))
        assert torch.equal(one, other)
        with torch.no_grad():
            assert float((traced(image) - one).abs().max()) <= ROUNDING


def test_vit_position_embedding_equals_upstream() -> None:
    from mmseg.models.backbones import VisionTransformer
    torch.manual_seed(0)
    vit = VisionTransformer(img_size=(64, 64), patch_size=16, embed_dims=16, num_layers=1, num_heads=2, out_indices=0)
    vit.eval()  # Returns None: upstream's train() does.
    nn.init.normal_(vit.pos_embed)

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vit = vit

        def forward(self, image: Tensor) -> Tensor:
            return self.vit(image)[0]

    traced = traced_once('VitPositionEmbedding', First(), (torch.randn(1, 3, 64, 64),))
    # 32x128 has as many tokens as 64x64: upstream then leaves the embedding as it is, and so must we.
    for size in ((64, 64), (80, 48), (32, 128), (96, 96)):
        image = torch.randn(2, 3, *size)
        one, other = both('VitPositionEmbedding', lambda image=image: vit(image)[0])
        assert torch.equal(one, other)
        with torch.no_grad():
            assert float((traced(image) - one).abs().max()) <= ROUNDING * 4


@pytest.mark.parametrize(('kernel', 'stride'), [(1, 1), (3, 1), (1, 2)])
def test_kernel_update_head_equals_upstream(kernel: int, stride: int) -> None:
    from mmseg.models.decode_heads.knet_head import KernelUpdateHead
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmseg'):
        head = _kernel_update_head(KernelUpdateHead, kernel, stride)
    for batch in (1, 3):
        inputs = (torch.randn(batch, 16, 12, 18), torch.randn(batch, 5, 16, kernel, kernel), torch.randn(batch, 5, 12, 18))
        (masks, kernels), (masks_patched, kernels_patched) = both(
            'KernelUpdateHead', lambda inputs=inputs: head(*(tensor.clone() for tensor in inputs)))
        assert float((masks - masks_patched).abs().max()) <= 5 * ROUNDING * float(masks.abs().max())
        assert float((kernels - kernels_patched).abs().max()) <= 5 * ROUNDING * float(kernels.abs().max())


def _kernel_update_head(cls: type[nn.Module], kernel: int, stride: int) -> nn.Module:
    return cls(
        num_classes=5, num_heads=2, feedforward_channels=32, in_channels=16, out_channels=16, conv_kernel_size=kernel,
        mask_transform_stride=stride, feat_transform_cfg=dict(conv_cfg=dict(type='Conv2d'), act_cfg=None),
        kernel_updator_cfg=dict(type='KernelUpdator', in_channels=16, feat_channels=16, out_channels=16,
                                act_cfg=dict(type='ReLU'), norm_cfg=dict(type='LN'))).eval()


def test_point_head_equals_upstream() -> None:
    from mmengine.config import ConfigDict
    from mmseg.models.decode_heads import PointHead
    from mmseg.models.decode_heads.point_head import calculate_uncertainty
    head = PointHead(in_channels=[4], in_index=[0], channels=4, num_classes=3, num_fcs=1)
    cfg = ConfigDict(subdivision_num_points=100)
    for size in ((8, 9), (20, 30)):
        logits = torch.randn(2, 3, *size)
        one, other = both('PointHead', lambda logits=logits: head.get_points_test(logits, calculate_uncertainty, cfg))
        count = one[0].shape[1]
        assert torch.equal(one[0], other[0][:, :count])
        assert torch.allclose(one[1], other[1][:, :count], atol=1e-7)
        # What is missing to 100 points is the last pixel, again and again.
        assert bool((other[0][:, count:] == size[0] * size[1] - 1).all())


@pytest.mark.parametrize('name', ['maskformer_r50', 'mask2former_r50'])
def test_mask_heads_equal_upstream_at_batch_three(name: str) -> None:
    from mmexport.adapters import build_adapter
    from mmexport.inputs.synthetic import picture
    from mmexport.model.build import build_model
    from mmexport.seeding import seed_model
    from tests.tiny import tiny
    model = build_model(tiny(name))
    seed_model(model)
    adapter = build_adapter(model, outputs='raw')
    image = picture((3, 3, 96, 128), 5, adapter)
    one, other = both('auto', lambda: adapter.raw(image))
    for expected, actual in zip(one[:2], other[:2], strict=True):
        assert float((expected - actual).abs().max()) <= 2e-5 * float(expected.abs().max())


def test_maskformer_refuses_padding() -> None:
    from mmdet.models.dense_heads import MaskFormerHead
    with patched(['MaskFormerPadding']), pytest.raises(PatchError, match='fill its input'):
        sample = type('Sample', (), {'metainfo': dict(img_shape=(60, 64), batch_input_shape=(64, 64))})
        MaskFormerHead.forward(copy.copy(object()), [torch.zeros(1, 1, 2, 2)], [sample])


@pytest.mark.parametrize('side', [1, 2, 3, 4, 5])
@pytest.mark.parametrize('fusion', [False, True])
def test_dynamic_filters_equal_upstream(side: int, fusion: bool) -> None:
    from mmseg.models.decode_heads.dm_head import DCM
    torch.manual_seed(0)
    module = DCM(side, fusion, 8, 6, None, dict(type='BN'), dict(type='ReLU')).eval()
    traced = traced_once('DynamicFilters', module, (torch.randn(1, 8, 11, 14),))
    for batch, size in ((1, (11, 14)), (3, (9, 20))):
        x = torch.randn(batch, 8, *size)
        one, other = both('DynamicFilters', lambda x=x: module(x))
        assert float((one - other).abs().max()) <= ROUNDING * float(one.abs().max())
        assert torch.allclose(traced(x), one, atol=1e-5)
