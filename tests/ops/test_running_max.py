"""Test running maxima in each form against a loop, and mmcv's corner pooling with the patch."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmexport.compat import provide_mmcv_ext
from mmexport.ops.op import with_forms
from mmexport.ops.running_max import running_max
from tests.patches.comparing import both

provide_mmcv_ext()


def by_loop(x: Tensor, axis: int, backwards: bool) -> Tensor:
    size = x.shape[axis]
    parts = [x.narrow(axis, place, size - place) if backwards else x.narrow(axis, 0, place + 1) for place in range(size)]
    return torch.stack([part.amax(dim=axis) for part in parts], dim=axis)


@pytest.mark.parametrize('form', ['cummax', 'doubling'])
@pytest.mark.parametrize('backwards', [True, False])
@pytest.mark.parametrize('axis', [2, 3])
def test_each_form_equals_a_loop(axis: int, backwards: bool, form: str) -> None:
    for size in ((1, 1), (5, 9), (33, 70)):
        x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(size[0]))
        with with_forms(running_max=form):
            assert torch.equal(running_max(x, axis, backwards), by_loop(x, axis, backwards))


@pytest.mark.parametrize('mode', ['top', 'bottom', 'left', 'right'])
def test_corner_pooling_is_mmcvs(mode: str) -> None:
    from mmcv.ops import CornerPool
    pool, x = CornerPool(mode), torch.randn(2, 3, 7, 12)
    with with_forms(running_max='doubling'):
        one, other = both('CornerPool', lambda: pool(x))
    assert torch.equal(one, other)


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return running_max(running_max(x, 2, True), 3, False)


def test_onnx_takes_other_sizes(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip('onnxruntime')
    height, width = (torch.export.Dim(name, min=2) for name in ('height', 'width'))
    with with_forms(running_max='doubling'):
        torch.onnx.export(Pooled(), (torch.randn(1, 2, 8, 9),), tmp_path / 'model.onnx', dynamo=True, input_names=['x'],
                          dynamic_shapes=({2: height, 3: width},), verbose=False)
    session, x = onnxruntime.InferenceSession(tmp_path / 'model.onnx', providers=['CPUExecutionProvider']), torch.randn(1, 2, 31, 5)
    assert torch.equal(torch.from_numpy(session.run(None, {'x': x.numpy()})[0]), Pooled()(x))
