"""Find sizes that are read as plain numbers, by one trace with symbolic sizes.

C code reads an int subclass without a call of its methods; a traced size is not read without one.

A list that is indexed by a size, ``math.gcd`` and the like ask a traced size for its value. What they do with it is not followed.
"""
from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..compat.indexing import indexing_shown
from ..errors import last_line
from .numbers import TORCH
from .places import place_of
from .recorder import calling_frame
from .run import OURS, Site

_T: Any = Tensor
# Between the user's line and the question: a size may index a ``ModuleList``, or be a number of ``np.prod``.
_BETWEEN = torch.nn.ModuleList.__init__.__code__.co_filename, str(Path(np.__file__).parent) + os.sep
_COMPARISONS = {_T.__index__, _T.__float__, _T.__format__, _T.__str__, _T.__repr__, _T.item, _T.tolist, _T.__array__, _T.numpy}


class _ValueReads(TorchFunctionMode):
    """Record lines of the user's that read a tensor's value."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: set[Site] = set()

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        # A ratio of sizes is a float; the float of a picture's value is asked for in other ways too, which are recorded.
        asks = func in _COMPARISONS and isinstance(args[0], Tensor) and not args[0].dim()
        if asks and (func is _T.__float__ or not args[0].is_floating_point()):
            frame = _beyond(calling_frame(sys._getframe(1)))
            name = frame.f_code.co_filename
            if not name.startswith((TORCH, OURS)) and 'site-packages' not in name:
                place = place_of(frame.f_code, frame.f_lasti)
                if place is not None:
                    self.sites.add(Site(name, *place, 'size'))
        return func(*args, **(kwargs or {}))


def _beyond(frame: FrameType) -> FrameType:
    """Pass over the files of `_BETWEEN`."""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return frame


def sizes_that_leave(model: Callable[[Tensor], Any], image: Tensor, known: Collection[Site]) -> tuple[tuple[Site, ...], str | None]:
    """Return the user's lines at which a size is asked for as a plain number. The error that ended the trace, or None, comes with them.

    Args:
        model: what runs an image, without patches.
        known: conditions and lookups that are followed, or named already; they are left out.
    """
    followed = {(site.file, site.line, site.column) for site in known}
    mode = _ValueReads()
    error = None
    try:
        with warnings.catch_warnings(), torch.no_grad(), indexing_shown(), mode:
            warnings.simplefilter('ignore')
            torch.jit.trace(_Tensors(model), (image.clone(),), check_trace=False)
    except Exception as exc:  # A model that cannot be traced unpatched: what was asked until then is known, and the report says so.
        error = f'{type(exc).__name__}: {last_line(exc)}'
    leaving = [site for site in mode.sites if (site.file, site.line, site.column) not in followed]
    return tuple(sorted(leaving, key=lambda site: (site.file, site.line, site.column))), error


def has_own_code(model: torch.nn.Module) -> bool:
    """Return whether the class of a module of `model` is the user's own. Those of installed packages are not."""
    return any(is_own_file(getattr(sys.modules.get(type(module).__module__), '__file__', None) or '') for module in model.modules())


def is_own_file(file: str) -> bool:
    """Return whether a file of Python code is the user's own. Installed packages are not, nor is mmexport."""
    return 'site-packages' not in file and not file.startswith((TORCH, OURS))


class _Tensors(torch.nn.Module):
    """Return the tensors of what a function returns. A trace may return nothing else."""

    def __init__(self, run: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, image: Tensor) -> Tensor:
        self.run(image)
        return image
