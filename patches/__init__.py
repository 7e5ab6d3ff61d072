"""Define patches, one file for each upstream function that cannot be traced; importing changes nothing."""
from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f'{__name__}.{_module.name}')
