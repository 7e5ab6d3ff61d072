"""AOTInductor: a ``.pt2`` package of machine code, which loads into Python or C++ without the model's source and without a compiler."""
from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..adapters import Adapter
from ..registry import BACKENDS
from .from_program import ProgramBackend

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@BACKENDS.register_module()
class AOTInductor(ProgramBackend):
    """Compile the exported program ahead of time. A package is for the kind of device that it was compiled on: CUDA needs a CUDA machine.

    Args:
        options: ``inductor_configs`` for the compiler, e.g. ``{'max_autotune': True}``.
    """

    name = 'aotinductor'
    file = 'model.pt2'

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        self.options = dict(options or {})

    def unavailable(self) -> str | None:
        if not any(shutil.which(compiler) for compiler in ('g++', 'clang++')):
            return 'it compiles C++ and finds neither g++ nor clang++; install one (Debian: apt install g++)'
        return super().unavailable()

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str]) -> dict[str, Any]:
        import torch._inductor
        started = time.perf_counter()
        with undecided_is_false():
            torch._inductor.aoti_compile_and_package(program, package_path=str(folder / self.file), inductor_configs=self.options)
        return dict(compile_s=round(time.perf_counter() - started, 1), device=program.example_inputs[0][0].device.type)

    def write(self, made: dict[str, Any], folder: Path, adapter: Adapter, manifest: dict[str, Any]) -> dict[str, Any]:
        manifest[self.name].update(made, options=self.options, input='contiguous float32; a package checks neither')
        return manifest


@contextmanager
def undecided_is_false() -> Iterator[None]:
    """Let a comparison of two strides that torch cannot decide be false, as its caller has it for all others.

    Of sizes like (a + 1) * (b + 1) sympy's remainder has a division in it, for which torch knows no range and raises ValueRangeError,
    though what it asks is only whether a layout may stay as it is; "no" makes it copy. SegFormer's sizes are such. Checked on torch 2.13.0
    (``_inductor/ir.py``, ``Layout._stride_expr_ge_or_false``); where there is no such method, nothing is changed.
    """
    from torch._inductor.ir import Layout
    from torch.utils._sympy.value_ranges import ValueRangeError
    original = vars(Layout).get('_stride_expr_ge_or_false')
    if original is None:
        yield
        return

    def decided(left: Any, right: Any) -> bool:
        try:
            return bool(original.__func__(left, right))
        except ValueRangeError:
            return False

    Layout._stride_expr_ge_or_false = staticmethod(decided)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Layout._stride_expr_ge_or_false = original  # type: ignore[method-assign]
