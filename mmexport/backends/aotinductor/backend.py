"""Lower to AOTInductor: a ``.pt2`` package of machine code for Python or C++, without the model's source or a compiler."""
from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...adapters.specs import InputSpec
from ...registry import BACKENDS
from ..exported.from_program import ProgramBackend

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# Inductor lays pictures out channels last for convolutions. On a CPU the error of oneDNN then grows with the number of channels: OCRNet
# exceeded the tolerance.
FOR_CPU = {'layout_optimization': False}


@BACKENDS.register_module()
class AOTInductor(ProgramBackend):
    """Compile the exported program ahead of time, for one kind of device.

    Args:
        options: ``inductor_configs`` for the compiler, e.g. ``{'max_autotune': True}``; over `FOR_CPU` there.
    """

    name = 'aotinductor'
    file = 'model.pt2'
    repro = 'torch._inductor.aoti_compile_and_package({exported})\n'

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        self.options = dict(options or {})

    def unavailable(self) -> str | None:
        if not any(shutil.which(compiler) for compiler in ('g++', 'clang++')):
            return 'it compiles C++ and finds neither g++ nor clang++; install one (Debian: apt install g++)'
        return super().unavailable()

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str],
                inputs: Sequence[InputSpec]) -> dict[str, Any]:
        import torch._inductor

        from .forms import in_fast_forms
        from .internals import compiled
        device = program.example_inputs[0][0].device.type
        if device == 'cpu':
            program = in_fast_forms(program)
        options = {**(FOR_CPU if device == 'cpu' else {}), **self.options}
        started = time.perf_counter()
        compiled(lambda: torch._inductor.aoti_compile_and_package(program, package_path=str(folder / self.file),
                                                                  inductor_configs=dict(options)))
        return dict(compile_s=round(time.perf_counter() - started, 1), device=device, options=options)

    def write(self, converted: dict[str, Any], folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> dict[str, Any]:
        manifest[self.name].update(converted, input='contiguous float32; a package checks neither')
        return manifest
