"""One file for each upstream thing that cannot be traced as it is; importing this changes nothing (see mmexport.patching)."""
from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f'{__name__}.{_module.name}')
