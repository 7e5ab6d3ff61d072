"""Check the comparison of logits and probabilities."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from mmexport.checker.kinds import kind_of
from mmexport.checker.rules.continuous import compare_continuous, competing_scale
from tests.checker.made import LABELS, LOGITS, judge, vacuous_of


def test_only_exempt_pixels_may_differ() -> None:
    expected = torch.randn(1, 2, 6, 6)
    jump = expected.clone()
    jump[0, :, 2, 3] += 1
    exempt = torch.zeros(1, 6, 6, dtype=torch.bool)
    exempt[0, 2, 3] = True
    assert judge(LOGITS, expected, jump, evidence={'exempt': exempt}).passed
    exempt[0, 2, 3], exempt[0, 3, 3] = False, True
    assert not judge(LOGITS, expected, jump, evidence={'exempt': exempt}).passed


def test_scale_ignores_masked_border_pixels() -> None:
    """Of its pixels every class is masked, so that none is far behind the best of its pixel."""
    expected = torch.randn(1, 4, 16, 16)
    expected[:, :, :2] = -1e4
    wrong = expected.clone()
    wrong[:, 0, 8:] += 0.3
    assert judge(LOGITS, expected, expected).passed
    assert 'of scale' in str(judge(LOGITS, expected, wrong).reason)


def test_scale_ignores_masked_class() -> None:
    expected = torch.randn(1, 4, 6, 6)
    for mask in (-1e9, -100.0):
        masked = expected.clone()
        masked[:, 3] = mask
        assert judge(LOGITS, masked, masked).passed
        wrong = masked.clone()
        wrong[:, 0] += 0.01
        assert 'of scale' in str(judge(LOGITS, masked, wrong).reason)
        other = torch.randn(1, 4, 6, 6)
        other[:, 3] = mask
        assert vacuous_of(LOGITS, masked, other) == {}


def test_too_many_exempt_pixels_fail() -> None:
    expected = torch.randn(1, 2, 6, 6)
    row = judge(LOGITS, expected, expected * 0, evidence={'exempt': torch.ones(1, 6, 6, dtype=torch.bool)})
    assert 'too few are left' in str(row.reason)
    labels = torch.randint(0, 5, (1, 8, 8), dtype=torch.int32)
    assert 'too few are left' in str(judge(LABELS, labels, labels + 1, evidence={'margin': torch.zeros(1, 8, 8)}).reason)


def found(kind: str, wanted: torch.Tensor, got: torch.Tensor, tolerance: float = 1e-4, clear: float | None = None,
          **evidence: torch.Tensor) -> dict[str, Any]:
    return compare_continuous(kind_of(kind).UNITS, 'out', {'out': wanted}, {'out': got}, evidence, tolerance, clear)


def test_pixel_errors_are_relative_to_scale() -> None:
    expected_value = torch.zeros(2, 2, 2, 5)
    expected_value[:, 0], expected_value[:, 1] = 4.0, -2.0
    got = expected_value.clone()
    got[0, 0, 0, 0] += 0.04
    got[1, 1, 0, :3] -= 0.02
    result = found('pixels', expected_value, got)
    assert result['max_abs'] == pytest.approx(0.04, rel=1e-5)
    assert result['max_rel'] == pytest.approx(0.01, rel=1e-5)
    assert result['beyond'] == pytest.approx(4 / 20)
    assert result['median'] == 0
    # Of (4, -2) twenty times, with 0.04 more once and 0.02 less three times.
    dot, norms = 400 + 0.16 + 0.12, 400 * (400 + 0.32 + 0.24 + 0.04 ** 2 + 3 * 0.02 ** 2)
    assert result['cosine'] == pytest.approx(dot / norms ** 0.5, abs=1e-9)
    assert result['metrics'] == {'pixel_agreement': 1.0}


def test_median_is_taken_of_the_worst_image() -> None:
    expected_value = torch.ones(2, 1, 4, 4)
    got = expected_value.clone()
    got[1] += 0.5
    assert found('pixels', expected_value, got)['median'] == pytest.approx(0.5)


def test_error_equal_to_tolerance_is_within() -> None:
    expected_value = torch.ones(1, 4, 4)
    assert found('map', expected_value, expected_value + 0.25, tolerance=0.25)['beyond'] == 0
    assert found('map', expected_value, expected_value + 0.25, tolerance=0.2499)['beyond'] == 1


def test_map_scale_is_its_largest_absolute_value() -> None:
    expected_value = torch.tensor([[[1.0, -8.0], [2.0, 4.0]]])
    got = expected_value + torch.tensor([[[0.0, 0.0], [0.8, 0.0]]])
    result = found('map', expected_value, got)
    assert (result['max_rel'], result['beyond']) == (pytest.approx(0.1), 0.25)
    assert result['metrics'] == {}


def test_queries_are_units_of_comparison() -> None:
    expected_value = torch.zeros(1, 4, 3)
    expected_value[..., 0], expected_value[..., 1] = 5.0, 1.0
    got = expected_value.clone()
    got[0, 1, 1] = 6.0
    result = found('queries', expected_value, got, clear=0.1)
    assert (result['beyond'], result['max_rel']) == (0.25, 1.0)
    assert result['metrics'] == {'class_agreement': 0.75, 'clear_share': 1.0, 'clear_agreement': 0.75}


def test_query_masks_report_iou() -> None:
    expected_value = torch.full((1, 4, 2, 4), -1.0)
    expected_value[0, 0] = 1.0
    expected_value[0, 1, 0] = 1.0
    got = expected_value.clone()
    got[0, 1, 0, :2] = -1.0
    got[0, 2, 0, 0] = 1.0
    # 1, one half, 0 of something, and 1 of nothing.
    result = found('queries', expected_value, got, clear=0.1)
    assert result['metrics'] == {'mask_iou': pytest.approx(2.5 / 4)}
    assert result['beyond'] == 0.5


def test_masked_element_is_scaled_by_its_own_value() -> None:
    expected_value = torch.tensor([2.0, 1.0, -1e9]).view(1, 3, 1, 1).expand(1, 3, 4, 4).clone()
    got = expected_value.clone()
    got[0, 2] *= 1.01
    assert found('pixels', expected_value, got)['max_rel'] == pytest.approx(0.01, rel=1e-4)
    got = expected_value.clone()
    got[0, 1] += 0.2
    assert found('pixels', expected_value, got)['max_rel'] == pytest.approx(0.1, rel=1e-4)


def test_competing_scale_reaches_88_below_best() -> None:
    for behind, scale in ((88.0, 87.0), (88.5, 1.0)):
        assert competing_scale(torch.tensor([1.0, 1.0 - behind]).view(1, 2, 1, 1), 1) == scale
    # Of a pixel far below the others, no class competes.
    low = torch.tensor([[1.0, 0.5], [1.0, 0.5], [-200.0, -201.0]]).T.reshape(1, 2, 3, 1)
    assert competing_scale(low, 1) == 1.0
    assert competing_scale(torch.zeros(1, 0, 4, 4), 1) == competing_scale(torch.zeros(1, 2, 4, 4), 1) == 1e-12


def test_empty_output_fails() -> None:
    assert found('pixels', torch.zeros(0, 2, 4, 4), torch.zeros(0, 2, 4, 4)) == {'problem': 'an empty output proves nothing'}


def test_zero_output_has_a_positive_scale() -> None:
    zeros = torch.zeros(1, 2, 4, 4)
    assert found('pixels', zeros, zeros)['max_rel'] == 0
    assert found('map', zeros[0], zeros[0] + 1e-3)['max_rel'] > 1


@pytest.mark.parametrize(('kind', 'shape'), [('pixels', (2, 3, 4, 4)), ('map', (2, 4, 4))])
def test_exempt_pixels_are_left_out_of_all_metrics(kind: str, shape: tuple[int, ...]) -> None:
    expected_value = torch.ones(shape)
    got = expected_value.clone()
    got[..., 0, 0] += 5
    got[..., 1, 1] += 0.5
    exempt = torch.zeros(2, 4, 4)
    exempt[:, 0, 0] = 1
    exempt[0, 0] = 1
    result = found(kind, expected_value, got, exempt=exempt)
    assert (result['max_abs'], result['max_rel']) == (pytest.approx(0.5), pytest.approx(0.5))
    assert result['beyond'] == pytest.approx(2 / 27)
    assert result['metrics']['exempt_share'] == pytest.approx(5 / 32)
    # Where one picture is exempt as a whole, the other is judged.
    alone = torch.zeros(4, 4, 4)
    alone[0] = 1
    four = torch.ones(4, *shape[1:])
    assert found(kind, four, four + 0.25, exempt=alone)['median'] == pytest.approx(0.25)


def test_at_most_a_quarter_may_be_exempt() -> None:
    expected_value, exempt = torch.ones(1, 2, 4, 4), torch.zeros(1, 4, 4)
    exempt[0, 0] = 1
    assert 'problem' not in found('pixels', expected_value, expected_value, exempt=exempt)
    exempt[0, 1, 0] = 1
    problem = "31% of the pixels are at the edge of the model's own choice: too few are left to compare"
    assert found('pixels', expected_value, expected_value, exempt=exempt) == dict(problem=problem, metrics={'exempt_share': 5 / 16})


def test_exempt_does_not_apply_to_queries() -> None:
    expected_value = torch.ones(1, 2, 4, 4)
    assert 'exempt_share' not in found('queries', expected_value, expected_value, exempt=torch.ones(1, 4, 4))['metrics']


def test_clear_decisions_need_a_margin() -> None:
    expected_value = torch.zeros(1, 2, 1, 4)
    expected_value[0, 0] = torch.tensor([1.0, 0.75, 0.5, 0.25])
    got = expected_value.clone()
    got[0, 1, 0, 0] = 2.0
    result = found('pixels', expected_value, got, clear=0.5)
    # Ahead by more than half the scale: two of four, one of which changes.
    assert (result['metrics']['clear_share'], result['metrics']['clear_agreement']) == (0.5, 0.5)
    assert result['metrics']['pixel_agreement'] == 0.75
    assert found('pixels', expected_value * 0 + 1, got, clear=0.5)['metrics']['clear_agreement'] == 0.0
    for kind, shape in (('map', (1, 4, 4)), ('pixels', (1, 1, 4, 4)), ('queries', (1, 3, 1))):
        assert 'clear_share' not in found(kind, torch.ones(shape), torch.ones(shape), clear=0.5)['metrics']


@pytest.mark.parametrize(('kind', 'shape'), [('pixels', (1, 3, 4, 4)), ('queries', (1, 4, 5))])
def test_scale_compares_the_classes_of_one_unit(kind: str, shape: tuple[int, ...]) -> None:
    """Of most units all classes are low, so they are no masked ones: their values set the scale."""
    expected_value = torch.full(shape, -120.0)
    if kind == 'pixels':
        expected_value[:, :, 0] = 0.5
    else:
        expected_value[:, 0] = 0.5
    assert found(kind, expected_value, expected_value + 0.012)['max_rel'] == pytest.approx(1e-4, rel=1e-3)


def test_scale_of_queries_ignores_a_masked_class() -> None:
    expected_value = torch.full((1, 6, 4), 2.0)
    expected_value[:, :, 3] = -1e9
    wrong = expected_value.clone()
    wrong[:, :, 0] += 0.02
    assert found('queries', expected_value, wrong)['max_rel'] == pytest.approx(0.01, rel=1e-3)
    # Masks have no classes: their largest value is the scale.
    masks = expected_value[..., None].expand(-1, -1, -1, 2)
    assert found('queries', masks, masks + 1e6)['max_rel'] == pytest.approx(1e-3, rel=1e-3)


def test_competing_scale_limits() -> None:
    assert competing_scale(torch.tensor([[[[0.0, 0.0, -88.0]]]]), 1) == 88.0
    assert competing_scale(torch.tensor([[[[0.0, 0.0, -88.1]]]]), 1) == pytest.approx(0.0, abs=1e-9)
    assert competing_scale(torch.tensor([[0.1, 0.1, -1e9]]), 1) == pytest.approx(0.1)


def test_agreement_is_of_each_unit() -> None:
    generator = torch.Generator().manual_seed(0)
    pixels, queries = torch.randn(2, 5, 4, 4, generator=generator), torch.randn(2, 7, 5, generator=generator)
    assert found('pixels', pixels, pixels)['metrics'] == {'pixel_agreement': 1.0}
    assert found('queries', queries, queries)['metrics'] == {'class_agreement': 1.0}
    assert found('pixels', pixels[:, :1], pixels[:, :1])['metrics'] == {}


def test_iou_of_empty_and_single_pixel_masks() -> None:
    masks = torch.zeros(1, 3, 4, 4)
    masks[0, 1] = -1.0
    masks[0, 2] = -1.0
    masks[0, 2, 0, 0] = 1.0
    assert found('queries', masks, masks)['metrics'] == {'mask_iou': 1.0}


def test_cosine_of_tiny_outputs() -> None:
    tiny = torch.full((1, 3, 4, 4), 1e-10)
    assert found('pixels', tiny, tiny)['cosine'] == pytest.approx(1.0)
