"""Test that inputs are added until every branch that an input can turn is turned; what cannot be compared is never taken for turned."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mmexport
from mmexport.branches import Branches, BranchInputs, BranchLog, InsufficientMargin, Run, inputs_for_branches, recorded
from mmexport.branches.inputs import _reader
from mmexport.branches.search import Shape
from mmexport.checker.samples import Sample

# A call of the model by mmexport, at which the recorder ends the chain of callers that tells a branch from the same one in another module.
CALLED = compile('model(image)', str(Path(mmexport.__file__).parent / 'called.py'), 'eval')
RANGES = dict(height=(64, 320), width=(64, 320))


def found_inputs(model: Callable[[Tensor], Tensor], add: Callable[[str, Tensor], Any]) -> tuple[Branches, list[Sample]]:
    """Run `model` on two squares and on the corners of the ranges between them; the ranges must contain all of them."""
    actual = searched(model, add, keep=('small', 'large', 'wide', 'tall'))
    return actual.branches, actual.samples


def searched(model: Callable[[Tensor], Tensor], add: Callable[[str, Tensor], Any], keep: Sequence[str], **more: Shape) -> BranchInputs:
    shapes: dict[str, Shape] = {'small': (1, 64, 64), 'large': (1, 320, 320), 'wide': (1, 64, 320), 'tall': (1, 320, 64), **more}
    runs = {name: run_of(model, torch.zeros(1, 3, *shape[1:])) for name, shape in shapes.items()}
    log = BranchLog(model, 3, runs, shapes)
    return inputs_for_branches(log, RANGES, 1, lambda shape, seed: torch.full((shape[0], 3, *shape[1:]), float(seed)),
                  lambda kind, shape: torch.zeros(1, 3, *shape[1:]), add, keep)


def run_of(model: Callable[[Tensor], Tensor], image: Tensor) -> Run:
    run = Run()
    with recorded(run, image):
        eval(CALLED, dict(model=model, image=image))
    return run


def between(image: Tensor) -> Tensor:
    if 100 < image.shape[2] < 140:
        return image * 2
    return image


def sample_of(model: Callable[[Tensor], Tensor], name: str, image: Tensor) -> tuple[Sample, Run]:
    return Sample(name, image, {'out': model(image)}), run_of(model, image)


def test_a_size_that_turns_a_branch_is_added() -> None:
    branches, samples = found_inputs(between, lambda name, image: sample_of(between, name, image))
    assert any(100 < sample.image.shape[2] < 140 for sample in samples)
    assert [site.text for site in branches.turned]
    assert not branches.unresolved


def test_another_picture_replaces_one_without_clear_margins() -> None:
    requested: list[float] = []

    def add(name: str, image: Tensor) -> Any:
        requested.append(float(image.flatten()[0]))
        if requested[-1] < 2:
            raise InsufficientMargin(name)
        return sample_of(between, name, image)

    branches, samples = found_inputs(between, add)
    assert requested[:3] == [0.0, 1.0, 2.0]
    assert samples
    assert not branches.unresolved


def test_a_branch_that_could_not_be_compared_is_unresolved() -> None:
    def add(name: str, image: Tensor) -> Any:
        raise InsufficientMargin(name)

    branches, samples = found_inputs(between, add)
    assert samples == []
    assert branches.unresolved
    assert 'test_inputs.py' in branches.reasons[0]


@pytest.mark.parametrize('refused', [range(100, 140), range(100, 125)])
def test_a_size_that_eager_does_not_take_leads_to_another(refused: range) -> None:
    """Where all sizes that turn it are refused, nothing can go wrong; else one of the others is checked."""
    branches, samples = found_inputs(between, lambda name, image: None if image.shape[2] in refused else sample_of(between, name, image))
    assert bool([sample for sample in samples if 100 < sample.image.shape[2] < 140]) is (140 - 1 not in refused)
    assert not branches.unresolved


def test_an_equality_is_met_by_bisection() -> None:
    def equal(image: Tensor) -> Tensor:
        if image.shape[3] == 203:
            return image * 2
        return image

    branches, samples = found_inputs(equal, lambda name, image: sample_of(equal, name, image))
    assert [sample.image.shape[3] for sample in samples] == [203]
    assert branches.turned and not branches.unresolved


def test_the_ranges_leave_out_what_could_not_be_compared() -> None:
    """Corners of the smaller box are checked too; what was tried outside of it is given up."""
    def add(name: str, image: Tensor) -> Any:
        if 100 < image.shape[2] < 140:
            raise InsufficientMargin(name)
        return sample_of(between, name, image)

    actual = searched(between, add, keep=('small', 'traced'), traced=(1, 90, 96))
    assert actual.given_up == ['large', 'tall']
    assert [(sample.name, tuple(sample.image.shape[2:])) for sample in actual.samples] == [('corner 90x64', (90, 64)),
                                                                                        ('corner 90x320', (90, 320))]
    assert not actual.branches.unresolved
    assert [site.text for site in actual.branches.avoided] == ['100 < image.shape[2] < 140']
    assert any(line.startswith('ranges made smaller: ') and 'test_inputs.py' in line for line in actual.branches.lines())


def test_a_size_between_kept_inputs_cannot_be_excluded() -> None:
    def add(name: str, image: Tensor) -> Any:
        raise InsufficientMargin(name)

    actual = searched(between, add, keep=('small', 'traced'), traced=(1, 200, 200))
    assert actual.given_up == []
    assert actual.branches.unresolved


def test_plain_pictures_do_not_widen_the_ranges_again() -> None:
    """A branch on a value beside one that could not be compared: the picture for it has a size that is still checked."""
    def model(image: Tensor) -> Tensor:
        return between(image) * (2 if image.mean() > 0.5 else 1)

    def add(name: str, image: Tensor) -> Any:
        if 100 < image.shape[2] < 140:
            raise InsufficientMargin(name)
        return sample_of(model, name, image + 1 if name == 'bright' else image)

    actual = searched(model, add, keep=('traced', 'wide 2'), **{'traced': (1, 256, 256), 'wide 2': (1, 200, 320)})
    assert set(actual.given_up) >= {'small', 'wide'}
    assert any(sample.name == 'bright' for sample in actual.samples)
    assert min(sample.image.shape[2] for sample in actual.samples) >= 200


@pytest.mark.parametrize(('error', 'words'), [
    ('NotImplementedError: The register_meta function for torch.nonzero() raises', 'torch.nonzero()'),
    ('ValueError: no sizes', 'ValueError: no sizes')])
def test_the_note_names_the_operator_that_reads_values(error: str, words: str) -> None:
    assert _reader(error) == words
