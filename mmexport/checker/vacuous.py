"""Detect comparisons that a wrong answer would also pass.

The rule itself is asked, over all samples: would a constant have passed everywhere, or the answer to another sample of the same shape?
How little the expected outputs vary beyond that is a sentence in the report and no verdict.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from .compare import compare
from .comparison import Comparison
from .counting import share
from .reduced import FULL
from .samples import Sample

CHANGED_SHARE = 0.95
CHANGED_BY = 100
LABELS = 3
LABEL_SHARE = 0.01
CHANGED_PIXELS = 0.10
# Constants that are tried for a map of labels: those that cover most of the expected maps.
MAX_CONSTANTS = 16
DECISIONS = ('labels', 'panoptic', 'instance')


def vacuous_outputs(specs: Sequence[Mapping[str, Any]], samples: Sequence[Sample], floors: Mapping[str, float], tolerance: float,
                    precision: str = FULL) -> dict[str, str]:
    """Return by output why the comparison of all samples could not fail; {} if it could.

    Args:
        specs: the manifest's outputs.
        floors: as for `compare`.
    """
    def rows(sample: Sample, answer: Mapping[str, Tensor]) -> list[Comparison]:
        return compare(specs, sample.expected, [answer[str(spec['name'])] for spec in specs], sample.evidence, sample=sample.name,
                       stage='vacuous', floors=floors, tolerance=tolerance, precision=precision)

    names = {('instances' if spec['kind'] == 'instance' else str(spec['name'])): str(spec['kind']) for spec in specs}
    others = [(sample, other) for sample, other in permutations(samples, 2) if sample.image.shape == other.image.shape]
    if not others:
        return {'(all)': 'no two samples have the same shape, so nothing shows that the outputs depend on the input'}
    told_apart = _failing(names, ((rows, sample, other.expected) for sample, other in others))
    found = {name: _words(names[name], "another input's answer") for name in names if name not in told_apart}
    for constant in _constants(specs, samples):
        failing = _failing(set(names) - set(found), ((rows, sample, constant(sample)) for sample in samples))
        found.update({name: _words(kind, 'a constant') for name, kind in names.items() if name not in failing and name not in found})
    return found


def _words(kind: str, what: str) -> str:
    if kind in DECISIONS:
        return (f'{what} would pass on every input tried: your model decides (almost) one class on them. Give a picture of what it was '
                'trained on by --image, or compare logits by --outputs raw')
    return (f'{what} would pass on every input tried. Use trained weights, or a seeded checkpoint made for this: '
            'tools/make_checkpoint.py CONFIG OUT')


def _failing(names: Any, trials: Iterator[tuple[Callable[..., list[Comparison]], Sample, Mapping[str, Tensor]]]) -> set[str]:
    """Return the names of the outputs for which one of `trials` fails; stop once all `names` have."""
    failing: set[str] = set()
    for rows, sample, answer in trials:
        for row in rows(sample, answer):
            if not row.passed:
                failing.add(row.output)
        if failing.issuperset(names):
            break
    return failing


def _constants(specs: Sequence[Mapping[str, Any]], samples: Sequence[Sample]) -> Iterator[Callable[[Sample], dict[str, Tensor]]]:
    """Yield functions that answer a sample with constants of the right shapes: the middle of the values, and one label after the other."""
    continuous = {str(spec['name']): _middle([sample.expected[str(spec['name'])] for sample in samples], str(spec['kind']))
                  for spec in specs if spec['kind'] not in DECISIONS}
    maps = [str(spec['name']) for spec in specs if spec['kind'] in ('labels', 'panoptic')]
    flat = torch.cat([sample.expected[name].flatten() for sample in samples for name in maps]) if maps else torch.zeros(1)
    labels, counts = flat.unique(return_counts=True)
    for label in labels[counts.argsort(descending=True)][:MAX_CONSTANTS].tolist():
        def answer(sample: Sample, label: int = label) -> dict[str, Tensor]:
            answers = {}
            for spec in specs:
                name, wanted = str(spec['name']), sample.expected[str(spec['name'])]
                fill = continuous[name] if name in continuous else label if name in maps else 0
                answers[name] = fill.expand_as(wanted) if isinstance(fill, Tensor) else torch.full_like(wanted, fill)
            return answers
        yield answer


def _middle(values: Sequence[Tensor], kind: str) -> Tensor:
    """Return the mid-range of `values`, by channel of pixel maps: the constant nearest to all of them."""
    if kind == 'pixels':
        low = torch.stack([value.amin(dim=(0, 2, 3)) for value in values]).amin(0)
        high = torch.stack([value.amax(dim=(0, 2, 3)) for value in values]).amax(0)
        return ((low + high) / 2)[None, :, None, None]
    return (torch.stack([value.min() for value in values]).min() + torch.stack([value.max() for value in values]).max()) / 2


def little_change(specs: Sequence[Mapping[str, Any]], one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float,
                  num_classes: int, margin: float = 1.0) -> dict[str, str]:
    """Return by output how the expected outputs of two inputs are too much alike; {} if they vary well.

    Args:
        margin: by what factor more change is asked for.
    """
    found = {}
    for spec in specs:
        name, kind = str(spec['name']), str(spec['kind'])
        if kind in ('labels', 'panoptic'):
            reason = _same_map(one[name], other[name], LABELS if kind == 'panoptic' else min(LABELS, max(num_classes, 2)), margin)
        elif kind == 'instance':
            reason = _same_rows(one, other, margin) if name == 'masks' else None
        else:
            reason = _same_values(one[name], other[name], kind, margin * tolerance)
        if reason:
            found[name] = reason
    return found


def _same_values(one: Tensor, other: Tensor, kind: str, tolerance: float) -> str | None:
    scale = max(float(one.abs().max()), float(other.abs().max()), 1e-12)
    change = (one.double() - other.double())[:1]
    if kind == 'map':
        change = change[:, None]
    rms = change.flatten(2).pow(2).mean(dim=2).sqrt().flatten() / scale
    moved = share(rms >= CHANGED_BY * tolerance)
    if moved >= CHANGED_SHARE:
        return None
    unit = 'queries' if kind == 'queries' else 'channels'
    return f'only {moved:.0%} of the {unit} change by {CHANGED_BY} tolerances between two inputs ({CHANGED_SHARE:.0%} must)'


def _same_map(one: Tensor, other: Tensor, labels: int, margin: float) -> str | None:
    for image in (one[0], other[0]):
        counts = image.unique(return_counts=True)[1]
        large = int((counts > margin * LABEL_SHARE * image.numel()).sum())
        if large < labels:
            return f'only {large} labels cover over {LABEL_SHARE:.0%} of the pixels ({labels} must)'
    changed = share(one[0] != other[0])
    if changed < margin * CHANGED_PIXELS:
        return f'only {changed:.1%} of the pixels change between two inputs ({CHANGED_PIXELS:.0%} must)'
    return None


def _same_rows(one: Mapping[str, Tensor], other: Mapping[str, Tensor], margin: float) -> str | None:
    count = min(int(one['num'][0]), int(other['num'][0]))
    if count < LABELS:
        return f'only {count} instances ({LABELS} must be found)'
    first, second = one['masks'][0, :count], other['masks'][0, :count]
    union = (first | second).sum()
    changed = float((first ^ second).sum()) / max(float(union), 1.0)
    if not bool(torch.gt(union, 0)) or changed < margin * CHANGED_PIXELS:
        return f'only {changed:.1%} of the mask pixels change between two inputs ({CHANGED_PIXELS:.0%} must)'
    return None
