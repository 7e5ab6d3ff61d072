"""Test ISANet's attention over interlaced positions, against upstream."""
from __future__ import annotations

import operator

import pytest
import torch

from mmexport.backends.exported.internals.open_sizes import exporter
from mmexport.compat import provide_mmcv_ext
from mmexport.patching import patched
from tests.patches.comparing import both, traced_once
from tests.programs import needs_program

provide_mmcv_ext()


@pytest.mark.parametrize('size', [(16, 24), (13, 18), (7, 33)])
@pytest.mark.parametrize('batch', [1, 3])
def test_interlaced_attention_equals_upstream(size: tuple[int, int], batch: int) -> None:
    from mmseg.models.decode_heads import ISAHead
    torch.manual_seed(0)
    head = ISAHead(in_channels=8, channels=16, isa_channels=8, down_factor=(4, 3), num_classes=5).eval()
    features = [torch.randn(batch, 8, *size)]
    one, other = both('InterlacedAttention', lambda: head(features))
    assert torch.equal(one, other)
    traced = traced_once('InterlacedAttention', head, ([torch.randn(1, 8, 20, 22)],))
    assert torch.allclose(traced(features), one, atol=1e-5)


@needs_program
def test_interlaced_attention_divides_no_negative_sizes() -> None:
    """ONNX and OpenVINO round the quotient of a negative integer up, Python down: a padding was off by one."""
    from mmseg.models.decode_heads import ISAHead
    head = ISAHead(in_channels=8, channels=16, isa_channels=8, down_factor=(8, 8), num_classes=5).eval()
    auto = torch.export.Dim.AUTO
    with patched(['InterlacedAttention']):
        export = exporter()
        assert export is not None
        program = export(head, ([torch.randn(2, 8, 61, 68)],), dynamic_shapes=([{2: auto, 3: auto}],), strict=False)
    divided = [node.args[0].meta['val'].node for node in program.graph.nodes if node.target is operator.floordiv]
    assert divided
    assert all(size.shape_env.bound_sympy(size.expr).lower >= 0 for size in divided)
