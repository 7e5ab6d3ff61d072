"""AOTInductor: a ``.pt2`` package of machine code, which loads into Python or C++ without the model's source and without a compiler."""
from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from ..adapters import Adapter
from ..artifact import Artifact
from ..errors import LoweringError, last_line
from ..registry import BACKENDS
from .base import Backend
from .program import exported_program, ranges, silenced, unavailable

FILE = 'model.pt2'


@BACKENDS.register_module()
class AOTInductor(Backend):
    """Compile the exported program ahead of time. A package is for the kind of device that it was compiled on: CUDA needs a CUDA machine.

    Args:
        options: ``inductor_configs`` for the compiler, e.g. ``{'max_autotune': True}``.
    """

    name = 'aotinductor'

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        self.options = dict(options or {})

    def unavailable(self) -> str | None:
        if not any(shutil.which(compiler) for compiler in ('g++', 'clang++')):
            return 'it compiles C++ and finds neither g++ nor clang++; install one (Debian: apt install g++)'
        return unavailable()

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        import torch._inductor
        dynamic = manifest['inputs'][0]['dynamic']
        program = exported_program(adapter, example, dynamic)
        folder.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        try:
            with torch.no_grad(), silenced():
                torch._inductor.aoti_compile_and_package(program, package_path=str(folder / FILE), inductor_configs=self.options)
        except Exception as exc:
            raise LoweringError(f'AOTInductor cannot compile {type(adapter.model).__name__}: {last_line(exc)}') from exc
        manifest = {**manifest, 'backend': self.name,
                    'aotinductor': dict(torch=torch.__version__, device=example.device.type, options=self.options,
                                        ranges=ranges(example, dynamic),
                                        input='contiguous float32; a package checks neither',
                                        compile_s=round(time.perf_counter() - started, 1))}
        artifact = Artifact(self.name, folder / FILE, manifest)
        artifact.write_manifest()
        return artifact
