"""Provide a substitute for ``mmcv._ext`` if mmcv has no compiled ops. This is so with mmcv-lite, or after a failed build.

mmdet 3.3 and mmseg 1.2 import ``mmcv.ops`` at their top, which imports the extension, although most of their models never call it.
The stand-in lets those models be built, and has the reference kernels of `mmexport/ops/*/reference.py` for what inference calls; another
op raises an error that names it when it is called. A real ``mmcv._ext`` has precedence: the finder is last on ``sys.meta_path``. Checked
with mmcv-lite 2.1.0.
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import wrap_torch_function

from ..errors import LoweringError, MissingOpError, SetupError

NAME = 'mmcv._ext'
# Ops of inference that mmcv 2.1.0 has CUDA kernels of alone (mmcv/ops/csrc/pytorch/cpu has none).
CUDA_ONLY = ('border_align_forward', 'carafe_forward', 'carafe_naive_forward', 'masked_col2im_forward', 'masked_im2col_forward',
             'ms_deform_attn_forward', 'roi_pool_forward')
# The reference kernels that were called for the present model, and what each was compared with.
_called: dict[str, str] = {}


@cache
def reference_kernels() -> dict[str, Callable[..., Any]]:
    """Return mmexport's own kernels by the name that mmcv gives them.

    Each has an attribute ``compared``: what the tests compare it with.

    Their files are loaded by path: a kernel judges the patch of its op, and importing the op's package would import that too.
    """
    kernels: dict[str, Callable[..., Any]] = {}
    for file in sorted((Path(__file__).parents[1] / 'ops').glob('*/reference.py')):
        spec = spec_from_file_location(f'mmexport_reference_{file.parent.name}', file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, kernel in module.KERNELS.items():
            kernel.compared = module.COMPARED
            kernels[name] = kernel
    return kernels


def called_kernels() -> dict[str, str]:
    """Return the reference kernels that were called since `forget_called_kernels`, and what each was compared with."""
    return dict(sorted(_called.items()))


def forget_called_kernels() -> None:
    """Start `called_kernels` anew, for another model in the same process."""
    _called.clear()


def built_for() -> str:
    """Return for which devices the compiled ops of the installed mmcv were built; some have no kernel for a CPU."""
    extension = importlib.import_module(NAME)
    cuda = extension.get_compiling_cuda_version()
    if cuda != 'not available':
        return f'for the CPU and CUDA {cuda}'
    return f'for the CPU alone, where {", ".join(sorted(CUDA_ONLY))} have no kernel: models that call them run on a GPU only'


class _StandIn(ModuleType):

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith('__'):
            raise AttributeError(op)
        kernel = _kernel(op) if op in reference_kernels() else _missing(op)
        kernel.__name__ = op
        setattr(self, op, kernel)
        return kernel


def _kernel(op: str) -> Callable[..., Any]:

    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.jit.is_tracing() or any(isinstance(arg, Tensor) and type(arg) not in (Tensor, nn.Parameter) for arg in args):
            raise LoweringError(
                f'mmcv._ext.{op} was called while the model was lowered: it has no standard form, and no patch replaces what calls it. '
                "Write a patch for the caller (docs/patches.md), or export what comes before it with export.outputs='raw'")
        kernel = reference_kernels()[op]
        _called[op] = kernel.compared  # type: ignore[attr-defined]
        return kernel(*args, **kwargs)

    # One call for a torch function mode, as that of a compiled kernel: what our kernel decides inside is no branch of the model.
    call.is_kernel = True  # type: ignore[attr-defined]
    wrapped = wrap_torch_function(lambda *args, **kwargs: [part for part in (*args, *kwargs.values()) if isinstance(part, Tensor)])(call)
    return wrapped


def _missing(op: str) -> Callable[..., Any]:

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise MissingOpError(
            f'the compiled op mmcv._ext.{op} was called, but the installed mmcv has no compiled ops, and mmexport has no kernel of its own '
            "for it. Install a full mmcv: pip uninstall mmcv-lite, then 'mim install \"mmcv>=2.0,<2.2\"' or build mmcv from source with "
            'MMCV_WITH_OPS=1')

    return missing


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(NAME, self) if fullname == NAME else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(NAME, doc=__doc__)

    def exec_module(self, module: ModuleType) -> None:
        pass


def provide_mmcv_ext() -> str:
    """Make ``import mmcv.ops`` work and say what it found: ``'compiled'`` or ``'stand-in'``.

    Raises:
        SetupError: mmcv has an extension that does not load (built for another torch or Python).
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
    try:
        import mmcv._ext as ext
    except ImportError as exc:
        raise SetupError(f'mmcv has compiled ops, but they do not load: {exc}. They were built for another torch or Python: '
                         'reinstall mmcv for this one, or use mmcv-lite') from exc
    return 'stand-in' if isinstance(ext, _StandIn) else 'compiled'
