"""A document as Markdown for a job's page or a comment on GitHub; drawings are left out."""

import re
from collections.abc import Sequence

from gatekeeper.core.text import one_line
from gatekeeper.report.data.glossary import in_words
from gatekeeper.report.outcome_signs import glyph_of, write_as_words
from gatekeeper.report.shown_document import (
    Beside,
    Chart,
    Code,
    Command,
    Content,
    Document,
    Facts,
    Fold,
    Listing,
    Node,
    Note,
    Remarks,
    Section,
    Sign,
    Strong,
    Table,
    join_pieces,
)

LONGEST = 600
"""Characters of one cell."""


def render_markdown(document: Document, marker: str = "") -> str:
    """Return the Markdown; a job finds its own comment again by the *marker* in the first line."""
    sign = f"{glyph_of(document.outcome)} " if document.outcome else ""
    blocks = [*([marker] if marker else []), f"## {sign}{escape(document.headline)}", *map(_write, document.more)]
    return "\n\n".join((*blocks, *render_nodes(document.nodes))) + "\n"


def render_nodes(nodes: Sequence[Node], level: int = 3) -> list[str]:
    """Return the blocks of the parts; titles have so many signs as their *level*."""
    blocks: list[str] = []
    for node in nodes:
        match node:
            case Facts(pairs):
                blocks.append("\n".join(f"- {escape(name)}: {_write(value)}" for name, value in pairs))
            case Table(heads, rows) if rows:
                lines = [[escape(head) for head in heads], ["---"] * len(heads)]
                lines += [[_write(cell) for cell in row] for row in rows]
                blocks.append("\n".join(f"| {' | '.join(cells)} |" for cells in lines))
            case Listing(items, ordered) if items:
                blocks.append("\n".join(f"{'1.' if ordered else '-'} {_write(item)}" for item in items))
            case Note(text):
                blocks.append(_write(text))
            case Command(text, about):
                blocks.append(f"{about[:1].upper()}{about[1:]}: {escape(text)}")
            case Beside(children):
                blocks += render_nodes(children, level)
            case Section(title, children):
                blocks += [f"{'#' * level} {escape(title)}", *render_nodes(children, level + 1)]
            case Fold(title, children):
                inside = render_nodes(children, level + 1)
                blocks += [f"<details><summary>{escape(title)}</summary>", *inside, "</details>"]
    return blocks


def _write(line: Content) -> str:
    match line:
        case str():
            written = escape(line)
        case tuple():
            written = join_pieces(line, _write)
        case Code(text):
            written = f"`{text}`"
        case Strong(text):
            written = f"**{escape(text)}**"
        case Sign(outcome, words):
            written = f"{glyph_of(outcome)} {escape(words or write_as_words(outcome))}"
        case Chart(text=text):
            written = escape(text)
        case Remarks(parts):
            written = "; ".join(map(escape, parts))
        case _:
            written = escape(line.text)
    return written


def escape(text: str) -> str:
    """Escape text for Markdown: one line, no markup, no table cell of its own, no kind of a finding."""
    flat = one_line(in_words(text))
    flat = flat if len(flat) <= LONGEST else f"{flat[:LONGEST]} …"
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#!|~@])", r"\\\1", flat)
