"""Track the virtual device of each tensor. It is where the tensor would be after the model had been moved."""
from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from .findings import Place

CPU = torch.device('cpu')
HALVES = (torch.float16, torch.bfloat16)
# Code that is not the user's nor upstream's: torch itself and this package.
_SKIPPED = (str(Path(torch.__file__).parent), str(Path(__file__).parent), '<frozen', '<string')


@dataclass(frozen=True)
class Tag:
    """Hold a device, and for a tensor elsewhere the reason: a kind and words for `Finding`.

    `narrowed` is where the tensor became half precision while it was computed, and None for what is half from the start. `holder`
    is the module that holds a tensor unregistered, and where in it.
    """

    device: torch.device
    kind: str = ''
    what: str = ''
    origin: Place = Place()
    narrowed: Place | None = None
    holder: tuple[str, str] | None = None


class Tags:
    """Map tensors to tags; an unknown tensor is one that `.to()` does not move, on the CPU."""

    def __init__(self, outside: Mapping[int, tuple[Tensor, Tag]], names: Mapping[int, str]) -> None:
        self._tags: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self.outside, self.names = outside, names

    def __getitem__(self, tensor: Tensor) -> Tag:
        tag: Tag | None = self._tags.get(tensor)
        if tag is None:
            _, tag = self.outside.get(id(tensor), (tensor, Tag(CPU, 'constructor', 'a tensor from torch.Tensor(...) or the like')))
            if not tag.origin.file:
                tag = replace(tag, origin=self.here())
            self._tags[tensor] = tag
        return tag

    def __setitem__(self, tensor: Tensor, tag: Tag) -> None:
        self._tags[tensor] = tag

    def here(self) -> Place:
        """Return the innermost line outside of torch, and the innermost named module."""
        frame: FrameType | None = sys._getframe(1)
        file, line, module = '', 0, ''
        while frame is not None and not module:
            name = frame.f_code.co_filename
            if not file and not name.startswith(_SKIPPED):
                file, line = name, frame.f_lineno
            if file:
                module = self._module(frame)
            frame = frame.f_back
        return Place(file, line, module)

    def _module(self, frame: FrameType) -> str:
        owner = frame.f_locals.get('self') if 'self' in frame.f_code.co_varnames else None
        return self.names.get(id(owner), '') if isinstance(owner, nn.Module) else ''
