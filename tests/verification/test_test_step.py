"""Test the photograph and ``test_step``: every config has a comparison, or a row that says why not."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mmexport.adapters import Adapter, build_adapter
from mmexport.adapters.guard import InputGuard
from mmexport.checker.samples import Sample
from mmexport.inputs.real_image import Photograph, read_photograph
from mmexport.inputs.synthetic import picture
from mmexport.inputs.windows import windows_of
from mmexport.verification.expected import expect
from mmexport.verification.network_runs import NetworkRuns
from mmexport.verification.test_step import (
    PipelineCheck,
    _judged,
    check_sample,
    check_slid,
    run_test_step,
    run_test_step_on,
    why_not_run,
)
from tests.tiny import SHAPE, seeded, tiny

CPU = torch.device('cpu')


def photographed(name: str, file: Path, scale: tuple[int, int], outputs: str = 'final', normalize: bool = False,
                 **guard: Any) -> tuple[Adapter, Photograph]:
    cfg = tiny(name)
    for step in cfg.test_dataloader.dataset.pipeline:
        if step.type == 'Resize':
            step.scale = scale
    adapter = build_adapter(seeded(name), outputs=outputs, normalize=normalize)
    adapter.guard = InputGuard(SHAPE, **guard)
    return adapter, read_photograph(cfg, str(file), adapter, CPU, torch.zeros(SHAPE))


def sample_of(adapter: Adapter, image: torch.Tensor, photograph: Photograph | None = None) -> Sample:
    name = 'photograph' if photograph else 'traced'
    return expect(adapter, {name: image}, 1e-4, 0, NetworkRuns(), as_given=[name])[0]


@pytest.mark.parametrize('normalize', [False, True])
@pytest.mark.parametrize('name', ['fcn', 'pointrend', 'mask2former_r50_ade20k', 'mask2former_r50', 'setr_vit'])
def test_the_adapter_agrees_with_test_step(name: str, normalize: bool, photograph_file: Path) -> None:
    scale = (320, 240) if name == 'setr_vit' else (192, 128)
    adapter, photograph = photographed(name, photograph_file, scale, normalize=normalize)
    assert photograph.packed is not None
    check = check_sample(adapter, sample_of(adapter, photograph.image, photograph), CPU, photograph)
    assert check.passed and check.agreement == 1.0, check.summary
    if name == 'setr_vit':
        assert tuple(photograph.image.shape[2:]) == (128, 160)


@pytest.mark.parametrize('name', ['fcn', 'mask2former_r50_ade20k', 'mask2former_r50', 'maskformer_r50'])
def test_made_inputs_go_through_test_step_too(name: str) -> None:
    adapter = build_adapter(seeded(name))
    sample = sample_of(adapter, picture((2, 3, 96, 133), 3, adapter))
    check = check_sample(adapter, sample, CPU)
    assert check.passed, check.reason


@pytest.mark.parametrize('name', ['mask2former_r50', 'mask2former_r50_ade20k', 'fcn'])
def test_padding_is_cropped_and_excuses_what_it_decides(name: str, photograph_file: Path) -> None:
    adapter, photograph = photographed(name, photograph_file, (170, 120))
    sample = sample_of(adapter, photograph.image, photograph)
    check = check_sample(adapter, sample, CPU, photograph)
    assert (check.padded != (0, 0)) == name.startswith('mask2former')
    assert check.passed, check.summary
    if name == 'mask2former_r50':
        height, width = photograph.img_shape
        raw = adapter.raw(adapter.preprocess(photograph.image))
        decided = adapter.undecided_by_padding(raw, photograph.image, height, width)
        assert decided is not None
        assert float(decided.double().mean()) < 0.5
        # One clear pixel in fifty, as another class.
        rows, columns = (~decided[0]).nonzero()[::50].unbind(1)
        panoptic = sample.expected['panoptic'].clone()
        panoptic[0, rows, columns] = (panoptic[0, rows, columns] + 1) % adapter.num_classes
        wrong = replace(sample, expected={**sample.expected, 'panoptic': panoptic})
        assert check_sample(adapter, wrong, CPU, photograph).passed is False


def test_another_answer_does_not_pass(photograph_file: Path) -> None:
    adapter, photograph = photographed('fcn', photograph_file, (192, 128))
    sample = sample_of(adapter, photograph.image, photograph)
    for name, change in (('labels', lambda labels: labels.roll(8, dims=2)), ('scores', lambda scores: scores * 0.9)):
        wrong = replace(sample, expected={**sample.expected, name: change(sample.expected[name])})
        check = check_sample(adapter, wrong, CPU, photograph)
        assert check.passed is False
        assert name in str(check.reason)


def test_rows_in_another_order_are_the_same_rows() -> None:
    """mmdet's topk does not sort: its rows, and then the evidence of the adapter's rows, stand in different orders."""
    adapter = build_adapter(seeded('mask2former_r50'))
    sample = sample_of(adapter, picture((1, 3, 128, 160), 3, adapter))
    answers = adapter.read(run_test_step_on(adapter, sample.image))
    count = int(answers['num'][0])
    order = torch.cat([torch.randperm(count, generator=torch.Generator().manual_seed(0)), torch.arange(count, answers['scores'].shape[1])])
    shuffled = {name: value[:, order] if name in ('boxes', 'scores', 'labels', 'masks') else value for name, value in answers.items()}
    check = _judged(adapter, sample, shuffled, 1e-4, {})
    assert check.passed, check.reason


def test_test_step_itself_has_the_word(photograph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, photograph = photographed('fcn', photograph_file, (192, 128))
    calls = []
    original = adapter.model.test_step
    monkeypatch.setattr(adapter.model, 'test_step', lambda data: calls.append(data) or original(data))  # type: ignore[func-returns-value]
    assert photograph.packed is not None
    actual = run_test_step(adapter, photograph.packed)
    assert len(calls) == 1
    assert tuple(actual[0].pred_sem_seg.data.shape[1:]) == photograph.img_shape


def test_what_is_not_run_says_why(photograph_file: Path) -> None:
    adapter, photograph = photographed('fcn', photograph_file, (192, 128), outputs='raw')
    assert why_not_run(adapter) == 'raw outputs hold no decisions'
    adapter, photograph = photographed('fcn', photograph_file, (192, 128), dynamic=('batch',))
    assert photograph.image.shape == SHAPE
    assert photograph.packed is None and photograph.reason == 'the file takes one size only'
    # Stretched, it is an input like others.
    assert check_sample(adapter, sample_of(adapter, photograph.image, photograph), CPU, photograph).passed
    check = PipelineCheck('traced', skipped='a reason')
    assert check.passed is None
    assert check.summary == 'not run: a reason'


def test_step_of_a_sliding_model_runs_on_one_window() -> None:
    adapter = build_adapter(seeded('setr_vit'))
    inside, beyond = (sample_of(adapter, picture((1, 3, *size), 3, adapter)) for size in ((128, 160), (160, 160)))
    assert check_sample(adapter, inside, CPU).passed
    assert check_sample(adapter, beyond, CPU).skipped


def test_a_whole_slid_picture_is_that_of_test_step() -> None:
    """Logits of windows, added where they overlap and divided by their number, as the manifest says."""
    adapter = build_adapter(seeded('setr_vit'))
    image = picture((1, 3, 160, 222), 3, adapter)
    windows = windows_of(image, adapter.notes()['sliding'])
    assert windows.shape == (4, 3, 128, 160)
    sample = sample_of(adapter, windows)
    assert check_slid(adapter, sample, image).passed
    wrong = replace(sample, expected={'logits': sample.expected['logits'].flip(0)})
    assert check_slid(adapter, wrong, image).passed is False
