"""Find the module that writes into its input picture."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..adapters import Adapter
from .calls import Call, watching
from .places import of_the_model


def find_inplace_write(adapter: Adapter, image: Tensor) -> tuple[Call | None, nn.Module, tuple[str, int] | None]:
    """Find the call, the module and the line that write into the input."""
    picture = image.clone()
    lines = Lines(picture, image)
    with torch.no_grad(), watching(adapter.model, lambda call, args, kwargs: lines.stack.append(call),
                                   lambda call, output: lines.stack.remove(call)), lines:
        adapter(*adapter.inputs_of(picture))
    return lines.call, adapter if lines.call is None else adapter.model.get_submodule(lines.call.path), lines.place


class Lines(torch.overrides.TorchFunctionMode):
    """Record the first line of the model after which the picture has changed."""

    def __init__(self, picture: Tensor, original: Tensor) -> None:
        super().__init__()
        self.picture, self.original = picture, original
        self.stack: list[Call] = []
        self.place: tuple[str, int] | None = None
        self.call: Call | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        if self.place is None and not _same(self.picture, self.original):
            self.place, self.call = _caller(), self.stack[-1] if self.stack else None
        return answer


def _same(one: Tensor, other: Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return torch.equal(one, other)


def _caller() -> tuple[str, int] | None:
    import traceback
    model_frames = [frame for frame in traceback.extract_stack() if of_the_model(frame.filename)]
    return (model_frames[-1].filename, int(model_frames[-1].lineno or 0)) if model_frames else None
