"""A document as Markdown for a job's page or a comment on GitHub; drawings are left out."""

import re
from collections.abc import Sequence

from gatekeeper.core.text import one_line
from gatekeeper.report import shown_document as shown
from gatekeeper.report.data.glossary import in_words
from gatekeeper.report.outcome_signs import glyph_of, write_as_words

LONGEST = 600
"""Characters of one cell."""


def render_markdown(document: shown.Document) -> str:
    """Return the Markdown: the headline, and then the parts."""
    sign = f"{glyph_of(document.outcome)} " if document.outcome else ""
    blocks = [document.marker] if document.marker else []
    blocks += [f"## {sign}{escape(document.headline)}", *map(_write, document.more)]
    return "\n\n".join((*blocks, *render_nodes(document.nodes))) + "\n"


def render_nodes(nodes: Sequence[shown.Node], level: int = 3) -> list[str]:
    """Return the blocks of the parts; titles have so many signs as their *level*."""
    blocks: list[str] = []
    for node in nodes:
        match node:
            case shown.Facts(pairs):
                blocks.append("\n".join(f"- {escape(name)}: {_write(value)}" for name, value in pairs))
            case shown.Table(heads, rows) if rows:
                lines = [[escape(head) for head in heads], ["---"] * len(heads)]
                lines += [[_write(cell) for cell in row] for row in rows]
                blocks.append("\n".join(f"| {' | '.join(cells)} |" for cells in lines))
            case shown.Listing(items, ordered) if items:
                blocks.append("\n".join(f"{'1.' if ordered else '-'} {_write(item)}" for item in items))
            case shown.Note(text):
                blocks.append(_write(text))
            case shown.Command(text, about):
                blocks.append(f"{about[:1].upper()}{about[1:]}: {escape(text)}")
            case shown.Beside(children):
                blocks += render_nodes(children, level)
            case shown.Section(title, children):
                blocks += [f"{'#' * level} {escape(title)}", *render_nodes(children, level + 1)]
            case shown.Fold(title, children):
                inside = render_nodes(children, level + 1)
                blocks += [f"<details><summary>{escape(title)}</summary>", *inside, "</details>"]
    return blocks


def _write(line: shown.Content) -> str:
    match line:
        case str():
            written = escape(line)
        case tuple():
            written = shown.join_pieces(line, _write)
        case shown.Code(text):
            written = f"`{text}`"
        case shown.Strong(text):
            written = f"**{escape(text)}**"
        case shown.Sign(outcome, words):
            written = f"{glyph_of(outcome)} {escape(words or write_as_words(outcome))}"
        case shown.Chart(text=text):
            written = escape(text)
        case shown.Remarks(parts):
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
