"""Read and write inputs with their expected outputs. They are in one ``.npz``, which numpy alone can read."""
from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

INDEX = 'index'
PARTS = ('inputs', 'expected', 'evidence', 'patched', 'raw', 'raw_evidence')


@dataclass(frozen=True)
class Sample:
    """Hold one picture (N, C, H, W) with the expected outputs.

    Attributes:
        image: the picture; where the file takes other inputs than that, what the sample is known by.
        inputs: what the file takes, by name; where there are none, it is the picture.
        expected: outputs of the unpatched eager model.
        evidence: what eager knows about its own decisions.
        patched: outputs of the eager model with patches on, where they were computed.
        raw: where `expected` are decisions, the network's own outputs that they were made from, and their evidence.
        floors: by output name, the share beyond the tolerance under noise, see `Comparison.floor`.
    """

    name: str
    image: Tensor
    expected: Mapping[str, Tensor]
    evidence: Mapping[str, Tensor] = field(default_factory=dict)
    patched: Mapping[str, Tensor] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    raw: Mapping[str, Tensor] = field(default_factory=dict)
    raw_evidence: Mapping[str, Tensor] = field(default_factory=dict)
    inputs: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def file_inputs(self) -> tuple[Tensor, ...]:
        """Return the inputs of the file, in order."""
        return tuple(self.inputs.values()) or (self.image,)

    @property
    def nbytes(self) -> int:
        tensors: Iterable[Tensor] = (*self.file_inputs, *self.expected.values(), *self.evidence.values(), *self.patched.values(),
                                     *self.raw.values(), *self.raw_evidence.values())
        # Masks and label maps are deflated, to a tenth of this or less.
        return sum(tensor.numel() * tensor.element_size() // (1 if tensor.is_floating_point() else 8) for tensor in tensors)


def write_samples(path: Path, samples: Sequence[Sample], extra: Mapping[str, Any]) -> None:
    """Write `samples` and the JSON-able `extra` (the tolerance, the model's floors)."""
    index = {**extra, 'samples': [dict(name=sample.name, floors=dict(sample.floors)) for sample in samples]}
    with zipfile.ZipFile(path, 'w') as archive:
        _write(archive, INDEX, np.array(json.dumps(index)))
        for number, sample in enumerate(samples):
            if not sample.inputs:
                _write(archive, f'{number}/image', _numpy(sample.image))
            for part in PARTS:
                for name, tensor in getattr(sample, part).items():
                    _write(archive, f'{number}/{part}/{name}', _numpy(tensor))


def read_samples(path: Path) -> tuple[list[Sample], dict[str, Any]]:
    """Read what `write_samples` wrote; pickles are refused."""
    with np.load(path, allow_pickle=False) as content:
        index = json.loads(str(content[INDEX]))
        samples = []
        for number, entry in enumerate(index.pop('samples')):
            parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
            for key in content.files:
                pieces = key.split('/')
                if pieces[0] == str(number) and len(pieces) == 3:
                    parts[pieces[1]][pieces[2]] = torch.from_numpy(content[key])
            image = next(iter(parts['inputs'].values())) if parts['inputs'] else torch.from_numpy(content[f'{number}/image'])
            samples.append(Sample(entry['name'], image, floors=entry['floors'], **parts))
    return samples, index


def same_shapes(one: Sample, other: Sample) -> bool:
    """Return whether the inputs of two samples have the same shapes. One's outputs might then be the other's."""
    return [tensor.shape for tensor in one.file_inputs] == [tensor.shape for tensor in other.file_inputs]


def _numpy(tensor: Tensor) -> Any:
    return tensor.detach().cpu().numpy()


def _write(archive: zipfile.ZipFile, name: str, array: Any) -> None:
    # Floats hardly shrink and cost seconds; masks and label maps shrink a hundredfold.
    kind = zipfile.ZIP_STORED if array.dtype.kind in 'fU' else zipfile.ZIP_DEFLATED
    info = zipfile.ZipInfo(f'{name}.npy')
    info.compress_type = kind
    with archive.open(info, 'w', force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)
