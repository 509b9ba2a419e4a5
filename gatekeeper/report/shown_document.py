"""What a command shows people, as a tree; three renderers make text, Markdown or HTML of it.

The content of a command is written once, here as plain values. How wide it is, in which colour and with which signs is
the renderer's. Strings are text that may be foreign: each renderer makes them safe for its format.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Code:
    """Something to type or to look up: a metric, a path."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    """The piece of a line that a reader looks for."""

    text: str


@dataclass(frozen=True, slots=True)
class Sign:
    """The sign and the words of an outcome, in its colour or in that of *kind*."""

    outcome: str
    words: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class RunLink:
    """The name of a run, with a link to its report where a page lies beside the folder of runs."""

    text: str
    run: str


@dataclass(frozen=True, slots=True)
class Remarks:
    """Several remarks in one cell."""

    parts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, made when a page is; Markdown leaves it out, because a table or a list has its figures."""

    draw: Callable[[], str]
    text: str = ""
    """Its place in a text: a row of bars; empty for none."""


Piece: TypeAlias = str | Code | Strong | Sign | RunLink | Remarks | Chart
Content: TypeAlias = Piece | tuple[Piece, ...]
"""What stands in a cell, or on a line: one piece or several."""


def join_pieces(pieces: tuple[Piece, ...], write: Callable[[Piece], str]) -> str:
    """Return a line of text: a space between its pieces, a semicolon before remarks."""
    line = ""
    for piece in pieces:
        written = write(piece)
        separator = "; " if isinstance(piece, Remarks) else " "
        line += f"{separator}{written}" if line and written else written
    return line


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    pairs: Sequence[tuple[str, Content]]
    kind: str = "facts"
    """How they are laid out on a page."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under their heads."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Content]]
    kind: str = "plainly"
    """The widths of its columns on a page."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One thing a line; *ordered* where they follow each other."""

    items: Sequence[Content]
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph that explains, or says less than the rest."""

    text: Content


@dataclass(frozen=True, slots=True)
class Command:
    """A command to paste, and what it is for; it is never broken."""

    text: str
    about: str = "next"


@dataclass(frozen=True, slots=True)
class Section:
    """A part with a title, and on a page an introduction *about* it; inside of another one it is a lesser part."""

    title: str
    nodes: Sequence["Node"]
    about: str = ""
    name: str = ""
    """Where links to it lead; empty: its title."""


@dataclass(frozen=True, slots=True)
class Fold:
    """What is closed until it is clicked."""

    title: str
    nodes: Sequence["Node"] = ()
    file: str = ""
    """The text of a file, as it is; on a page only."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Parts that stand beside each other where there is room."""

    nodes: Sequence["Node"]


Node: TypeAlias = Facts | Table | Listing | Chart | Note | Command | Section | Fold | Beside


@dataclass(frozen=True, slots=True)
class Document:
    """All that a command shows: the answer in a sentence, and what it rests on."""

    about: str
    """What it is, in a word or two."""
    headline: str
    nodes: Sequence[Node]
    more: Sequence[Content] = ()
    """Further sentences of the answer."""
    outcome: str = ""
    """The sign and colour of the headline; empty for none."""
    banner: str = ""
    """What a reader of a page must know before the headline."""
    marker: str = ""
    """The first line in Markdown, by which a job finds its own comment of an earlier push."""
