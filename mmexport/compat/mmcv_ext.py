"""Provide a substitute for ``mmcv._ext`` if mmcv has no compiled ops. This is so with mmcv-lite, or after a failed build.

mmdet 3.3 and mmseg 1.2 import ``mmcv.ops`` at their top, which imports the extension, although most of their models never call it.
The stand-in lets those models be built; an op that is really called raises an error that names it. A real ``mmcv._ext`` has
precedence: the finder is last on ``sys.meta_path``. Checked with mmcv-lite 2.1.0.
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..errors import MissingOpError, SetupError

NAME = 'mmcv._ext'


class _StandIn(ModuleType):

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith('__'):
            raise AttributeError(op)

        def missing(*args: Any, **kwargs: Any) -> Any:
            raise MissingOpError(
                f"the compiled op mmcv._ext.{op} was called, but the installed mmcv has no compiled ops. Install a full mmcv: "
                "pip uninstall mmcv-lite, then 'mim install \"mmcv>=2.0,<2.2\"' or build mmcv from source with MMCV_WITH_OPS=1")

        missing.__name__ = op
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
