"""Replace upstream functions while a model is lowered, and always restore them."""
from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any, ClassVar

from .errors import ConfigError, PatchError
from .registry import PATCHES

ABSENT = object()


@dataclass(frozen=True)
class Environment:
    """Describe the machine to a patch, which decides whether it applies."""

    device: str = 'cpu'
    versions: dict[str, Any] = field(default_factory=dict)

    @property
    def compiled_ops(self) -> bool:
        return self.versions.get('mmcv_ops') == 'compiled'


class Patch:
    """Replace `targets`, dotted names that are looked up when the patch is applied (so this imports without mmdet or mmseg).

    `upstream` says on which versions the replacement was compared with the original.
    """

    targets: ClassVar[tuple[str, ...]]
    upstream: ClassVar[str]

    def check(self, env: Environment) -> str | None:
        """Return why the patch does not apply here, or None."""
        return None

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function to use instead of `original`, of the same signature, with ``self`` or ``cls`` if it has one."""
        raise NotImplementedError


@dataclass(frozen=True)
class Applied:
    """Hold a report row: `skipped` is the reason, or None if the patch was applied."""

    name: str
    why: str
    upstream: str
    targets: tuple[str, ...]
    skipped: str | None = None
    # How often the model called a replacement: a patch that is on and never called did nothing to this model.
    calls: Counter[str] = field(default_factory=Counter, compare=False)

    @property
    def acted(self) -> bool:
        return self.calls.total() > 0

    def untried(self, versions: Mapping[str, Any]) -> str | None:
        """Return which installed version the patch was not compared with, in words; None if it was."""
        installed = {name.replace('mmcv-lite', 'mmcv'): str(value).partition('+')[0] for name, value in versions.items()}
        other = [f'{package} {installed[package]}' for package, _, version in
                 (part.strip().partition(' ') for part in self.upstream.split(','))
                 if self.skipped is None and package in installed and installed[package] != version]
        return f'{self.name} was checked on {self.upstream}, here is {", ".join(other)}' if other else None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), 'calls': self.calls.total()}


@contextmanager
def patched(patches: str | Sequence[Any] = 'auto', env: Environment | None = None) -> Iterator[list[Applied]]:
    """Apply `patches`, yield a row for each, and undo them, also after an error half-way.

    Args:
        patches: ``'auto'`` (all registered), or a list of names, of config dicts and of `Patch` objects, which may hold ``'auto'``.

    Raises:
        PatchError: a target does not exist in the installed version, or none of the packages that a patch is for is installed although it
            was asked for by name.
        ConfigError: a name is not registered.
    """
    env = env or Environment()
    named = {type(patch).__name__ for patch in resolve([item for item in _listed(patches) if item != 'auto'])}
    with ExitStack() as undo:
        yield [_put_on(patch, env, undo, type(patch).__name__ in named) for patch in resolve(patches)]


def resolve(patches: str | Sequence[Any]) -> list[Patch]:
    """Return patches for names, dicts and objects, each once, in the registry's order for ``'auto'``."""
    PATCHES.import_from_location()
    patches_by_name: dict[str, Patch] = {}
    for item in _listed(patches):
        if isinstance(item, Patch):
            patches_by_name[type(item).__name__] = item
        elif item == 'auto':
            for name, cls in PATCHES.module_dict.items():
                patches_by_name.setdefault(name, cls())
        else:
            spec = {'type': item} if isinstance(item, str) else dict(item)
            if spec.get('type') not in PATCHES.module_dict:
                raise ConfigError(f"export.patches names {spec.get('type')!r}, which is not registered; there are "
                                 f"{', '.join(PATCHES.module_dict)}. A patch of your own: name its module in custom_imports")
            patches_by_name[spec['type']] = PATCHES.build(spec)
    return list(patches_by_name.values())


def _listed(patches: str | Sequence[Any]) -> Sequence[Any]:
    return [patches] if isinstance(patches, str) else patches


def _put_on(patch: Patch, env: Environment, undo: ExitStack, named: bool) -> Applied:
    row = Applied(type(patch).__name__, (type(patch).__doc__ or '').strip().split('\n')[0], patch.upstream, patch.targets)
    targets = [target for target in patch.targets if _in_use(target)]
    if named and not any(_installed_at_all(target.split('.')[0]) for target in patch.targets):
        raise PatchError(f'{row.name} is for {", ".join(patch.targets)}, and nothing of that is installed; is a name misspelt?')
    reason = patch.check(env) or (None if targets else 'the model does not use it')
    if reason:
        return replace(row, skipped=reason)
    for target in targets:
        _replace(target, patch, undo, row.calls)
    return row


def _in_use(target: str) -> bool:
    """Return whether the target's module has been imported: a built model cannot run what it has not imported.

    A name that an imported module does not have, and that is no module either, counts as in use: it is an error for `_locate`.
    """
    parts = target.split('.')
    cut = max((cut for cut in range(1, len(parts)) if '.'.join(parts[:cut]) in sys.modules), default=0)
    if cut == 0:
        return False
    parent, name = '.'.join(parts[:cut]), parts[cut]
    if hasattr(sys.modules[parent], name) or not hasattr(sys.modules[parent], '__path__'):
        return True
    return importlib.util.find_spec(f'{parent}.{name}') is None


def _counted(function: Any, calls: Counter[str], target: str) -> Any:
    """Wrap `function` to count its calls; anything but a plain function is returned as it is, and counts as called."""
    if not isinstance(function, FunctionType):
        calls[target] += 1
        return function

    @functools.wraps(function)
    def counting(*args: Any, **kwargs: Any) -> Any:
        calls[target] += 1
        return function(*args, **kwargs)

    return counting


def _replace(target: str, patch: Patch, undo: ExitStack, calls: Counter[str]) -> None:
    owner, name = _locate(target)
    # From the class's own dict, so that a staticmethod is put back as one and an inherited method stays inherited.
    original = vars(owner).get(name, ABSENT)
    current = getattr(owner, name)
    new: Any = _counted(patch.replacement(target, original.__func__ if isinstance(original, classmethod) else current), calls, target)
    if isinstance(original, (staticmethod, classmethod)):
        new = type(original)(new)
    _set(owner, name, original, new, undo)
    if isinstance(owner, ModuleType):
        undo.callback(_restore_late_copies, new, current, owner)
        for module, binding in _copies(current, owner):
            _set(module, binding, current, new, undo)


def _restore_late_copies(new: Any, original: Any, home: ModuleType) -> None:
    """Restore bindings of the replacement in modules that were imported while the patch was applied."""
    for module, binding in _copies(new, home):
        if module.__name__ != getattr(new, '__module__', None):
            setattr(module, binding, original)


def _set(owner: Any, name: str, original: Any, new: Any, undo: ExitStack) -> None:
    if original is ABSENT:
        undo.callback(delattr, owner, name)
    else:
        undo.callback(setattr, owner, name, original)
    setattr(owner, name, new)


def _locate(target: str) -> tuple[Any, str]:
    """Split ``package.module.Class.method`` into its owner and the last name, importing what has to be."""
    parts = target.split('.')
    for cut in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module('.'.join(parts[:cut]))
        except ModuleNotFoundError as exc:
            if exc.name and not target.startswith(exc.name):
                raise PatchError(f'{target}: importing it needs {exc.name}, which is not installed') from exc
            continue
        try:
            for part in parts[cut:-1]:
                owner = getattr(owner, part)
            getattr(owner, parts[-1])
        except AttributeError as exc:
            raise PatchError(f'{target} does not exist in {_installed(parts[0])}: {exc}. The patch was written for another version; '
                             'leave it out with export.patches, or report it') from exc
        return owner, parts[-1]
    raise PatchError(f'{target} does not exist in {_installed(parts[0])}')


def _installed_at_all(package: str) -> bool:
    return package in sys.modules or importlib.util.find_spec(package) is not None


def _installed(package: str) -> str:
    version = getattr(sys.modules.get(package), '__version__', None)
    return f'{package} {version}' if version else package


def _copies(original: Any, home: ModuleType) -> list[tuple[ModuleType, str]]:
    """Return the other modules that hold the same object, by ``from x import y``."""
    copies = []
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType) or module is home:
            continue
        for name, value in list(vars(module).items()):
            if value is original:
                copies.append((module, name))
    return copies
