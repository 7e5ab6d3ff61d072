"""Test memory of the deformable attention; its values are compared in tests/patches."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mmexport.compat import provide_mmcv_ext
from mmexport.compat.pytree import tree_leaves
from mmexport.ops.deformable_attention import SAMPLINGS

provide_mmcv_ext()


class Peak(TorchDispatchMode):
    """Count the bytes of the tensors that operators return, for as long as a tensor holds their storage."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._hold(tensor)
        return result

    def _hold(self, tensor: Tensor) -> None:
        place, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        self.holders[place] = self.holders.get(place, 0) + 1
        self.now += size if self.holders[place] == 1 else 0
        self.peak = max(self.peak, self.now)
        weakref.finalize(tensor, self._drop, place, size)

    def _drop(self, place: int, size: int) -> None:
        self.holders[place] -= 1
        self.now -= 0 if self.holders[place] else size


def peak_of(run: Callable[[], Tensor]) -> tuple[int, Tensor]:
    mode = Peak()
    with torch.no_grad(), mode:
        result = run()
    return mode.peak, result


@pytest.mark.parametrize('sampling', sorted(SAMPLINGS))
def test_peak_memory_is_about_a_third_of_upstreams(sampling: str) -> None:
    """The pixel decoder of Mask2Former at 256 x 256: three levels, eight heads of 32 channels, four points."""
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch
    generator = torch.Generator().manual_seed(0)
    shapes = [(8, 8), (16, 16), (32, 32)]
    keys = sum(height * width for height, width in shapes)
    value, offsets = torch.randn(1, keys, 8, 32, generator=generator), torch.randn(1, keys, 8, 3, 4, 2, generator=generator)
    reference = torch.rand(1, keys, 3, 2, generator=generator)
    weights = torch.rand(1, keys, 8, 3, 4, generator=generator)
    sizes = torch.tensor(shapes)
    places = reference[:, :, None, :, None] + offsets / sizes.flip(1)[None, None, None, :, None].float()
    upstream, expected = peak_of(lambda: multi_scale_deformable_attn_pytorch(value, sizes, places, weights))
    ours, actual = peak_of(lambda: SAMPLINGS[sampling](value, shapes, offsets, weights, reference))
    assert torch.allclose(actual, expected, atol=1e-4)
    print(f'{sampling}: {ours / upstream:.3f} of {upstream / 1e6:.0f} MB')
    assert ours < 0.4 * upstream
