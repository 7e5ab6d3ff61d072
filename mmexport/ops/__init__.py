"""Define operations that need another implementation ("form") in some formats: one package for each op.

An op is added here, with its forms, the form that each format takes, and a probe that checks it; a patch calls it.

No file has an ``mmexport::`` operator: every form is made of operators that the formats have. Importing this package registers the ops.
"""
from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f'{__name__}.{_module.name}')
