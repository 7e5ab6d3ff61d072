"""Find tensors that ``model.to(device)`` does not move: their owner, name and line."""
from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from .findings import Place
from .tags import CPU, Tag

Held = tuple[Tensor, str, str, Callable[[], Place]]
DEPTH = 5
# What nn.Module keeps for itself.
_OWN = frozenset(vars(nn.Module()))
_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, types.ModuleType)


def unregistered_tensors_of(model: nn.Module, names: Mapping[int, str]) -> dict[int, tuple[Tensor, Tag]]:
    """Return by id the tensor and a Tag with kind, words and line. The tensor is kept, so that the id stays valid.

    Looks through plain attributes, lists, dicts, dataclasses and other objects, class attributes, and the closures and globals that
    the modules' methods name. Registered parameters are no finding under whatever second name.
    """
    registered = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    tensors: dict[int, tuple[Tensor, Tag]] = {}
    looked_at: set[int] = set()
    for module in model.modules():
        for tensor, kind, what, locate in _held_by(module, names[id(module)], looked_at):
            if id(tensor) not in registered and id(tensor) not in tensors:
                tensors[id(tensor)] = tensor, Tag(CPU, kind, what, locate(), holder=(names[id(module)], what))
    return tensors


def stop_gradients(model: nn.Module) -> None:
    """Disable gradients of all tensors that the model uses, also unregistered ones, permanently.

    A file holds no training state; ``requires_grad`` keeps freeze from folding anything, and a hidden tensor that has it cannot be traced.
    """
    hidden = unregistered_tensors_of(model, {id(module): name for name, module in model.named_modules()})
    for tensor in (*model.parameters(), *(tensor for tensor, _ in hidden.values())):
        if tensor.is_leaf:
            tensor.requires_grad_(False)


def _held_by(module: nn.Module, path: str, looked_at: set[int]) -> Iterator[Held]:
    """Yield the attributes of the module, and those of each class once."""
    cls = type(module)
    for name, value in vars(module).items():
        if name not in _OWN:
            yield from _walk(value, f'self.{name}', 'attribute', partial(assigned, cls, name, path), looked_at)
    for base in _own_classes(cls):
        if id(base) in looked_at:
            continue
        looked_at.add(id(base))
        for name, value in vars(base).items():
            function = getattr(value, '__func__', value)
            if isinstance(function, types.FunctionType):
                yield from _walk(function, base.__name__, 'global', partial(Place, module=path), looked_at)
            elif not name.startswith('__'):
                yield from _walk(value, f'{base.__name__}.{name}', 'attribute', partial(assigned, cls, name, path), looked_at)


def _walk(value: Any, name: str, kind: str, locate: Callable[[], Place], visited: set[int], depth: int = 0) -> Iterator[Held]:
    """Yield the tensors in `value`, each with its kind and name. How to find its line comes with it."""
    if isinstance(value, Tensor):
        yield value, kind, _words(kind, name), locate
        return
    if depth > DEPTH or isinstance(value, (*_PLAIN, type)) or id(value) in visited:
        return
    inner = 'container' if kind == 'attribute' else kind
    if isinstance(value, nn.Module):
        for tensor in (*value.parameters(), *value.buffers()):
            yield tensor, 'parameter', f'{name}, a module that .to() does not see', locate
        return
    visited.add(id(value))
    if isinstance(value, (types.FunctionType, types.MethodType)):
        yield from _walk_function(getattr(value, '__func__', value), locate, visited, depth)
    for suffix, item in _items(value):
        yield from _walk(item, f'{name}{suffix}', inner, locate, visited, depth + 1)


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f'[{key!r}]', item) for key, item in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f'[{number}]', item) for number, item in enumerate(value)]
    if isinstance(value, partial):
        return [('.func', value.func), ('.args', value.args), ('.keywords', value.keywords)]
    if _is_users(type(value).__module__) and not isinstance(value, types.FunctionType):
        return [(f'.{key}', item) for key, item in getattr(value, '__dict__', {}).items()]
    return []


def _walk_function(function: Any, locate: Callable[[], Place], visited: set[int], depth: int) -> Iterator[Held]:
    if not _is_users(function.__module__ or ''):
        return
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            content = cell.cell_contents
        except ValueError:  # Not filled yet.
            continue
        line_of = partial(_line_in, function.__code__.co_filename, variable, locate)
        yield from _walk(content, variable, 'global', line_of, visited, depth + 1)
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            place = partial(_line_in, function.__code__.co_filename, name, locate)
            yield from _walk(function.__globals__[name], name, 'global', place, visited, depth + 1)


def _words(kind: str, name: str) -> str:
    return {'attribute': f'{name}, a plain tensor attribute', 'container': f'{name}, a tensor in a container',
            'global': f'{name}, a tensor of a closure or of the module file'}[kind]


def _own_classes(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if _is_users(base.__module__)]


def _is_users(module: str) -> bool:
    return module.split('.')[0] not in ('torch', 'builtins', 'numpy', 'mmengine', 'logging', 'collections', 'typing', 'enum', 'abc')


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def assigned(cls: type, name: str, path: str) -> Place:
    """Return the line that assigns ``self.name`` (or the class's ``name``), also in base classes."""
    for base in _own_classes(cls):
        try:
            lines, first = inspect.getsourcelines(base)
            file = inspect.getsourcefile(base) or ''
            tree = ast.parse(textwrap.dedent(''.join(lines)))
        except (OSError, TypeError, SyntaxError):
            continue
        line = _assignment(tree, name, of_self=True)
        if line:
            return Place(file, first + line - 1, path)
    return Place(module=path)


@cache
def _parsed(file: str) -> ast.Module | None:
    try:
        with open(file) as source:
            return ast.parse(source.read())
    except (OSError, SyntaxError):
        return None


def _line_in(file: str, name: str, locate: Callable[[], Place]) -> Place:
    tree = _parsed(file)
    return Place(file, _assignment(tree, name, of_self=False) if tree else 0, locate().module)


def _assignment(tree: ast.AST, name: str, of_self: bool) -> int:
    """Return the last line that assigns `name` or adds to it; 0 if there is none."""
    last_line = 0
    for node in ast.walk(tree):
        targets: list[Any] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ('append', 'extend', 'update'):
            targets = [node.func.value]
        if any(_binds(target, name, of_self) for target in targets):
            last_line = max(last_line, getattr(node, 'lineno', 0))
    return last_line


def _binds(target: Any, name: str, of_self: bool) -> bool:
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_binds(item, name, of_self) for item in target.elts)
    if isinstance(target, ast.Attribute):
        return of_self and target.attr == name
    return isinstance(target, ast.Name) and target.id == name
