"""Collect warnings that name a line of the user's code while a model is traced."""
from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

OURS = str(Path(__file__).parents[1]) + os.sep
# Between the user's line and the warning; numpy asks a traced size for its value from files of its own.
_BETWEEN = tuple(str(Path(str(module.__file__)).parent) + os.sep for module in (torch, np)) + (warnings.__file__,)
_MODULES = str(Path(str(torch.nn.__file__)).parent) + os.sep


@contextmanager
def tracer_warnings() -> Iterator[list[dict[str, Any]]]:
    """Yield a list that gets the warnings about the user's code. Each has file, line and message.

    Lines of installed packages were read by the authors of the patches. A line of the user's belongs in the report, also where the warning
    itself names a file of numpy: ``np.prod(x.shape)``.
    """
    messages: list[dict[str, Any]] = []

    def record(message: Any, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        frame = _asking(sys._getframe(1))
        # The tracer's own warnings are identified by the calling frame; any other counts where it names the user's file itself.
        if frame is not None and (issubclass(category, torch.jit.TracerWarning) or filename == frame.f_code.co_filename):
            warning = dict(file=frame.f_code.co_filename, line=frame.f_lineno, message=str(message).split('. ')[0])
            if warning not in messages:
                messages.append(warning)

    with warnings.catch_warnings():
        warnings.simplefilter('always')
        warnings.showwarning = record  # type: ignore[assignment]
        yield messages


def _asking(frame: FrameType | None) -> FrameType | None:
    """Return the first frame outside torch and numpy, if it runs the user's own code; None for questions of torch's own modules."""
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        if frame.f_code.co_filename.startswith(_MODULES):
            return None
        frame = frame.f_back
    if frame is None or 'site-packages' in frame.f_code.co_filename or frame.f_code.co_filename.startswith(OURS):
        return None
    return frame
