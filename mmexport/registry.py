"""Define the registries; mmengine imports this module when it meets the scope ``mmexport``.

A project of its own can add to them: ``@PATCHES.register_module()`` in a module named in its config's ``custom_imports``, then
``export.patches=['auto', 'MyPatch']``.
"""
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import Registry

BACKENDS = Registry('backend', scope='mmexport', locations=['mmexport.backends'])
PATCHES = Registry('patch', scope='mmexport', locations=['mmexport.patches'])
ADAPTERS = Registry('adapter', scope='mmexport', locations=['mmexport.adapters'])
HOOKS = Registry('hook', parent=MMENGINE_HOOKS, scope='mmexport', locations=['mmexport.export.hook'])
