"""Paragraphs on a terminal."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

HANG = 4
"""Columns by which the later lines of a paragraph are indented."""
WIDEST = 120
"""Longer lines are hard to read."""


def hanging_lines(text: Text, console: Console, *, indent: int = 0) -> Iterator[Text]:
    """Break a paragraph into lines, the later ones indented further than the first."""
    for number, line in enumerate(text.wrap(console, max(20, console.width - indent - HANG))):
        line.rstrip()
        yield Text(" " * (indent + HANG * (number > 0))) + line
