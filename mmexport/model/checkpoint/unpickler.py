"""Read pickles of tensors and plain containers, and nothing else.

``torch.load(weights_only=True)`` cannot read what mmengine writes: the HistoryBuffer in a checkpoint's message hub asks for
``builtins.getattr``. Allowing that name would allow everything, so here it becomes a function that gets nothing. Names outside the
lists below are refused by name, before anything is called.

The module is handed to ``torch.load(pickle_module=...)``, hence its ``Unpickler`` and ``load``. Run with
torch 2.13; other versions were not tried.
"""
from __future__ import annotations

import collections
import pickle
from typing import Any

import torch

from ...errors import CheckpointError


class RefusedName(CheckpointError, pickle.UnpicklingError):
    """Report that a checkpoint asks for a class or function that weights do not need."""


class Inert:
    """Replace metadata: accept any arguments, state and items, and ignore them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, item: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass


class InertDict(dict):  # type: ignore[type-arg]
    """Replace a mapping of metadata (ConfigDict, MessageHub): keep its items, ignore its attributes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(args[0] if args and isinstance(args[0], dict) else {})

    def __setstate__(self, state: Any) -> None:
        pass


class HistoryBuffer(Inert):
    """Stand for mmengine's class of that name in a checkpoint."""


_STATISTICS = {'min', 'max', 'current', 'mean'}


def _inert_getattr(owner: Any, name: str) -> Inert:
    """Answer HistoryBuffer's ``getattr(HistoryBuffer, 'mean')``; look nothing up."""
    if owner is not HistoryBuffer or name not in _STATISTICS:
        raise RefusedName(f'builtins.getattr({type(owner).__name__}, {str(name)[:40]!r})')
    return Inert()


def _defaultdict(factory: Any = None, *args: Any) -> dict[Any, Any]:
    """Keep the items and drop the factory, which could be any callable."""
    return collections.OrderedDict(*args)


_TORCH_DTYPES = {name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)}
_TORCH_TYPES = ('Size', 'device')
_REBUILDERS = {
    'torch._utils': ('_rebuild_tensor', '_rebuild_tensor_v2', '_rebuild_parameter', '_rebuild_sparse_tensor'),
    'torch.serialization': ('_get_layout',),
}
_PLAIN: dict[tuple[str, str], Any] = {
    ('collections', 'OrderedDict'): collections.OrderedDict,
    ('collections', 'deque'): collections.deque,
    ('collections', 'defaultdict'): _defaultdict,
    ('torch.nn.parameter', 'Parameter'): torch.nn.Parameter,
    ('mmengine.logging.history_buffer', 'HistoryBuffer'): HistoryBuffer,
}
_BUILTINS = {name: getattr(__import__('builtins'), name)
             for name in ('set', 'frozenset', 'complex', 'slice', 'range', 'bytearray', 'dict', 'list', 'tuple', 'int', 'float',
                          'bool', 'str', 'bytes')}
# Protocol 2, which torch.save writes, calls Python 3's int by its Python 2 name.
_BUILTINS.update(long=int, unicode=str)
_INERT_DICTS = {('mmengine.config.config', 'ConfigDict'), ('mmengine.logging.message_hub', 'MessageHub'),
                ('addict.addict', 'Dict'), ('addict', 'Dict')}
_INERT = {('datetime', name) for name in ('datetime', 'date', 'time', 'timedelta', 'timezone')} | {
    ('_codecs', 'encode'), ('pathlib', 'PosixPath'), ('pathlib', 'PurePosixPath'), ('pathlib', 'WindowsPath'),
    ('torch', 'Generator')}
_NUMPY_NAMES = ('scalar', '_reconstruct', '_frombuffer', 'ndarray', 'dtype')


_InPython: Any = pickle._Unpickler  # type: ignore[attr-defined]


class Unpickler(_InPython):  # type: ignore[misc]
    """Restrict `pickle.Unpickler` to known classes, and set the state of new objects only.

    Python's own form of the class, because the one in C has no hook for BUILD, and BUILD sets attributes on whatever lies on the stack:
    also on the classes and functions that ``find_class`` hands out, for the rest of the process.
    """

    dispatch = dict(_InPython.dispatch)

    def load_build(self) -> None:
        target = self.stack[-2]
        if not isinstance(target, (torch.Tensor, collections.OrderedDict, Inert, InertDict)):
            raise RefusedName(f'attributes on {getattr(target, "__name__", type(target).__name__)}')
        if isinstance(target, collections.OrderedDict):
            # A state dict's _metadata, which nothing here reads; other attributes would hide the dict's own methods.
            self.stack.pop()
            return
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def find_class(self, module: str, name: str) -> Any:
        if module in ('builtins', '__builtin__') and name == 'getattr':
            return _inert_getattr
        if module in ('builtins', '__builtin__') and name in _BUILTINS:
            return _BUILTINS[name]
        if module == 'torch' and (name in _TORCH_DTYPES or name in _TORCH_TYPES or name.endswith('Storage')):
            return getattr(torch, name)
        if module == 'torch.storage' and name.endswith('Storage'):
            return getattr(torch.storage, name)
        if name in _REBUILDERS.get(module, ()):
            return getattr(__import__(module, fromlist=[name]), name)
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        if (module, name) in _INERT_DICTS:
            return InertDict
        if (module, name) in _INERT or self._is_numpy_metadata(module, name):
            return Inert
        raise RefusedName(_name(module, name))

    @staticmethod
    def _is_numpy_metadata(module: str, name: str) -> bool:
        """Return arrays, scalars and dtypes of numpy 1 (``numpy.core``) and 2 (``numpy._core``, ``numpy.dtypes``)."""
        if module == 'numpy.dtypes':
            return name.endswith('DType')
        return module in ('numpy', 'numpy.core.multiarray', 'numpy._core.multiarray', 'numpy.core.numeric',
                          'numpy._core.numeric') and (name in _NUMPY_NAMES or name.endswith(('64', '32', '16', '8', 'bool_')))


def _name(module: str, name: str) -> str:
    """Return the name as in an import; in a file that is no pickle it can have any length and content."""
    full = f'{module}.{name}'
    if not all(part.isidentifier() for part in full.split('.')):
        raise pickle.UnpicklingError('it is not a pickle')
    return full


def load(file: Any, **kwargs: Any) -> Any:
    """Load with the restricted reader, as torch's legacy format asks of ``pickle.load``."""
    return Unpickler(file, **kwargs).load()
