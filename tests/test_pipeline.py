"""The photograph and ``test_step``: every config has a comparison, or a row that says why not."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mmexport.photograph import Photograph, read_photograph

from mmexport.adapters import Adapter, build_adapter
from mmexport.adapters.base import InputGuard
from mmexport.pipeline import PipelineCheck, check_pipeline, run_test_step, why_not_run
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


@pytest.mark.parametrize('normalize', [False, True])
@pytest.mark.parametrize('name', ['fcn', 'pointrend', 'mask2former_r50_ade20k', 'mask2former_r50', 'setr_vit'])
def test_the_adapter_agrees_with_test_step(name: str, normalize: bool, photograph_file: Path) -> None:
    scale = (320, 240) if name == 'setr_vit' else (192, 128)
    adapter, photograph = photographed(name, photograph_file, scale, normalize=normalize)
    assert photograph.packed is not None
    check = check_pipeline('torchscript', adapter, adapter, photograph)
    assert check.passed and check.agreement == 1.0, check.summary
    if name == 'setr_vit':
        assert tuple(photograph.image.shape[2:]) == (128, 160)


@pytest.mark.parametrize('name', ['mask2former_r50', 'mask2former_r50_ade20k', 'fcn'])
def test_padding_is_cropped_away_and_excuses_only_what_it_decides(name: str, photograph_file: Path) -> None:
    adapter, photograph = photographed(name, photograph_file, (170, 120))
    check = check_pipeline('torchscript', adapter, adapter, photograph)
    assert (check.padded != (0, 0)) == name.startswith('mask2former')
    assert check.threshold == 1.0
    assert check.passed, check.summary
    if name == 'mask2former_r50':
        height, width = photograph.img_shape
        raw = adapter.raw(adapter.preprocess(photograph.image))
        decided = adapter.padding_decides(raw, photograph.image, height, width)
        assert decided is not None
        assert float(decided.double().mean()) < 0.5
        clear = ~decided[0]

        def wrong(image: torch.Tensor) -> tuple[torch.Tensor, ...]:
            """One clear pixel in fifty, as another class."""
            panoptic, *rest = adapter(image)
            rows, columns = clear.nonzero()[::50].unbind(1)
            panoptic[0, rows, columns] = (panoptic[0, rows, columns] + 1) % adapter.num_classes
            return panoptic, *rest

        assert check_pipeline('torchscript', adapter, wrong, photograph).passed is False


def test_another_answer_does_not_pass(photograph_file: Path) -> None:
    adapter, photograph = photographed('fcn', photograph_file, (192, 128))

    def shifted(image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        labels, scores = adapter(image)
        return labels.roll(8, dims=2), scores

    check = check_pipeline('torchscript', adapter, shifted, photograph)
    assert check.passed is False
    assert 'test_step' in str(check.reason)


def test_test_step_itself_has_the_word(photograph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, photograph = photographed('fcn', photograph_file, (192, 128))
    calls = []
    original = adapter.model.test_step
    monkeypatch.setattr(adapter.model, 'test_step', lambda data: calls.append(data) or original(data))  # type: ignore[func-returns-value]
    assert photograph.packed is not None
    found = run_test_step(adapter, photograph.packed)
    assert len(calls) == 1
    assert tuple(found[0].pred_sem_seg.data.shape[1:]) == photograph.img_shape


def test_what_is_not_run_says_why(photograph_file: Path) -> None:
    adapter, photograph = photographed('fcn', photograph_file, (192, 128), outputs='raw')
    assert why_not_run(adapter, photograph) == 'raw outputs hold no decisions'
    adapter, photograph = photographed('fcn', photograph_file, (192, 128), dynamic=('batch',))
    assert photograph.image.shape == SHAPE
    assert why_not_run(adapter, photograph) == 'the file takes one size only'
    check = PipelineCheck('torchscript', skipped=why_not_run(adapter, photograph))
    assert check.passed is None
    assert check.summary == 'not run: the file takes one size only'
