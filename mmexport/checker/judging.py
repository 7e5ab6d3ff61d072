"""Report what a set of samples can show: apply the rule of `vacuous` to each output, and count the decided classes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from torch import Tensor

from .kinds import kind_of
from .reduced import FULL
from .samples import Sample, same_shapes
from .vacuous import little_change, vacuous_outputs


def judge_samples(manifest: dict[str, Any], samples: Sequence[Sample], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the expected outputs: would a wrong answer pass, how little do they vary, which classes win."""
    specs, tolerance = manifest['outputs'], extra['tolerance']
    pairs = [(one, other) for one, other in combinations(samples, 2) if same_shapes(one, other)]
    little = little_change(specs, pairs[0][0].expected, pairs[0][1].expected, tolerance, int(manifest['num_classes'])) if pairs else {}
    return dict(vacuous=vacuous_outputs(specs, samples, extra['floors'], tolerance, manifest.get('precision', FULL)),
                little_change=little, classes=_classes(samples, manifest))


def _classes(samples: Sequence[Sample], manifest: dict[str, Any]) -> dict[str, list[int]] | None:
    """Return the classes that win somewhere in the expected decisions, and those that never do.

    A fault in the latter shows in the raw outputs only.
    """
    winning = [labels for sample in samples for spec in manifest['outputs'] if spec['name'] in sample.expected
               if (labels := _winning(spec, sample)) is not None]
    if not winning:
        return None
    count = max(int(manifest['num_classes']), 2)
    present = {int(label) for labels in winning for label in labels.unique()}
    return dict(seen=sorted(label for label in present if label < count), never=sorted(set(range(count)) - present))


def _winning(spec: Mapping[str, Any], sample: Sample) -> Tensor | None:
    """Return the labels that win in one output of `sample`. None means that its kind has no labels."""
    kind = kind_of(str(spec['kind']))
    labels: Tensor | None = kind.classes(str(spec['name']), sample.expected) if hasattr(kind, 'classes') else None
    return labels
