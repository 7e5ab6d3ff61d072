"""The program on files that misbehave: made here, with torch alone."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmexport.artifact import Artifact
from mmexport.checking.main import check, verdict
from mmexport.checking.samples import Sample, read_samples, write_samples
from mmexport.delivery import _refuse_what_was_changed
from mmexport.errors import ConfigError, VerificationError
from mmexport.inputs.shapes import plan_shapes
from mmexport.inputs.size_rules import SizeRules

SPECS = [dict(name='logits', dtype='float32', axes=['batch', 'class', 'h', 'w'], kind='pixels')]


class Sound(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return torch.cat([image * 2, image.flip(-1)], dim=1)


class Remembering(nn.Module):
    """Right for the first six calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Tensor
        self.register_buffer('calls', torch.zeros(()))

    def forward(self, image: Tensor) -> Tensor:
        self.calls += 1
        return torch.cat([image * 2, image.flip(-1)], dim=1) * (1 + (self.calls > 6).float() * 0.5)


class Overwriting(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        found = torch.cat([image * 2, image.flip(-1)], dim=1)
        image.mul_(0.5)
        return found


class Lending(nn.Module):
    """Answers with memory of its own, as a captured CUDA graph does."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Tensor
        self.register_buffer('answer', torch.zeros(1, 6, 8, 8))

    def forward(self, image: Tensor) -> Tensor:
        return self.answer.copy_(torch.cat([image * 2, image.flip(-1)], dim=1))


def folder_of(module: nn.Module, folder: Path) -> Path:
    torch.jit.save(torch.jit.script(module), str(folder / 'model.pt'))
    Artifact('torchscript', folder / 'model.pt', dict(outputs=SPECS, num_classes=6, backend='torchscript')).write_manifest()
    samples = []
    for seed in range(2):
        image = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        samples.append(Sample(f's{seed}', image, {'logits': Sound()(image)}))
    write_samples(folder / 'samples.npz', samples, dict(tolerance=1e-4, floors={}))
    return folder


@pytest.mark.parametrize(('module', 'words'), [
    (Sound(), None), (Remembering(), 's0 again'), (Overwriting(), 'writes into its input'),
    (Lending(), 'the next call writes over')])
def test_a_file_is_asked_more_than_once_and_its_input_looked_at(module: nn.Module, words: str | None, tmp_path: Path) -> None:
    folder = folder_of(module, tmp_path)
    reason = verdict(check(folder, folder / 'samples.npz', torch.device('cpu')))
    assert reason is None if words is None else words in str(reason)


def test_no_samples_is_no_check(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    write_samples(folder / 'samples.npz', [], dict(tolerance=1e-4, floors={}))
    with pytest.raises(ValueError, match='holds no sample'):
        check(folder, folder / 'samples.npz', torch.device('cpu'))


def test_samples_of_another_day_are_stale(tmp_path: Path) -> None:
    """A tolerance that was loosened by hand lies in samples.npz."""
    folder = folder_of(Sound(), tmp_path)
    Artifact.read(folder).write_manifest()
    assert verdict(check(folder, folder / 'samples.npz', torch.device('cpu'))) is None
    samples, extra = read_samples(folder / 'samples.npz')
    write_samples(folder / 'samples.npz', samples, {**extra, 'tolerance': 10.0})
    assert 'samples.npz is not the file of this manifest' in str(verdict(check(folder, folder / 'samples.npz', torch.device('cpu'))))


def test_what_changed_after_the_check_is_not_delivered(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    artifact = Artifact.read(folder)
    _refuse_what_was_changed(artifact)
    torch.jit.save(torch.jit.script(Remembering()), str(folder / 'model.pt'))
    with pytest.raises(VerificationError, match='after it was checked'):
        _refuse_what_was_changed(artifact)


@pytest.mark.parametrize('shapes', [[], [(64, 64)]])
def test_a_dynamic_axis_is_one_that_an_input_varies(shapes: list[tuple[int, int]]) -> None:
    section = dict(inputs=dict(dynamic=('batch', 'height', 'width')), verify=dict(shapes=shapes, batch=2))
    with pytest.raises(ConfigError, match='no input of export.verify.shapes varies it from 64'):
        plan_shapes((1, 3, 64, 64), section, SizeRules())


def test_a_folder_that_is_not_there_is_told_from_one_without_a_manifest(tmp_path: Path) -> None:
    for folder, words in ((tmp_path / 'none', 'no such folder'), (tmp_path, 'no manifest.json')):
        with pytest.raises(ValueError, match=words):
            check(folder, folder / 'samples.npz', torch.device('cpu'))
