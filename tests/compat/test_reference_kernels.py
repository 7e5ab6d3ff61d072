"""Compare the reference kernels with recorded results of compiled mmcv, and with loops where mmcv has no kernel for a CPU."""
from __future__ import annotations

import ast
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mmexport.backends.exported.program import unavailable
from mmexport.compat import provide_mmcv_ext
from mmexport.compat.mmcv_ext import called_kernels, forget_called_kernels, reference_kernels
from mmexport.errors import LoweringError

from ..kernel_cases import boxes, cases, scores, values

provide_mmcv_ext()
CASES = list(cases())
ROOT = Path(__file__).parents[2]
# mmcv computes places in float32: a few roundings of a coordinate of 15 cells move a sample by this share of the largest value.
ROUNDING = 2e-6


def same(one: Tensor, other: Tensor) -> None:
    assert one.shape == other.shape
    if one.is_floating_point():
        largest = float(other.nan_to_num().abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=0, atol=ROUNDING * largest, equal_nan=True)
    else:
        assert torch.equal(one, other)


@pytest.mark.parametrize('kernel', sorted({case.kernel for case in CASES}))
def test_kernels_equal_recorded_mmcv(kernel: str) -> None:
    with np.load(Path(__file__).parents[1] / 'data' / 'kernels.npz') as recorded:
        compared = 0
        for case in CASES:
            if case.kernel == kernel:
                for number, result in enumerate(case.run(reference_kernels()[kernel])):
                    same(result, torch.from_numpy(recorded[f'{kernel}/{case.name}/{number}']))
                    compared += 1
        assert compared == sum(name.startswith(f'{kernel}/') for name in recorded.files)
        assert 'mmcv 2.1.0 compiled' in str(recorded['made_by'])
    assert reference_kernels()[kernel].compared == 'compiled mmcv 2.1.0'


def test_a_kernel_says_what_it_was_compared_with() -> None:
    recorded = {case.kernel for case in CASES}
    assert {name for name, kernel in reference_kernels().items() if kernel.compared == 'compiled mmcv 2.1.0'} == recorded


@pytest.mark.compiled_mmcv
@pytest.mark.parametrize('kernel', sorted({case.kernel for case in CASES}))
def test_kernels_equal_installed_mmcv(kernel: str) -> None:
    import mmcv._ext as ext
    for case in CASES:
        if case.kernel == kernel:
            for one, other in zip(case.run(reference_kernels()[kernel]), case.run(getattr(ext, kernel)), strict=True):
                same(one, other)


def test_a_recorded_case_suppresses_and_keeps() -> None:
    """A record in which nothing happens would prove nothing."""
    results = [len(case.run(reference_kernels()['nms'])[0]) for case in CASES if case.kernel == 'nms' and ' 60 ' in case.name]
    assert min(results) < 30
    assert max(results) > 40


@pytest.mark.parametrize('seed', range(40))
def test_nms_is_greedy_and_stable_with_ties(seed: int) -> None:
    kind = ('random', 'clustered', 'chained', 'degenerate')[seed % 4]
    where, best = boxes(kind, 30, seed), (scores(30, seed) * 5).round() / 5
    kept: list[int] = []
    for number in sorted(range(30), key=lambda number: (-float(best[number]), number)):
        if not any(iou(where[number], where[other]) > np.float32(0.4) for other in kept):
            kept.append(number)
    assert reference_kernels()['nms'](where, best, 0.4, 0).tolist() == kept


def iou(one: Tensor, other: Tensor) -> np.float32:
    (a1, b1, a2, b2), (c1, d1, c2, d2) = (np.asarray(box, np.float32) for box in (one, other))
    zero = np.float32(0)
    shared = max(zero, min(a2, c2) - max(a1, c1)) * max(zero, min(b2, d2) - max(b1, d1))
    with np.errstate(invalid='ignore', divide='ignore'):
        return shared / ((c2 - c1) * (d2 - d1) + (a2 - a1) * (b2 - b1) - shared)


def test_roi_pool_equals_loops() -> None:
    feature = values((2, 2, 9, 12), 0)
    rois = torch.tensor([[0, 0, 0, 40, 30], [1, 3.5, 8.2, 71.9, 66], [1, 60, 50, 200, 90], [0, 20, 20, 19, 19], [0, 20, 20, 10, 40.0]])
    output, argmax = torch.zeros(5, 2, 3, 4), torch.zeros(5, 2, 3, 4, dtype=torch.int)
    reference_kernels()['roi_pool_forward'](feature, rois, output, argmax, pooled_height=3, pooled_width=4, spatial_scale=0.125)
    for roi, channel, y, x in itertools.product(range(5), range(2), range(3), range(4)):
        image, left, top, right, bottom = rois[roi].tolist()
        left, top, right, bottom = left / 8, top / 8, (right + 1) / 8, (bottom + 1) / 8
        cells = [(float(feature[int(image), channel, row, column]), row * 12 + column) for row in range(9) for column in range(12)
                 if math.floor(top + y * (bottom - top) / 3) <= row < math.ceil(top + (y + 1) * (bottom - top) / 3)
                 and math.floor(left + x * (right - left) / 4) <= column < math.ceil(left + (x + 1) * (right - left) / 4)]
        if right <= left or bottom <= top:
            cells = []
        assert float(output[roi, channel, y, x]) == (max(cells)[0] if cells else 0.0)
        assert not cells or int(argmax[roi, channel, y, x]) == max(cells)[1]


@pytest.mark.parametrize('together', [1, 1 << 24])
def test_carafe_equals_loops(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether pictures are computed one by one or together."""
    monkeypatch.setattr('mmexport.ops.carafe.reference.TOGETHER', together)
    features, masks = values((2, 4, 3, 4), 0), values((2, 2 * 9, 6, 8), 1)
    for name, scratch in (('carafe_naive_forward', 0), ('carafe_forward', 3)):
        output = torch.zeros(2, 4, 6, 8)
        reference_kernels()[name](features, masks, *[torch.zeros(0)] * scratch, output, kernel_size=3, group_size=2, scale_factor=2)
        for image, channel, y, x in itertools.product(range(2), range(4), range(6), range(8)):
            expected = sum(float(features[image, channel, y // 2 + row - 1, x // 2 + column - 1])
                           * float(masks[image, channel // 2 * 9 + row * 3 + column, y, x])
                           for row in range(3) for column in range(3)
                           if 0 <= y // 2 + row - 1 < 3 and 0 <= x // 2 + column - 1 < 4)
            assert float(output[image, channel, y, x]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.skipif(provide_mmcv_ext() == 'compiled', reason='compiled mmcv has it on CUDA only')
def test_masked_convolution_is_one_at_the_masked_places() -> None:
    from mmcv.ops import MaskedConv2d
    torch.manual_seed(0)
    conv = MaskedConv2d(3, 5, 3, padding=1).eval()
    feature, mask = values((1, 3, 7, 9), 0), values((1, 7, 9), 1) > 0.3
    with torch.no_grad():
        whole = torch.nn.functional.conv2d(feature, conv.weight, conv.bias, padding=1)
        torch.testing.assert_close(conv(feature, mask.float()), whole * mask, rtol=1e-5, atol=1e-5)


def test_border_align_equals_loops() -> None:
    feature, where = values((1, 8, 6, 7), 0), boxes('random', 5, 2)[None] / 20 - 1.5
    output, argmax = torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4, dtype=torch.int)
    reference_kernels()['border_align_forward'](feature, where, output, argmax, pool_size=4)
    for box, channel, side in itertools.product(range(5), range(2), range(4)):
        x1, y1, x2, y2 = where[0, box].tolist()
        x, y = (x1, y1) if side < 2 else (x2, y2)
        across = {0: (x2 - x1) / 4, 2: -(x2 - x1) / 4}.get(side, 0.0)
        down = {1: (y2 - y1) / 4, 3: -(y2 - y1) / 4}.get(side, 0.0)
        samples = [bilinear(feature[0, side * 2 + channel], y + step * down, x + step * across) for step in range(5)]
        assert float(output[0, channel, box, side]) == pytest.approx(max(samples), abs=1e-5)


def bilinear(plane: Tensor, y: float, x: float) -> float:
    height, width = plane.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    return sum(float(plane[row, column]) * (1 - abs(y - row)) * (1 - abs(x - column))
               for row in range(height) for column in range(width) if abs(y - row) < 1 and abs(x - column) < 1)


def test_deformable_attention_equals_mmcv_in_pytorch() -> None:
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch
    shapes = torch.tensor([[6, 5], [3, 4]])
    value, where = values((2, 42, 3, 4), 0), values((2, 7, 3, 2, 4, 2), 1, 0.4) + 0.5
    weights = values((2, 7, 3, 8), 2).softmax(3).unflatten(3, (2, 4))
    result = reference_kernels()['ms_deform_attn_forward'](value, shapes, torch.tensor([0, 30]), where, weights, im2col_step=64)
    torch.testing.assert_close(result, multi_scale_deformable_attn_pytorch(value, shapes, where, weights), rtol=1e-4, atol=1e-5)


def test_no_code_is_shared_with_what_kernels_judge() -> None:
    """A kernel imports torch only, and nothing else in the package imports a kernel."""
    files = sorted((ROOT / 'mmexport' / 'ops').glob('*/reference.py'))
    assert len(files) >= 10
    for file in files:
        modules = {alias.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Import) for alias in node.names}
        sources = {(node.level, node.module) for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)}
        assert modules <= {'torch', 'math'}, file
        assert {source for source in sources if source[1] != '__future__'} <= {(0, 'torch'), (0, 'torch.nn')}, file
    for file in (ROOT / 'mmexport').rglob('*.py'):
        assert not kernels_imported(file.read_text(), '.'.join(file.relative_to(ROOT).parent.parts)), file
    for file in (ROOT / 'patches').rglob('*.py'):
        assert not kernels_imported(file.read_text(), 'mmexport.patches'), file


def kernels_imported(source: str, package: str) -> list[str]:
    """Return the imports of a module of `package` that name a module of kernels."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split('.')[:len(package.split('.')) - node.level + 1] if node.level else []
            names += ['.'.join([*parents, *filter(None, [node.module]), alias.name]) for alias in node.names]
    return [name for name in names if re.match(r'mmexport\.ops\.\w+\.reference\b', name)]


@pytest.mark.parametrize(('source', 'package', 'found'), [
    ('from mmexport.ops.nms.reference import *', 'mmexport.patches', True),
    ('from ..ops.nms.reference import nms', 'mmexport.adapters', True),
    ('from ..ops.nms import reference', 'mmexport.patches', True), ('import mmexport.ops.nms.reference', 'mmexport.patches', True),
    ('from .reference import nms', 'mmexport.ops.nms', True), ('from .nms import reference', 'mmexport.ops', True),
    ('from .reference import Reference', 'mmexport.verification', False), ('from ..ops.nms import first_kept', 'mmexport.adapters', False)])
def test_imports_of_kernels_are_found(source: str, package: str, found: bool) -> None:
    assert bool(kernels_imported(source, package)) is found


@pytest.mark.skipif(provide_mmcv_ext() == 'compiled', reason='mmcv has its own kernels here')
def test_a_kernel_cannot_be_lowered() -> None:
    """The file would hold the code that judges it, with its loops unrolled for the traced input."""
    from mmcv.ops import roi_align
    feature, rois = values((1, 2, 8, 8), 0), torch.tensor([[0, 1.0, 1, 6, 6]])
    assert roi_align(feature, rois, (2, 2)).shape == (1, 2, 2, 2)
    assert called_kernels()['roi_align_forward'] == 'compiled mmcv 2.1.0'
    forget_called_kernels()
    assert not called_kernels()
    with pytest.raises(LoweringError, match=r'roi_align_forward was called while the model was lowered.*patch'):
        torch.jit.trace(lambda feature, rois: roi_align(feature, rois, (2, 2)), (feature, rois), check_trace=False)



@pytest.mark.skipif(provide_mmcv_ext() == 'compiled', reason='mmcv has its own kernels here')
@pytest.mark.skipif(bool(unavailable()), reason='this torch makes no program with open sizes')
def test_a_kernel_cannot_be_exported() -> None:
    from mmcv.ops import roi_align

    class Head(torch.nn.Module):
        def forward(self, feature: Tensor, rois: Tensor) -> Tensor:
            return roi_align(feature, rois, (2, 2))

    with pytest.raises(Exception, match='was called while the model was lowered'):
        torch.export.export(Head(), (values((1, 2, 8, 8), 0), torch.tensor([[0, 1.0, 1, 6, 6]])), strict=False)
