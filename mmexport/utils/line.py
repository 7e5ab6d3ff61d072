"""Hold a line of text with its style, for reports and commands."""
from __future__ import annotations


class Line(str):
    """Hold a line of text with its style on a terminal. The style is in rich's words."""

    style: str

    def __new__(cls, text: str, style: str) -> Line:
        line = super().__new__(cls, text)
        line.style = style
        return line
