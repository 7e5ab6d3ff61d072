"""Define the formats that a model can be lowered to; importing this package registers them."""
from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f'{__name__}.{_module.name}')

from .base import Backend, build_backend, build_backends, installed_backends, named_backends  # noqa: E402

__all__ = ['Backend', 'build_backend', 'build_backends', 'installed_backends', 'named_backends']
