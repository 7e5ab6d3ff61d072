"""Test mmcv's masked convolution against upstream on the reference kernel, and at sizes that were not traced."""
from __future__ import annotations

import pytest
import torch

from mmexport.compat import provide_mmcv_ext
from tests.patches.comparing import both, traced_once

pytestmark = pytest.mark.skipif(provide_mmcv_ext() == 'compiled', reason='compiled mmcv has it on CUDA only')


@pytest.mark.parametrize('empty', [False, True])
def test_it_equals_upstream(empty: bool) -> None:
    from mmcv.ops import MaskedConv2d
    torch.manual_seed(0)
    conv = MaskedConv2d(4, 6, 3, padding=1).eval()
    feature, mask = torch.randn(1, 4, 9, 7), torch.rand(1, 9, 7) > (2 if empty else 0.4)
    one, other = both('MaskedConv', lambda: conv(feature, mask))
    torch.testing.assert_close(other, one, atol=1e-6, rtol=1e-6)
    assert bool((one == 0).all()) is empty
    one, other = both('MaskedConv', lambda: conv(feature))
    assert torch.equal(one, other)


def test_a_trace_follows_mask_and_size() -> None:
    from mmcv.ops import MaskedConv2d
    torch.manual_seed(0)
    conv = MaskedConv2d(4, 6, 3, padding=1).eval()
    traced = traced_once('MaskedConv', conv, (torch.randn(1, 4, 9, 7), torch.rand(1, 9, 7) > 0.4))
    feature, mask = torch.randn(1, 4, 5, 12), torch.rand(1, 5, 12) > 0.7
    torch.testing.assert_close(traced(feature, mask), conv(feature, mask), atol=1e-6, rtol=1e-6)
    # More pictures than mmcv takes: each has its own mask.
    feature, mask = torch.randn(2, 4, 5, 12), torch.rand(2, 5, 12) > 0.7
    for number, answer in enumerate(traced(feature, mask)):
        torch.testing.assert_close(answer, conv(feature[number:number + 1], mask[number:number + 1])[0], atol=1e-6, rtol=1e-6)
