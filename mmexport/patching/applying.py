"""Replace upstream functions while a model is lowered, and always restore them."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from ..errors import ConfigError, PatchError, suggestion
from ..registry import PATCHES
from .patch import Applied, Environment, Patch
from .targets import in_use, installed_at_all, replace_target


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
                name = spec.get('type')
                close = suggestion(str(name), PATCHES.module_dict)
                raise ConfigError(f"export.patches names {name!r}, which is not registered{close}; there are "
                                 f"{', '.join(PATCHES.module_dict)}. A patch of your own: name its module in custom_imports")
            patches_by_name[spec['type']] = PATCHES.build(spec)
    return list(patches_by_name.values())


def _listed(patches: str | Sequence[Any]) -> Sequence[Any]:
    return [patches] if isinstance(patches, str) else patches


def _put_on(patch: Patch, env: Environment, undo: ExitStack, named: bool) -> Applied:
    row = Applied(type(patch).__name__, (type(patch).__doc__ or '').strip().split('\n')[0], patch.upstream, patch.targets)
    targets = [target for target in patch.targets if in_use(target)]
    if named and not any(installed_at_all(target.split('.')[0]) for target in patch.targets):
        raise PatchError(f'{row.name} is for {", ".join(patch.targets)}, and nothing of that is installed; is a name misspelt?')
    reason = patch.check(env) or (None if targets else 'the model does not use it')
    if reason:
        return replace(row, skipped=reason)
    for target in targets:
        replace_target(target, patch, undo, row.calls)
    return row
