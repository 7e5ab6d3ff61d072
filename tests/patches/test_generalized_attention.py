"""Test that embeddings of positions are upstream's, at sizes that were not traced and in ONNX."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mmexport.patching import patched
from tests.patches.comparing import ROUNDING, both, traced_once


def module(attention_type: str, **options: int) -> torch.nn.Module:
    from mmcv.cnn.bricks import GeneralizedAttention
    torch.manual_seed(0)
    attention = GeneralizedAttention(24, spatial_range=-1, num_heads=2, attention_type=attention_type, **options).eval()
    torch.nn.init.constant_(attention.gamma, 1.0)
    return attention  # type: ignore[no-any-return]


@pytest.mark.parametrize('attention_type', ['0100', '0001', '1111', '0010'])
def test_it_equals_upstream_at_other_sizes(attention_type: str) -> None:
    # With 0100 upstream takes squares only.
    attention, x = module(attention_type, kv_stride=2), torch.randn(2, 24, 9, 9 if attention_type == '0100' else 6)
    one, other = both('GeneralizedAttentionPositions', lambda: attention(x))
    assert float((one - other).abs().max()) < ROUNDING * float(one.abs().max())
    traced = traced_once('GeneralizedAttentionPositions', attention, (torch.randn(1, 24, 5, 5 if attention_type == '0100' else 8),))
    assert float((traced(x) - one).abs().max()) < 5 * ROUNDING * float(one.abs().max())


def test_onnx_takes_other_sizes(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip('onnxruntime')
    attention, x = module('1111', kv_stride=2), torch.randn(3, 24, 9, 6)
    batch, height, width = (torch.export.Dim(name, min=2, max=64) for name in ('batch', 'height', 'width'))
    with patched(['GeneralizedAttentionPositions']):
        torch.onnx.export(attention, (torch.randn(2, 24, 5, 8),), tmp_path / 'model.onnx', dynamo=True, input_names=['x'],
                          dynamic_shapes=({0: batch, 2: height, 3: width},), verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / 'model.onnx', providers=['CPUExecutionProvider'])
    with torch.no_grad():
        expected = attention(x)
    assert float((torch.from_numpy(session.run(None, {'x': x.numpy()})[0]) - expected).abs().max()) < 1e-4 * float(expected.abs().max())
