"""Lower to an AOTInductor package."""
from .backend import AOTInductor

__all__ = ['AOTInductor']
