"""Define the command ``mmexport``: one subcommand a module, which is imported when it is asked for."""
from .main import main

__all__ = ['main']
