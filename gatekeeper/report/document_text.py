"""A document as plain text: whole lines, which a terminal breaks between words; the answer comes first."""

from collections.abc import Sequence

from gatekeeper.core.text import aligned
from gatekeeper.report.outcome_signs import spaced
from gatekeeper.report.shown_document import (
    Command,
    Document,
    Facts,
    Fold,
    Line,
    Listing,
    Node,
    Note,
    Remarks,
    Section,
    Sign,
    Table,
    join_pieces,
)


def render_text(document: Document) -> str:
    """Return the text: the headline, and then the parts."""
    answer = [document.headline, *map(_write, document.more), ""] if document.headline else []
    return "\n".join([*answer, *render_nodes(document.nodes)]) + "\n"


def render_nodes(nodes: Sequence[Node]) -> list[str]:
    """Return the lines of the parts; a section has an empty line before it."""
    lines: list[str] = []
    for node in nodes:
        match node:
            case Facts(pairs):
                lines += [f"{name}: {_write(value)}" for name, value in pairs]
            case Table(heads, rows) if rows:
                cells = [[_write(cell) for cell in row] for row in rows]
                lines += aligned([heads, *cells] if any(heads) else cells)
            case Listing(items, ordered):
                lines += [
                    f"{number}. {_write(item)}" if ordered else _write(item) for number, item in enumerate(items, 1)
                ]
            case Note(text):
                lines.append(_write(text))
            case Command(text, about):
                lines.append(f"{about}: {text}")
            case Section(title, children) | Fold(title, children):
                inside = (f"  {line}".rstrip() for line in render_nodes(children))
                lines += [*([""] if lines else []), title, *inside]
    return lines


def _write(line: Line) -> str:
    match line:
        case str():
            return line
        case tuple():
            return join_pieces(line, _write)
        case Sign(outcome, words):
            return words or spaced(outcome)
        case Remarks(parts):
            return "; ".join(parts)
        case _:
            return line.text
