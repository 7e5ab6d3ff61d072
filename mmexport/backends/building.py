"""Build backends of their names and options."""
from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ..errors import ConfigError, SetupError, suggestion
from ..registry import BACKENDS
from .base import Backend


def build_backend(spec: str | dict[str, Any]) -> Backend:
    """Build a backend from a config dict (``dict(type='TorchScript')``) or a command-line word (``torchscript``).

    Raises:
        ConfigError: there is no such backend.
        SetupError: it needs what is not installed.
    """
    classes = _words()
    word = isinstance(spec, str)
    if isinstance(spec, str):
        spec = {'type': classes.get(spec.lower(), spec)}
    if spec.get('type') not in BACKENDS.module_dict:
        name = str(spec.get('type'))
        # A dict names the class, the command line its word.
        near = get_close_matches(name.lower(), classes, 1)
        guess = f' (did you mean {near[0] if word else classes[near[0]]}?)' if near else ''
        raise ConfigError(f"there is no backend {name!r}{guess}; there are {', '.join(sorted(classes))}, in a dict as type: "
                          f"{', '.join(sorted(classes.values()))}")
    options = {key: value for key, value in spec.items() if key != 'type'}
    # The registry's build() is not used: it warns if the default scope is another one.
    cls = BACKENDS.module_dict[spec['type']]
    _check_options(cls, options)
    try:
        backend: Backend = cls(**options)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f'export.backends: {spec}: {exc}') from exc
    reason = backend.unavailable()
    if reason:
        raise SetupError(f'{backend.name}: {reason}')
    return backend


def _check_options(cls: type[Backend], options: Mapping[str, Any]) -> None:
    known = inspect.signature(cls).parameters
    if any(option.kind is option.VAR_KEYWORD for option in known.values()):
        return
    for key in options:
        if key not in known:
            raise ConfigError(f'export.backends: {cls.__name__} has no option {key!r}{suggestion(key, known)}; '
                              f"it has {', '.join(known) or 'none'}")


def build_backends(specs: Any) -> list[Backend]:
    """Build the backends of ``export.backends``: one spec of `build_backend`, or a list of them.

    Raises:
        ConfigError: one backend is named twice.
    """
    backends = [build_backend(spec) for spec in (specs if isinstance(specs, (list, tuple)) else [specs])]
    names = [backend.name for backend in backends]
    if len(set(names)) < len(names):
        raise ConfigError(f'export.backends names one backend twice: {", ".join(names)}')
    return backends


def installed_backends() -> list[str]:
    """Return the words of ``--backend all``: every backend with an installed runtime, TorchScript first."""
    return [word for word, reason in availability().items() if reason is None]


def availability() -> dict[str, str | None]:
    """Return for each backend's word the reason why it is not available, or None; TorchScript first."""
    classes = sorted(_words().items(), key=lambda item: (item[0] != 'torchscript', item[0]))
    return {word: BACKENDS.module_dict[name]().unavailable() for word, name in classes}


def named_backends(words: Sequence[str]) -> list[str]:
    """Replace ``all`` by the installed backends; other words stay, also unknown ones, which `build_backend` refuses."""
    installed = installed_backends() if 'all' in words else []
    return [*installed, *(word for word in words if word != 'all' and word not in installed)]


def format_packages() -> list[str]:
    """Return the packages beside torch that can change a file, of every format."""
    return list(dict.fromkeys(package for cls in BACKENDS.module_dict.values() for package in cls.packages))


def backend_class(word: str) -> type[Backend]:
    """Return the class for a word of the command line or of a manifest."""
    return BACKENDS.module_dict[_words()[word]]  # type: ignore[no-any-return]


def _words() -> dict[str, str]:
    """Return the registered class name by command-line word."""
    BACKENDS.import_from_location()
    # A class derived from a backend inherits its word; the first one, mmexport's own, keeps it.
    classes: dict[str, str] = {}
    for name, cls in BACKENDS.module_dict.items():
        classes.setdefault(cls.name, name)
    return classes
