"""Replace upstream functions while a model is lowered, and always restore them."""
from .applying import patched, resolve
from .patch import Applied, Environment, Patch

__all__ = ['Applied', 'Environment', 'Patch', 'patched', 'resolve']
