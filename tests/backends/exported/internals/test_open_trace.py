"""Test that the TorchScript-based ONNX exporter keeps batch, height and width open, also behind attention."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.backends import build_backend
from mmexport.backends.exported.internals.open_trace import sizes_left_open
from mmexport.inputs.synthetic import picture
from mmexport.patching import patched
from mmexport.utils.skipped import skipped
from tests.tiny import SHAPE, seeded

AXES = ('batch', 'height', 'width')


@pytest.mark.parametrize('name', ['fcn', 'pspnet', 'segformer_b0', 'upernet_swin', 'maskformer_r50'])
def test_old_exporter_is_right_at_untraced_sizes(name: str, tmp_path: Path) -> None:
    adapter = build_adapter(seeded(name), outputs='raw')
    manifest = dict(inputs=[dict(name='image', dynamic=list(AXES))])
    backend = build_backend(dict(type='ONNX', dynamo=False))
    with patched('auto'):
        artifact = backend.lower(adapter, picture(SHAPE, 0, adapter), tmp_path / 'onnx', manifest)
    for shape in ((2, 3, 161, 97), (1, 3, 128, 192)):
        image = picture(shape, 1, adapter)
        with torch.no_grad():
            expected, actual = adapter(image), backend.load(artifact, 'cpu')(image)
        for one, other in zip(expected, actual, strict=True):
            assert one.shape == other.shape
            assert float((one - other).abs().max()) <= 1e-4 * float(one.abs().max())


def test_trace_function_is_restored_and_a_missing_one_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch.jit._get_trace_graph  # type: ignore[attr-defined]
    with pytest.raises(KeyError), sizes_left_open():
        assert torch.jit._get_trace_graph is not original  # type: ignore[attr-defined]
        raise KeyError
    assert torch.jit._get_trace_graph is original  # type: ignore[attr-defined]
    monkeypatch.setattr('mmexport.utils.skipped._lines', {})
    monkeypatch.delattr(torch.jit, '_get_trace_graph')
    with sizes_left_open():
        pass
    assert any(line.startswith('sizes may be fixed: ') and '_get_trace_graph' in line for line in skipped())
