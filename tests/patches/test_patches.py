"""Each patch against the code that it replaces, at sizes and batches that no trace saw."""
from __future__ import annotations

import copy

import pytest
import torch
from mmengine.registry import DefaultScope
from torch import Tensor, nn

from mmexport.compat import provide_mmcv_ext
from mmexport.errors import PatchError
from mmexport.ops import deformable_attention
from mmexport.patching import patched

provide_mmcv_ext()
ROUNDING = 2e-6  # a dozen float32 roundings of values of order one


def both(name: object, run: object) -> tuple[Tensor, Tensor]:
    """What upstream answers, and what it answers with the patch on."""
    with torch.no_grad():
        original = run()  # type: ignore[operator]
        with patched([name]) as rows:
            assert rows[0].skipped is None
            replaced = run()  # type: ignore[operator]
    return original, replaced


def traced_once(name: object, module: nn.Module, example: tuple[Tensor, ...]) -> torch.jit.ScriptModule:
    with patched([name]), torch.no_grad():
        return torch.jit.trace(module.eval(), example, check_trace=False)


@pytest.mark.parametrize('sampling', ['bag', 'grid', 'gather'])
@pytest.mark.parametrize('reference_dims', [2, 4])
@pytest.mark.parametrize('batch', [1, 3])
def test_deformable_attention_equals_upstream(sampling: str, reference_dims: int, batch: int) -> None:
    from mmcv.ops import MultiScaleDeformableAttention
    torch.manual_seed(0)
    attention = MultiScaleDeformableAttention(embed_dims=32, num_heads=4, num_levels=3, num_points=4, batch_first=True).eval()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.3)
    shapes = torch.tensor([(3, 5), (6, 9), (11, 18)])
    keys = int(shapes.prod(1).sum())
    query, reference = torch.randn(batch, keys, 32), torch.rand(batch, keys, 3, reference_dims) * 1.2 - 0.1
    padding = torch.rand(batch, keys) < 0.1
    one, other = both(dict(type='MultiScaleDeformableAttention', sampling=sampling), lambda: attention(
        query=query, key_padding_mask=padding, reference_points=reference, spatial_shapes=shapes,
        level_start_index=torch.zeros(3), query_pos=query * 0.1))
    assert float((one - other).abs().max()) <= ROUNDING * float(one.abs().max())


@pytest.mark.gpu
@pytest.mark.compiled_mmcv
def test_deformable_attention_equals_the_cuda_kernel() -> None:
    from mmcv.ops import MultiScaleDeformableAttention
    torch.manual_seed(0)
    attention = MultiScaleDeformableAttention(embed_dims=32, num_heads=4, num_levels=2, num_points=4, batch_first=True).eval().cuda()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.3)
    shapes = torch.tensor([(6, 9), (11, 18)], device='cuda')
    keys = int(shapes.prod(1).sum())
    query, reference = torch.randn(2, keys, 32, device='cuda'), torch.rand(2, keys, 2, 2, device='cuda')
    one, other = both('MultiScaleDeformableAttention', lambda: attention(
        query=query, reference_points=reference, spatial_shapes=shapes, level_start_index=torch.tensor([0, 54], device='cuda')))
    assert float((one - other).abs().max()) <= 10 * ROUNDING * float(one.abs().max())


def test_deformable_sampling_is_linear_in_the_weights() -> None:
    """Away from upstream: a sample on a cell's centre is that cell, and one outside is nothing."""
    value = torch.randn(1, 6, 1, 4)
    at_cell = torch.tensor([[[[(1 + 0.5) / 3, (0 + 0.5) / 2]]]]).view(1, 1, 1, 2)
    for sample in deformable_attention.SAMPLINGS.values():
        found = sample(value, [(2, 3)], torch.zeros(1, 1, 1, 1, 1, 2), torch.ones(1, 1, 1, 1, 1), at_cell)
        assert torch.allclose(found[0, 0], value[0, 1, 0], atol=1e-6)
        outside = sample(value, [(2, 3)], torch.full((1, 1, 1, 1, 1, 2), 1e12), torch.ones(1, 1, 1, 1, 1), at_cell)
        assert float(outside.abs().max()) == 0.0


@pytest.mark.parametrize('batch_first', [True, False])
@pytest.mark.parametrize('mask', [None, 'attention', 'padding'])
def test_attention_without_weights_equals_upstream(batch_first: bool, mask: str | None) -> None:
    from mmcv.cnn.bricks.transformer import MultiheadAttention
    torch.manual_seed(0)
    attention = MultiheadAttention(32, 4, batch_first=batch_first).eval()
    query, key = torch.randn(3, 7, 32), torch.randn(3, 11, 32)
    masks: dict[str, Tensor] = {}
    if mask == 'attention':
        masks['attn_mask'] = torch.rand(12, 7, 11) < 0.4
    elif mask == 'padding':
        masks['key_padding_mask'] = torch.rand(3, 11) < 0.4
    if not batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    one, other = both('AttentionWeights', lambda: attention(query, key, key, query_pos=query * 0.1, key_pos=key * 0.1, **masks))
    assert float((one - other).abs().max()) <= ROUNDING * float(one.abs().max())
    assert 'forward' not in vars(attention.attn)


def test_attention_of_segformer_without_weights_equals_upstream() -> None:
    from mmseg.models.backbones.mit import EfficientMultiheadAttention
    torch.manual_seed(0)
    attention = EfficientMultiheadAttention(32, 4, sr_ratio=2).eval()
    tokens = torch.randn(2, 6 * 10, 32)
    one, other = both('AttentionWeights', lambda: attention(tokens, (6, 10)))
    assert float((one - other).abs().max()) <= ROUNDING * float(one.abs().max())
    graph = traced_once('AttentionWeights', Tokens(attention), (tokens,)).inlined_graph
    kinds = {node.kind() for node in graph.nodes()}
    assert 'aten::scaled_dot_product_attention' in kinds
    assert 'aten::softmax' not in kinds


class Tokens(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, tokens: Tensor) -> Tensor:
        return self.attention(tokens, (6, 10))


@pytest.mark.parametrize('scale', [2, 1.7, 0.5, (2.0, 3.0)])
def test_upsample_equals_upstream(scale: object) -> None:
    from mmseg.models.utils.wrappers import Upsample
    layer = Upsample(scale_factor=scale, mode='bilinear', align_corners=False)
    if isinstance(scale, tuple):
        with patched(['Upsample']):
            assert layer(torch.zeros(1, 1, 5, 7)).shape[-2:] == (10, 21)
        return
    for size in ((13, 17), (32, 40)):
        image = torch.randn(2, 3, *size)
        one, other = both('Upsample', lambda image=image: layer(image))
        assert torch.equal(one, other)
    traced = traced_once('Upsample', layer, (torch.randn(1, 3, 16, 20),))
    image = torch.randn(2, 3, 21, 11)
    assert torch.equal(traced(image), layer(image))


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

    class Shaped(nn.Module):
        """A size has to come from a tensor to be traced."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, image: Tensor) -> Tensor:
            return self.layer(image.flatten(2).transpose(1, 2), (image.shape[2], image.shape[3]))

    # Traced at whole windows, where upstream's crop is not taken.
    traced = traced_once('ShiftWindowMSA', Shaped(), (torch.randn(1, 16, 14, 21),))
    for shape in ((1, 16, 14, 21), (2, 16, 9, 16), (3, 16, 5, 22)):
        image = torch.randn(shape)
        one, other = both('ShiftWindowMSA', lambda image=image: Shaped()(image))
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
        assert torch.equal(one[0], other[0])
        assert torch.allclose(one[1], other[1], atol=1e-7)


@pytest.mark.parametrize('name', ['maskformer_r50', 'mask2former_r50'])
def test_mask_heads_equal_upstream_at_batch_three(name: str) -> None:
    from mmexport.adapters import build_adapter
    from mmexport.inputs import picture
    from mmexport.model import build_model
    from mmexport.seeding import seed_model
    from tests.tiny import tiny
    model = build_model(tiny(name))
    seed_model(model)
    adapter = build_adapter(model, outputs='raw')
    image = picture((3, 3, 96, 128), 5, adapter)
    one, other = both('auto', lambda: adapter.raw(image))
    for wanted, found in zip(one, other, strict=True):
        assert float((wanted - found).abs().max()) <= 2e-5 * float(wanted.abs().max())


def test_maskformer_refuses_padding() -> None:
    from mmdet.models.dense_heads import MaskFormerHead
    with patched(['MaskFormerPadding']), pytest.raises(PatchError, match='fill its input'):
        sample = type('Sample', (), {'metainfo': dict(img_shape=(60, 64), batch_input_shape=(64, 64))})
        MaskFormerHead.forward(copy.copy(object()), [torch.zeros(1, 1, 2, 2)], [sample])
