"""Find the device of an operator's result by PyTorch's rules. Where PyTorch would raise, that is recorded."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from . import rules
from .findings import Finding
from .tags import CPU, HALVES, Tag, Tags


@dataclass
class ResultDevices:
    """Find the devices of results for a model on `target`; `findings` are the faults, by what and where."""

    target: torch.device
    tags: Tags
    findings: dict[tuple[Any, ...], Finding] = field(default_factory=dict)

    def tag_of_result(self, name: str, args: Sequence[Any], tensors: Sequence[Tensor], known: Sequence[Tag], requested: Tag | None) -> Tag:
        """Return the tag of what operator `name` gives.

        Args:
            tensors, known: the tensors among its arguments, and their tags.
            requested: by a device among its arguments.
        """
        if name in rules.MOVES:
            return requested or (known[1] if len(known) > 1 else known[0])
        if name in rules.NEEDS_CPU:
            self._check_numpy(name, known[0])
            return known[0]
        if requested is not None:
            return requested
        if name in rules.FROM_NUMPY or (name in rules.FROM_DATA and type(args[0]).__module__ == 'numpy'):
            return Tag(CPU, 'numpy', f'torch.{name} of a numpy array', self.tags.here())
        if name in rules.FROM_DATA and args and isinstance(args[0], Tensor):
            return known[0]
        if name in rules.FACTORIES or name in rules.FROM_DATA or not known:
            return Tag(CPU, 'factory', f'torch.{name} without a device', self.tags.here())
        return self._joined(name, tensors, known)

    def _joined(self, name: str, tensors: Sequence[Tensor], known: Sequence[Tag]) -> Tag:
        """Return the device of an operator's result; record a finding where PyTorch would raise."""
        first = known[0]
        if len({tag.device for tag in known}) == 1 or name in rules.METADATA_ONLY or name in rules.COPIES:
            return first
        away = [(tensor, tag) for tensor, tag in zip(tensors, known, strict=True) if tag.device != self.target]
        if name in rules.INDEXING or name == '__setitem__':
            return self._indexed(name, tensors, known)
        if name not in rules.REFUSE_SCALARS and all(tensor.dim() == 0 for tensor, _ in away) and not rules.in_place(name):
            return Tag(self.target)
        if rules.in_place(name) and first.device == self.target and all(tensor.dim() == 0 for tensor, _ in away):
            return first
        self._report(name, away[0][1])
        return Tag(self.target)

    def _indexed(self, name: str, tensors: Sequence[Tensor], known: Sequence[Tag]) -> Tag:
        """Check devices of indexing: CPU indices may index a tensor elsewhere, and values must be on the tensor's device."""
        first = known[0]
        if first.device != self.target:
            self._report(name, first)
            return Tag(self.target)
        value = None if name == '__getitem__' else (tensors[-1], known[-1])
        by_copy = name == '__setitem__' and len(known) == 2
        if value is not None and not by_copy and value[0].dim() > 0 and value[1].device != first.device:
            self._report(name, value[1])
        return first

    def _check_numpy(self, name: str, tag: Tag) -> None:
        if tag.device.type != 'cpu':
            self._report(name, Tag(tag.device, 'numpy', 'numpy() of a tensor that is not on the CPU', self.tags.here()))

    def _report(self, name: str, tag: Tag) -> None:
        key = (tag.holder, tag.what, tag.origin)
        earlier = self.findings.get(key)
        self.findings[key] = replace(earlier, times=earlier.times + 1) if earlier else Finding(
            tag.kind or 'placement', tag.what or f'a tensor on {tag.device}', tag.origin, name, self.tags.here(), holder=tag.holder)

    def report_dtypes(self, name: str, tensors: Sequence[Tensor], known: Sequence[Tag]) -> None:
        """Record that two float dtypes meet in `name`, which PyTorch refuses."""
        half = next(number for number, tensor in enumerate(tensors) if tensor.dtype in HALVES)
        place = known[half].narrowed or known[half].origin
        here = self.tags.here()
        kinds = ' and '.join(sorted({str(tensor.dtype) for tensor in tensors if tensor.is_floating_point()}))
        self._report(name, Tag(self.target, 'dtype', f'{kinds} meet in {name}', place if place.file else here))
