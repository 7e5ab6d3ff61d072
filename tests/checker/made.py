"""Make what the tests of the rules share: the outputs of a manifest, rows of instances, and one comparison of two tensors."""
from __future__ import annotations

from typing import Any

import torch

from mmexport.checker.compare import compare
from mmexport.checker.comparison import Comparison
from mmexport.checker.reduced import FULL
from mmexport.checker.samples import Sample
from mmexport.checker.vacuous import vacuous_outputs

LOGITS = [dict(name='logits', dtype='float32', kind='pixels')]
LABELS = [dict(name='labels', dtype='int32', kind='labels')]
PANOPTIC = [dict(name='panoptic', dtype='int32', kind='panoptic')]


def judge(specs: list[dict[str, str]], expected: torch.Tensor, actual: torch.Tensor, **given: object) -> Comparison:
    evidence = given.pop('evidence', {})
    rows = compare(specs, {specs[0]['name']: expected}, [actual], evidence, sample='s', stage='t', **given)  # type: ignore[arg-type]
    return rows[0]


def instances() -> dict[str, torch.Tensor]:
    masks = torch.zeros(1, 4, 8, 8, dtype=torch.bool)
    for row in range(3):
        masks[0, row, 2 * row:2 * row + 2] = True
    boxes = torch.tensor([[[0, 0, 8, 2], [0, 2, 8, 4], [0, 4, 8, 6], [0, 0, 0, 0]]]).float()
    return dict(boxes=boxes, scores=torch.tensor([[0.9, 0.8, 0.7, 0.0]]), labels=torch.tensor([[1, 1, 2, 0]]), masks=masks,
                num=torch.tensor([3]))


INSTANCE = [dict(name=name, dtype='', kind='instance') for name in instances()]


def judge_rows(change: str, floors: dict[str, float] | None = None, precision: str = FULL, **evidence: torch.Tensor) -> Comparison:
    actual = {name: tensor.clone() for name, tensor in instances().items()}
    if change == 'order':
        actual = {name: tensor[:, [2, 0, 1, 3]] if tensor.dim() > 1 else tensor for name, tensor in actual.items()}
    elif change == 'mask':
        actual['masks'][0, 0, 7, 7] = True
        actual['boxes'][0, 0] = torch.tensor([0, 0, 8, 8])
    elif change == 'score':
        actual['scores'][0, 1] += 1e-3
    elif change == 'label':
        actual['labels'][0, 2] = 1
    elif change == 'row':
        actual['num'][0] = 2
        for name in ('boxes', 'scores', 'labels', 'masks'):
            actual[name][0, 2:] = 0
    elif change == 'box':
        actual['boxes'][0, 0, 0] += 1
    elif change == 'boxes':
        actual['boxes'][:] = 0
    elif change == 'scores':
        actual['scores'] *= 0.01
    return compare(INSTANCE, instances(), list(actual.values()), evidence, sample='s', stage='t', floors=floors, precision=precision)[0]


def vacuous_of(specs: Any, *outputs: torch.Tensor, **floors: float) -> dict[str, str]:
    name = specs[0]['name']
    samples = [Sample(f'{number}', torch.zeros(1, 3, *tensor.shape[-2:]), {name: tensor}) for number, tensor in enumerate(outputs)]
    return vacuous_outputs(specs, samples, floors, 1e-4)
