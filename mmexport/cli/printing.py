"""Print a report with colour on a terminal, and as plain text elsewhere."""
from __future__ import annotations

from collections.abc import Iterable

from ..utils.line import Line


def print_lines(lines: Iterable[str]) -> None:
    """Print each line in its style; a file, a pipe and ``NO_COLOR`` get plain text."""
    from rich.console import Console
    from rich.text import Text
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(line, line.style if isinstance(line, Line) else ''), markup=False)
