from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from mmexport.patches.psamask import spread

from mmexport.compat import provide_mmcv_ext
from tests.kernel_cases import cases
from tests.patches.comparing import both, traced_once

provide_mmcv_ext()
CASES = [case for case in cases() if case.kernel == 'psamask_forward']


@pytest.mark.parametrize('case', CASES, ids=[case.name for case in CASES])
def test_masks_equal_recorded_mmcv(case: object) -> None:
    options, (x, _) = case.options, case.args  # type: ignore[attr-defined]
    with np.load(Path(__file__).parents[1] / 'data' / 'kernels.npz') as recorded:
        expected = torch.from_numpy(recorded[f'psamask_forward/{case.name}/0'])  # type: ignore[attr-defined]
    assert torch.equal(spread(x, (options['h_mask'], options['w_mask']), collect=options['psa_type'] == 0), expected)


@pytest.mark.parametrize('kind', ['collect', 'distribute'])
def test_the_patch_equals_upstream_at_other_sizes(kind: str) -> None:
    from mmcv.ops import PSAMask
    module = PSAMask(kind, (5, 3))
    one, other = both('PointwiseSpatialAttention', lambda: module(torch.arange(2 * 15 * 20.0).view(2, 15, 4, 5)))
    assert torch.equal(one, other)
    traced = traced_once('PointwiseSpatialAttention', module, (torch.randn(1, 15, 3, 3),))
    x = torch.randn(2, 15, 7, 6)
    assert torch.equal(traced(x), module(x))
