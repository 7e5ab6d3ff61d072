"""Make folders with small lowered files, correct and faulty ones."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmexport.artifact import Artifact
from mmexport.checker.check import check
from mmexport.checker.samples import Sample, write_samples

SPECS = [dict(name='logits', dtype='float32', axes=['batch', 'class', 'h', 'w'], kind='pixels')]


class Sound(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return torch.cat([image * 2, image.flip(-1)], dim=1)


class Remembering(nn.Module):
    """Be right for the first six calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Tensor
        self.register_buffer('calls', torch.zeros(()))

    def forward(self, image: Tensor) -> Tensor:
        self.calls += 1
        return torch.cat([image * 2, image.flip(-1)], dim=1) * (1 + (self.calls > 6).float() * 0.5)


class Overwriting(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        actual = torch.cat([image * 2, image.flip(-1)], dim=1)
        image.mul_(0.5)
        return actual


class Lending(nn.Module):
    """Return memory of its own, as a captured CUDA graph does."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Tensor
        self.register_buffer('answer', torch.zeros(1, 6, 8, 8))

    def forward(self, image: Tensor) -> Tensor:
        return self.answer.copy_(torch.cat([image * 2, image.flip(-1)], dim=1))


def folder_of(module: nn.Module, folder: Path, **others: Any) -> Path:
    torch.jit.save(torch.jit.script(module), str(folder / 'model.pt'))
    Artifact('torchscript', folder / 'model.pt', dict(outputs=SPECS, num_classes=6, backend='torchscript', **others)).write_manifest()
    samples = []
    for seed in range(2):
        image = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        samples.append(Sample(f's{seed}', image, {'logits': Sound()(image)}))
    write_samples(folder / 'samples.npz', samples, dict(tolerance=1e-4, floors={}))
    return folder


class Raising(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        if image.numel() > 0:
            raise ValueError('first line\n\n  the last line  \n')
        return image


class Wrong(nn.Module):
    """Be off by a half on the second of its samples."""

    def forward(self, image: Tensor) -> Tensor:
        off = 0.5 if bool(image[0, 0, 0, 0] < -1.3) else 0.0
        return torch.cat([image * 2 + off, image.flip(-1)], dim=1)


class Deciding(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image.argmax(dim=1).int()


class Both(nn.Module):
    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return image.argmax(dim=1).int(), image * 2


LABELS = [dict(name='labels', dtype='int32', kind='labels')]


RAW = [dict(name='logits', dtype='float32', kind='pixels')]


def deciding(tmp_path: Path, raw: nn.Module) -> tuple[Path, Path]:
    """Write a folder of labels, and one with the graph that they were cut from."""
    folders = tmp_path / 'final', tmp_path / 'raw'
    samples = []
    for seed in range(3):
        image = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        samples.append(Sample(f's{seed}', image, {'labels': image.argmax(1).int()}, raw={'logits': image * 2} if seed != 1 else {}))
    for place, module in zip(folders, (Deciding(), raw), strict=True):
        place.mkdir()
        torch.jit.save(torch.jit.script(module), str(place / 'model.pt'))
        content = dict(outputs=LABELS, raw=RAW, num_classes=4, backend='torchscript', mmexport=2)
        Artifact('torchscript', place / 'model.pt', content).write_manifest()
    write_samples(folders[0] / 'samples.npz', samples, dict(tolerance=1e-4, floors={}))
    return folders


def found_of(folder: Path, raw: Path | None = None) -> dict[str, Any]:
    return check(folder, folder / 'samples.npz', torch.device('cpu'), raw)


class Shifted(nn.Module):
    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return image.argmax(dim=1).int(), image * 2 + 0.1
