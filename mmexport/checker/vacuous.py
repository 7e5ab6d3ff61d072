"""Detect outputs on whose samples a wrong answer would also pass; `judging` reports them.

The rule of comparison is applied to all samples: would a constant have passed everywhere, or what another sample of the same shape gives?
How little the expected outputs vary beyond that is a sentence in the report and no verdict.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from .compare import compare, own_floors
from .comparison import ALL, Comparison
from .kinds import kind_of
from .reduced import FULL
from .samples import Sample, same_shapes

# Constants that are tried for a map of labels: those that cover most of the expected maps.
MAX_CONSTANTS = 16


def vacuous_outputs(specs: Sequence[Mapping[str, Any]], samples: Sequence[Sample], floors: Mapping[str, float], tolerance: float,
                    precision: str = FULL) -> dict[str, str]:
    """Return by output why the comparison of all samples could not fail; {} if it could.

    Args:
        specs: the manifest's outputs.
        floors: as for `compare`, of all samples.
    """
    def rows(sample: Sample, answer: Mapping[str, Tensor]) -> list[Comparison]:
        return compare(specs, sample.expected, [answer[str(spec['name'])] for spec in specs], sample.evidence, sample=sample.name,
                       stage='vacuous', floors={**floors, **own_floors(sample.floors)}, tolerance=tolerance, precision=precision)

    kinds = {str(spec['name']): kind_of(str(spec['kind'])) for spec in specs}
    names = {getattr(kind, 'ROW', None) or name: kind for name, kind in kinds.items()}
    others = [(sample, other) for sample, other in permutations(samples, 2) if same_shapes(sample, other)]
    if not others:
        return {ALL: 'no two samples have the same shape, so nothing shows that the outputs depend on the input'}
    distinguished = _failing(names, ((rows, sample, other.expected) for sample, other in others))
    reasons = {name: _words(names[name], "another input's answer") for name in names if name not in distinguished}
    for constant in _constants(specs, samples):
        failing = _failing(set(names) - set(reasons), ((rows, sample, constant(sample)) for sample in samples))
        reasons.update({name: _words(kind, 'a constant') for name, kind in names.items() if name not in failing and name not in reasons})
    return reasons


def _words(kind: Any, what: str) -> str:
    if not kind.CONTINUOUS:
        return (f'{what} would pass on every input tried: your model decides (almost) one class on them. Give a picture of what it was '
                'trained on by --image, or compare logits by --outputs raw')
    return (f'{what} would pass on every input tried. Use trained weights, or a seeded checkpoint made for this: '
            'mmexport checkpoint CONFIG OUT')


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
    kinds = {str(spec['name']): kind_of(str(spec['kind'])) for spec in specs}
    constants = {name: kind.constant([sample.expected[name] for sample in samples]) for name, kind in kinds.items()
                 if hasattr(kind, 'constant')}
    maps = [name for name, kind in kinds.items() if getattr(kind, 'MAP', False)]
    flat = torch.cat([sample.expected[name].flatten() for sample in samples for name in maps]) if maps else torch.zeros(1)
    labels, counts = flat.unique(return_counts=True)
    for label in labels[counts.argsort(descending=True)][:MAX_CONSTANTS].tolist():
        def answer(sample: Sample, label: int = label) -> dict[str, Tensor]:
            answers = {}
            for name in kinds:
                expected = sample.expected[name]
                fill = constants[name] if name in constants else label if name in maps else 0
                answers[name] = fill.expand_as(expected) if isinstance(fill, Tensor) else torch.full_like(expected, fill)
            return answers
        yield answer


def little_change(specs: Sequence[Mapping[str, Any]], one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float,
                  num_classes: int, margin: float = 1.0) -> dict[str, str]:
    """Return by output how the expected outputs of two inputs are too much alike; {} if they vary well.

    Args:
        margin: by what factor more change is asked for.
    """
    reasons = {str(spec['name']): kind_of(str(spec['kind'])).little_change(str(spec['name']), one, other, num_classes, tolerance, margin)
               for spec in specs}
    return {name: reason for name, reason in reasons.items() if reason}
