"""Distinguish an error of the environment from an error of the model. The first has versions that do not go together."""
from __future__ import annotations

import traceback
from importlib.util import find_spec
from pathlib import Path

from ..errors import SetupError, causes, last_line
from .packages import distribution_version

# Of a call whose signature changed between versions; a module's own ``forward`` is called with what the model passes.
_SIGNATURE = ('unexpected keyword argument', 'missing 1 required', 'positional arguments but')
# Packages whose calls into one another depend on their versions.
_TOOLS = ('torch/onnx/', 'torch/export/', 'torch/_export/', 'torch/_inductor/', 'onnxscript/', 'onnx_ir/', 'openvino/', 'torch_tensorrt/')
_NAMED = ('torch', 'numpy', 'onnx', 'onnxscript', 'onnxruntime', 'openvino')
_HERE = str(Path(__file__).parents[1])


def version_conflict(exc: BaseException) -> str | None:
    """Return why packages do not go together, if `exc` shows that. None for other errors.

    It is one if a call of a backend or of an exporter has a signature that the callee does not take, or a module or name that torch or
    an exporter does not have is imported.
    """
    for cause in causes(exc):
        # An import by name ends in importlib, behind the line that asked for it.
        frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if 'importlib' not in frame.filename]
        if not frames:
            continue
        file, message = frames[-1].filename.replace('\\', '/'), str(cause)
        by_exporter = any(f'/site-packages/{tool}' in file for tool in _TOOLS)
        # Only backends/ calls exporters; elsewhere mmexport calls patches and models, of the user's too.
        calls_exporter = by_exporter or file.startswith(f'{_HERE}/backends/')
        signature = any(part in message for part in _SIGNATURE) and 'forward()' not in message
        if isinstance(cause, TypeError) and calls_exporter and signature:
            return last_line(cause)
        if isinstance(cause, ModuleNotFoundError) and find_spec((cause.name or '').partition('.')[0] or 'torch') is None:
            continue  # It is missing, which is no conflict.
        if isinstance(cause, ImportError) and (by_exporter or file.startswith(_HERE)) and (cause.name or '').partition('.')[0] in _NAMED:
            return last_line(cause)
    return None


def conflict_of(exc: BaseException) -> SetupError | None:
    """Return the error with the versions of the packages concerned, for one that `version_conflict` knows; None for others."""
    if isinstance(exc, SetupError):
        return exc
    reason = version_conflict(exc)
    return SetupError(in_words(reason)) if reason else None


def in_words(reason: str) -> str:
    """Return a message with the reason and the versions of the packages concerned."""
    return (f'{reason}: the installed packages do not go together: {versions_in_words()}. mmexport doctor says which '
            'were tried')


def versions_in_words() -> str:
    """Return ``torch 2.13.0, numpy 2.4.1, ...`` of the installed packages that an export depends on."""
    return ', '.join(f'{name} {version}' for name in _NAMED if (version := distribution_version(name)))
