"""Define the formats that a model can be lowered to, one package for each; importing this package registers them.

How a format takes a single operation is said in `ops`, not here.
"""
from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f'{__name__}.{_module.name}')

from .base import Backend  # noqa: E402
from .building import build_backend, build_backends, installed_backends, named_backends  # noqa: E402

__all__ = ['Backend', 'build_backend', 'build_backends', 'installed_backends', 'named_backends']
