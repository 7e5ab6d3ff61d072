"""Hold the facts of one run, and render them."""
from .facts import Report

__all__ = ['Report']
