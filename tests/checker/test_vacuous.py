"""Check that a comparison that cannot fail is told from one that can."""
from __future__ import annotations

import torch

from mmexport.checker.samples import Sample
from mmexport.checker.vacuous import little_change, vacuous_outputs
from tests.checker.made import INSTANCE, LABELS, LOGITS, PANOPTIC, instances, vacuous_of

STILL = 'only 0% of the channels change by 100 tolerances between two inputs (at least 95% required)'


def test_little_change_texts() -> None:
    one, other = torch.randn(1, 20, 6, 6), torch.randn(1, 20, 6, 6)
    assert not little_change(LOGITS, {'logits': one}, {'logits': other}, 1e-4, 20)
    frozen = other.clone()
    frozen[:, :2] = one[:, :2]
    assert '90% of the channels' in little_change(LOGITS, {'logits': one}, {'logits': frozen}, 1e-4, 20)['logits']
    two = torch.randint(0, 2, (1, 20, 20), dtype=torch.int32)
    assert 'only 2 labels' in little_change(LABELS, {'labels': two}, {'labels': 1 - two}, 1e-4, 20)['labels']
    many = torch.arange(400, dtype=torch.int32).view(1, 20, 20) % 5
    assert 'only 0.0% of the pixels' in little_change(LABELS, {'labels': many}, {'labels': many}, 1e-4, 20)['labels']
    assert not little_change(LABELS, {'labels': many}, {'labels': (many + 1) % 5}, 1e-4, 20)


def test_vacuous_if_a_wrong_answer_would_pass() -> None:
    blank = torch.zeros(1, 20, 20, dtype=torch.int32)
    rare = blank.clone()
    rare[0, 3:5, 3:5] = 1
    # One object in one picture of three: a constant fails there, and so does another picture's answer.
    assert vacuous_of(LABELS, blank, blank, rare) == {}
    assert 'one class' in vacuous_of(LABELS, blank, blank, blank)['labels']
    assert 'a constant' not in vacuous_of(LABELS, rare, rare)['labels']
    assert "another input's answer" in vacuous_of(LABELS, rare, rare)['labels']
    # As much as noise itself moves is no difference that the rule would see.
    assert vacuous_of(LABELS, blank, blank, rare, labels=0.02)
    flat = torch.full((1, 4, 6, 6), 0.3)
    assert 'a constant' in vacuous_of(LOGITS, flat, flat + 1e-6)['logits'] or "another" in vacuous_of(LOGITS, flat, flat + 1e-6)['logits']
    assert vacuous_of(LOGITS, torch.randn(1, 4, 6, 6), torch.randn(1, 4, 6, 6)) == {}


def test_vacuous_needs_two_inputs_of_equal_shape() -> None:
    assert vacuous_of(LABELS, torch.zeros(1, 6, 6, dtype=torch.int32), torch.ones(1, 8, 8, dtype=torch.int32)) == {
        '(all)': 'no two samples have the same shape, so nothing shows that the outputs depend on the input'}


def test_vacuous_tries_the_mid_range_constant() -> None:
    """Two maps that the rule cannot tell from the mean of both, but from each other."""
    one = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0)) * 1e-5 + torch.tensor([3.0, -1.0]).view(1, 2, 1, 1)
    other = one + 4e-4
    assert vacuous_of(LOGITS, one, other)['logits'].startswith('a constant would pass on every input tried. Use trained weights')
    assert vacuous_of(LOGITS, one, one)['logits'].startswith("another input's answer would pass on every input tried. Use trained")
    assert vacuous_of(LOGITS, one, one + 9e-4) == {}
    scores = [dict(name='scores', dtype='float32', kind='map')]
    flat = torch.full((1, 6, 6), 2.0)
    assert vacuous_of(scores, flat, flat + 3e-4)['scores'].startswith('a constant would pass')
    assert vacuous_of(scores, flat, flat + 9e-4) == {}


def test_vacuous_judges_each_output() -> None:
    specs = [*LABELS, *LOGITS]
    logits = [torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    blank = torch.zeros(1, 6, 6, dtype=torch.int32)
    samples = [Sample(f'{number}', torch.zeros(1, 3, 6, 6), dict(labels=blank, logits=each)) for number, each in enumerate(logits)]
    actual = vacuous_outputs(specs, samples, {}, 1e-4)
    assert list(actual) == ['labels']
    assert actual['labels'] == ("another input's answer would pass on every input tried: your model decides (almost) one class on them. "
                               'Give a picture of what it was trained on by --image, or compare logits by --outputs raw')


def test_vacuous_tries_every_label() -> None:
    """Eager is unsure wherever the others stand: the constant of the third label passes."""
    expected = torch.zeros(1, 1, 100, dtype=torch.int32)
    expected[0, 0, :30], expected[0, 0, 30:52] = 1, 2
    other = expected.flip(-1)
    margin = torch.where(expected == 2, 1.0, 0.0)
    margin[0, 0, :28] = 1.0

    def sample(name: str, labels: torch.Tensor, sure: torch.Tensor) -> Sample:
        return Sample(name, torch.zeros(1, 3, 1, 100), dict(labels=labels), dict(margin=sure))

    samples = [sample('a', expected, margin), sample('b', other, margin.flip(-1))]
    assert vacuous_outputs(LABELS, samples, {}, 1e-4) == {}
    excused = vacuous_outputs(LABELS, samples, {'labels': 0.29}, 1e-4)
    assert 'labels' in excused


def test_vacuous_instances() -> None:
    def picture(top: int) -> dict[str, torch.Tensor]:
        masks = torch.zeros(1, 3, 8, 8, dtype=torch.bool)
        masks[0, 0, top:top + 2], masks[0, 1, top:top + 2, :3] = True, True
        boxes = torch.tensor([[[0, top, 8, top + 2], [0, top, 3, top + 2], [0, 0, 0, 0]]]).float()
        scores, labels = torch.tensor([[0.9, 0.8, 0.0]]), torch.tensor([[1, 1, 0]])
        return dict(boxes=boxes, scores=scores, labels=labels, masks=masks, num=torch.tensor([2]))

    def samples(*pictures: dict[str, torch.Tensor]) -> list[Sample]:
        return [Sample(f'{number}', torch.zeros(1, 3, 8, 8), each) for number, each in enumerate(pictures)]

    assert vacuous_outputs(INSTANCE, samples(picture(0), picture(4)), {}, 1e-4) == {}
    assert 'one class' in vacuous_outputs(INSTANCE, samples(picture(0), picture(0)), {}, 1e-4)['instances']


def change(kind: str, one: torch.Tensor, other: torch.Tensor, classes: int = 20, margin: float = 1.0) -> str | None:
    return little_change([dict(name='o', kind=kind)], {'o': one}, {'o': other}, 1e-4, classes, margin).get('o')


def test_little_change_of_continuous_outputs() -> None:
    one = torch.zeros(1, 20, 4, 4)
    one[:, :, 0, 0] = 2.0
    for by, words in ((0.0204, None), (0.0201, STILL)):
        assert change('pixels', one, one + by) == words
    assert change('pixels', one, one + 0.05, margin=3.0) is not None
    some = one.clone()
    some[:, :19] += 0.03
    assert change('pixels', one, some) is None
    some[:, 18] = one[:, 18]
    assert change('queries', one, some) == 'only 90% of the queries change by 100 tolerances between two inputs (at least 95% required)'
    assert change('map', one[:, 0], one[:, 0] + 0.03) is None
    assert change('map', one[:, 0], one[:, 0]) == STILL
    # A batch is judged by its first picture.
    assert change('pixels', one.expand(2, -1, -1, -1), torch.cat([one, one + 1])) is not None


def test_little_change_of_label_maps() -> None:
    one = torch.zeros(1, 10, 20, dtype=torch.int32)
    one[0, 5:], one[0, 0, :3] = 1, 2
    other = one.clone()
    other[0, 1] = 1
    assert change('labels', one, other) is None
    assert change('labels', one, other, margin=2.0) == 'only 2 labels cover over 1% of the pixels (at least 3 required)'
    one[0, 0, 2] = other[0, 0, 2] = 0
    assert change('labels', one, other) == 'only 2 labels cover over 1% of the pixels (at least 3 required)'
    assert change('labels', one, other, classes=2) is None
    assert change('labels', one, other, classes=1) is None
    assert change('panoptic', one, other, classes=2) == 'only 2 labels cover over 1% of the pixels (at least 3 required)'
    other[0, 1, 0] = 0
    assert change('labels', one, other, classes=2) == 'only 9.5% of the pixels change between two inputs (at least 10% required)'
    assert change('labels', one * 0 + 1, other, classes=2) == 'only 1 labels cover over 1% of the pixels (at least 2 required)'


def test_little_change_of_instances() -> None:
    one, other = instances(), instances()
    specs = INSTANCE

    def words() -> dict[str, str]:
        return little_change(specs, one, other, 1e-4, 20)

    assert words() == {'masks': 'only 0.0% of the mask pixels change between two inputs (at least 10% required)'}
    other['masks'][0, 0, 7, :6] = True
    assert words() == {}
    other['masks'][0, 0, 7, 4:6] = False
    assert words() == {'masks': 'only 7.7% of the mask pixels change between two inputs (at least 10% required)'}
    other['num'][0] = 2
    assert words() == {'masks': 'only 2 instances (at least 3 required)'}
    one['num'][0], other['num'][0] = 3, 3
    one['masks'][:], other['masks'][:] = False, False
    assert words() == {'masks': 'only 0.0% of the mask pixels change between two inputs (at least 10% required)'}


def test_little_change_of_few_mask_pixels() -> None:
    one, other = instances(), instances()
    one['num'][0], other['num'][0] = 3, 3
    one['masks'][:], other['masks'][:] = False, False
    one['masks'][0, 0, 0, 0] = True
    assert little_change(INSTANCE, one, other, 1e-4, 20, margin=6.0) == {}
    one['masks'][0, 0, 0], other['masks'][0, 0, 0] = True, True
    one['masks'][0, 1, 0, :2], other['masks'][0, 1, 0, :1] = True, True
    # One of ten pixels is as much as must change.
    assert little_change(INSTANCE, one, other, 1e-4, 20) == {}


def test_words_for_a_constant_name_the_tool() -> None:
    flat = torch.full((1, 4, 6, 6), 0.3)
    assert vacuous_of(LOGITS, flat, flat + 1e-9)['logits'] == (
        "another input's answer would pass on every input tried. Use trained weights, or a seeded checkpoint made for this: "
        'mmexport checkpoint CONFIG OUT')


def test_little_change_scales_by_the_larger_output() -> None:
    one, other = torch.zeros(1, 20, 4, 4), torch.full((1, 20, 4, 4), 0.05)
    assert change('pixels', one, other) is None
    one[:, 0] = 1000.0
    assert change('pixels', one, other) is not None
    assert change('pixels', other, one) is not None
    # Outputs far below one have a scale of their own.
    small = torch.full((1, 20, 4, 4), 1e-4)
    assert change('pixels', small, small * 1.05) is None


def test_little_change_takes_the_mean_over_all_pixels() -> None:
    one = torch.zeros(1, 20, 4, 4)
    column, row = one.clone(), one.clone()
    column[..., 0], row[..., 0, :] = 1.0, 1.0
    for other in (column, row):
        assert change('pixels', one, other) is None
        assert change('map', one[:, 0], other[:, 0]) is None
    batch = torch.cat([one, one])
    assert change('pixels', batch, torch.cat([column, one])) is None


def test_little_change_of_the_limit_itself_is_enough() -> None:
    one = torch.ones(1, 20, 4, 4)
    limit = 100 * 2.0 ** -10
    specs = [dict(name='o', kind='pixels')]
    assert little_change(specs, {'o': one}, {'o': one - limit}, 2.0 ** -10, 20) == {}
    assert little_change(specs, {'o': one}, {'o': one - limit + 1e-6}, 2.0 ** -10, 20) != {}


def test_vacuous_uses_tolerance_and_precision() -> None:
    one, other = torch.zeros(1, 4, 6, 6), torch.full((1, 4, 6, 6), 0.004)
    one[:, 0] = other[:, 0] = 1.0
    samples = [Sample(name, torch.zeros(1, 3, 6, 6), {'logits': value}) for name, value in (('a', one), ('b', other))]
    assert vacuous_outputs(LOGITS, samples, {}, 1e-4) == {}
    assert 'would pass' in vacuous_outputs(LOGITS, samples, {}, 1e-2)['logits']
    assert 'would pass' in vacuous_outputs(LOGITS, samples, {}, 1e-4, 'float16')['logits']


def test_vacuous_tries_the_most_frequent_labels() -> None:
    one = torch.full((1, 10, 10), 30, dtype=torch.int32)
    one[0, :4] = torch.arange(40, dtype=torch.int32).view(4, 10) % 20
    other = one.flip(-1)
    for specs in (LABELS, PANOPTIC):
        name = specs[0]['name']
        samples = [Sample(key, torch.zeros(1, 3, 4, 4), {name: value}) for key, value in (('a', one), ('b', other))]
        # Another input's answer differs in fewer pixels than a constant.
        assert "another input's answer" in vacuous_outputs(specs, samples, {name: 0.5}, 1e-4)[name]
        samples[1] = Sample('b', torch.zeros(1, 3, 4, 4), {name: one.flip(1)})
        words = vacuous_outputs(specs, samples, {name: 0.5}, 1e-4)[name]
        assert words.startswith('a constant would pass on every input tried: your model decides (almost) one class on them')
