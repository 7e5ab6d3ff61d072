"""Find every tensor on the wrong device before export. The machine needs no GPU."""
from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from ..compat.indexing import indexing_shown
from .findings import Audit
from .placement import misplaced_tensors, unmoved_tensors
from .tags import Tag, Tags
from .unregistered_tensors import unregistered_tensors_of
from .virtual_devices import VirtualDevices


def audit_model(model: nn.Module, run: Callable[[], Any], device: str | torch.device = 'cuda', inputs: tuple[Tensor, ...] = (),
                root: nn.Module | None = None) -> Audit:
    """Call `run` on the CPU as if `model` and `inputs` were on `device`. Values are real.

    Real values, because models read them (``.item()``, masks). What is found is what PyTorch itself would refuse there: see
    `mmexport.device.rules`. A model of which a part really lies elsewhere than the rest is not run: those parts are the findings.

    Args:
        run: runs the model on `inputs`; every tensor that it creates is tracked.
        device: the device to be; ``cuda`` reads as ``cuda:0``. It need not exist. For ``cpu``, where nothing can be misplaced, the
            audit is still done for ``cuda:0``.
        root: module paths in findings start from here (from `model`).

    Raises:
        RuntimeError: what the model itself raises, on its own device and with its own inputs.
    """
    target = torch.device(device)
    target = torch.device(target.type, target.index or 0) if target.type != 'cpu' else torch.device('cuda', 0)
    started = time.perf_counter()
    names = {id(module): name for name, module in model.named_modules()}
    names |= {id(module): name for name, module in (root or model).named_modules()}
    misplaced = misplaced_tensors(root or model)
    if misplaced:
        return Audit(str(target), tuple(misplaced), seconds=time.perf_counter() - started)
    behind = unmoved_tensors(model, names)
    with _as_if_moved(model, target, behind) as tensors:
        tags = Tags(unregistered_tensors_of(model, names), names)
        for tensor in (*tensors, *inputs):
            tags[tensor] = behind.get(id(tensor), Tag(target))
        mode = VirtualDevices(target, tags)
        with _watched(mode), torch.no_grad(), indexing_shown(), mode:
            run()
    return Audit(str(target), tuple(mode.findings.values()), tuple(mode.branches.values()), mode.ops, time.perf_counter() - started)


@contextmanager
def _as_if_moved(model: nn.Module, target: torch.device, behind: Container[int]) -> Iterator[list[Tensor]]:
    """Do what ``.to(target)`` does apart from moving: buffers become new tensors, and data_preprocessors remember the device."""
    with ExitStack() as undo:
        for module in model.modules():
            for name, buffer in list(module._buffers.items()):
                if buffer is not None and id(buffer) not in behind:
                    undo.callback(module._buffers.__setitem__, name, buffer)
                    # A second name for the old buffer stays behind on a real .to(), and so it must here.
                    module._buffers[name] = buffer.detach()
            if isinstance(vars(module).get('_device'), torch.device):
                undo.callback(setattr, module, '_device', module._device)
                module._device = target  # type: ignore[assignment]
        yield [*model.parameters(), *model.buffers()]


@contextmanager
def _watched(mode: VirtualDevices) -> Iterator[None]:
    """Record what a TorchFunctionMode does not see: ``from_numpy``, and ``torch.cuda.is_available``."""
    original = torch.from_numpy

    def from_numpy(array: Any) -> Tensor:
        tensor = original(array)
        mode.tags[tensor] = Tag(torch.device('cpu'), 'numpy', 'torch.from_numpy', mode.tags.here())
        return tensor

    def is_available() -> bool:
        mode.record_branch('torch.cuda.is_available()', True)
        return True

    with mock.patch.object(torch, 'from_numpy', from_numpy), mock.patch.object(torch.cuda, 'is_available', is_available):
        yield
