"""Run the command line as ``python -m mmexport``."""
from .cli import main

main()
