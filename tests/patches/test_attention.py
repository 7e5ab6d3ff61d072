"""Test the patches of attention against the code that they replace."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mmexport.compat import provide_mmcv_ext
from mmexport.ops import deformable_attention
from tests.patches.comparing import ROUNDING, both, traced_once

provide_mmcv_ext()


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
        actual = sample(value, [(2, 3)], torch.zeros(1, 1, 1, 1, 1, 2), torch.ones(1, 1, 1, 1, 1), at_cell)
        assert torch.allclose(actual[0, 0], value[0, 1, 0], atol=1e-6)
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
