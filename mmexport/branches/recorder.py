"""Record every Python branch that the unpatched eager model takes. A branch is on a size or on a tensor's value.

A tracer decides such a branch once, silently. Sizes and scalars that the model asks for are answered by numbers that record the
comparisons they take part in (see `mmexport.branches.numbers`); tensors computed from the picture are marked, so that a value branch and
a size branch differ.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from ..compat.indexing import indexing_shown
from .builtin_shims import recording
from .numbers import ESCAPED, TORCH, note, wrap
from .profile import size_products_noted
from .run import Answer, Key, Run
from .shapes_only import ShapesOnly, flat

_T: Any = Tensor
_SHAPES = {_T.shape.__get__, _T.size, _T.numel, _T.nelement, torch.numel, _T.stride, _T.nbytes.__get__}
_VALUES = {_T.item, _T.tolist, _T.__bool__, _T.__int__, _T.__float__, _T.__index__, torch.equal, _T.equal, torch.allclose, _T.allclose,
           torch.is_nonzero, _T.is_nonzero, _T.__contains__, _T.numpy, _T.__array__}
_PIECES = {torch.split, _T.split, torch.chunk, _T.chunk, torch.unbind, _T.unbind, torch.tensor_split, _T.tensor_split}
_ONLY_SIZES = {'zeros_like', 'ones_like', 'full_like', 'empty_like', 'rand_like', 'randn_like', 'new_zeros', 'new_ones', 'new_full',
               'new_tensor', 'new_empty'}
# Whose results are as long as the values make them.
_COUNTING = {'nonzero', 'argwhere', 'masked_select', 'unique', '_unique2', '_unique_impl', '_return_output', 'unique_consecutive'}
_COMPARES = {'lt', 'le', 'gt', 'ge', 'eq', 'ne', 'less', 'greater', 'less_equal', 'greater_equal', '__eq__', '__ne__'}
_WRAPPERS = {f'{TORCH}{name}.py' for name in ('overrides', '_tensor', 'functional')}


class _Mode(TorchFunctionMode):
    """Return recording sizes and scalars to a model. Which tensors come from the picture is tracked."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        frame, kwargs = sys._getframe(1), kwargs or {}
        foreign = not frame.f_code.co_filename.startswith(TORCH)
        if func in _SHAPES:
            result = func(*args, **kwargs)
            return _sizes(result, _is_counted(args[0], self.run), foreign)
        picture = any(getattr(part, '_picture', None) is self.run for part in flat([*args, *kwargs.values()]))
        if func in _VALUES:
            return self._value(frame, func, args, kwargs, picture) if foreign else func(*args, **kwargs)
        result = func(*args, **kwargs)
        if picture and getattr(func, '__name__', '') not in _ONLY_SIZES:
            for tensor in flat([result, *_written(func, args, kwargs)]):
                if isinstance(tensor, Tensor):
                    tensor._picture = self.run  # type: ignore[attr-defined]
                    if _counts(func, args, self.run, tensor):
                        tensor._counted = self.run  # type: ignore[attr-defined]
        if isinstance(result, Tensor) and result.numel() == 1 and getattr(func, '__name__', '') in _COMPARES and not _has_no_values(result):
            result._asked = tuple(float(part) for part in args[:2])  # type: ignore[attr-defined]
        if func in _PIECES:
            note(calling_frame(frame), 'pieces', len(result), (len(result), 0), False)
            if frame.f_code.co_name == '__iter__':  # The loop may count them.
                note(calling_frame(frame), ESCAPED, None, (len(result), 0), False)
        if func is _T.untyped_storage:
            note(calling_frame(frame), ESCAPED, None, (args[0].numel(), 0), False)
        return result

    def _value(self, frame: FrameType, func: Any, args: Sequence[Any], kwargs: dict[str, Any], picture: bool) -> Any:
        if not _has_no_values(args[0]):
            result = func(*args, **kwargs)
        else:
            try:
                result = func(*args, **kwargs)
            except Exception:  # A tensor without values: the answer of the real picture is used, or the error is raised.
                remembered = self.run.answers.get(self.run.key(frame, picture, count=False))  # type: ignore[arg-type]
                if remembered is None:
                    raise
                result = remembered[0]
        if isinstance(result, bool):
            note(frame, 'bool', result, getattr(args[0], '_asked', (result, 0)), picture)
            return result
        if picture and func in (_T.numpy, _T.__array__):
            # What that code does with it is not recorded.
            note(calling_frame(frame), 'numpy', 'read', (0, 0), picture)
            return result
        if func is _T.item:
            key = self.run.key(frame, picture)
            if key is not None:
                self.run.answers.setdefault(key, (result, (result, 0)))
        listed = isinstance(result, list)
        return [wrap(part, picture) if not isinstance(part, list) else [wrap(one, picture) for one in part]
                for part in result] if listed else wrap(result, picture) if func in (_T.item, _T.tolist) else result


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Return what `func` may have written into: mmcv's kernels take their outputs as arguments."""
    if hasattr(func, 'is_kernel'):
        return [part for part in (*args, *kwargs.values()) if not isinstance(part, Parameter)]
    return [args[0]] if getattr(func, '__name__', '') == '__setitem__' else []


def _is_counted(tensor: Any, run: Run) -> bool:
    return getattr(tensor, '_counted', None) is run


def _counts(func: Any, args: Sequence[Any], run: Run, result: Tensor) -> bool:
    """Return whether values of the picture decide the length of the first axis of `result`."""
    name = getattr(func, '__name__', '')
    masks = [part for part in flat(args[1:]) if isinstance(part, Tensor) and part.dtype == torch.bool] if name == '__getitem__' else []
    if name in _COUNTING or masks or (name == 'where' and len(args) == 1):
        return True
    return any(_is_counted(part, run) and isinstance(part, Tensor) and part.dim() and result.dim() and part.shape[0] == result.shape[0]
               for part in flat(args))


def _sizes(sizes: Any, counted: bool, foreign: bool) -> Any:
    """Make sizes recording ones for the model's own code; the first of a `counted` tensor is a matter of values."""
    if not foreign:
        return sizes
    if isinstance(sizes, torch.Size):
        return torch.Size(wrap(side, counted and not axis) for axis, side in enumerate(sizes))
    if isinstance(sizes, tuple):
        return tuple(wrap(side) for side in sizes)
    return wrap(sizes, counted)


def calling_frame(frame: FrameType) -> FrameType:
    """Return the first caller outside torch's wrappers of a tensor's methods."""
    while frame.f_back is not None and frame.f_code.co_filename in _WRAPPERS:
        frame = frame.f_back
    return frame


def _has_no_values(tensor: Any) -> bool:
    return getattr(tensor, 'is_meta', False)


@contextmanager
def recorded(run: Run, image: Tensor, *others: Tensor) -> Iterator[None]:
    """Record into `run` what a model decides inside the block. The inputs that values come from are marked in place."""
    for tensor in (image, *others):
        tensor._picture = run  # type: ignore[attr-defined]
    # A profile function doubles the time of Python. A run without values looks for sizes only, at which the model then runs on a picture.
    with recording(run), indexing_shown(), _Mode(run), ShapesOnly() if image.is_meta else size_products_noted():
        yield


def record_sizes(model: Callable[[Tensor], Any], shape: Sequence[int], answers: dict[Key, Answer]) -> Run:
    """Run `model` on an image of `shape` without values: what it decides by sizes, in the time of a few kernels' shapes.

    Args:
        answers: what value branches answered on a real picture.
    """
    return _run_recorded(Run(dict(answers)), model, torch.empty(tuple(shape), device='meta'))


def record_picture(model: Callable[[Tensor], Any], image: Tensor) -> Run:
    """Run `model` on a picture, for what it decides there; where it refuses the picture that is the error."""
    return _run_recorded(Run(), model, image)


def _run_recorded(run: Run, model: Callable[[Tensor], Any], image: Tensor) -> Run:
    try:
        with torch.no_grad(), recorded(run, image):
            model(image)
    except Exception as exc:  # A model that asks for a value here, or refuses the size: the caller takes it for no answer.
        run.error = f'{type(exc).__name__}: {str(exc).strip().splitlines()[0] if str(exc) else ""}'
    return run
