"""A document as plain text: whole lines, which a terminal breaks between words; the answer comes first."""

from collections.abc import Sequence

from gatekeeper.core.text import align_columns
from gatekeeper.report import shown_document as shown
from gatekeeper.report.outcome_signs import write_as_words

TITLED = shown.Section | shown.Fold


def render_text(document: shown.Document) -> str:
    """Return the text: the headline, and then the parts."""
    answer = [document.headline, *map(_write, document.more)] if document.headline else []
    parts = render_nodes(document.nodes)
    if answer and parts and not isinstance(document.nodes[0], shown.Command):  # the next step stands with the answer
        answer.append("")
    return "\n".join([*answer, *parts]) + "\n"


def render_nodes(nodes: Sequence[shown.Node]) -> list[str]:
    """Return the lines of the parts; a section has an empty line before and behind it."""
    lines: list[str] = []
    for before, node in zip((None, *nodes), nodes, strict=False):
        block = _render_node(node)
        if lines and block and (isinstance(node, TITLED) or isinstance(before, TITLED)):
            lines.append("")
        lines += block
    return lines


def _render_node(node: shown.Node) -> list[str]:
    lines: list[str] = []
    match node:
        case shown.Facts(pairs):
            lines = [f"{name}: {_write(value)}" for name, value in pairs]
        case shown.Table(heads, rows) if rows:
            lines = _write_table(heads, rows)
        case shown.Chart(text=text) if text:
            lines = [text]
        case shown.Listing(items, ordered):
            lines = [f"{number}. {_write(item)}" if ordered else _write(item) for number, item in enumerate(items, 1)]
        case shown.Note(text):
            lines = [_write(text)]
        case shown.Command(text, about):
            lines = [f"{about}: {text}"]
        case shown.Beside(children):
            lines = render_nodes(children)
        case shown.Section(title, children) | shown.Fold(title, children):
            lines = [title, *(f"  {line}".rstrip() for line in render_nodes(children))]
    return lines


def _write_table(heads: Sequence[str], rows: Sequence[Sequence[shown.Content]]) -> list[str]:
    """Return the rows with aligned columns; remarks, which are long, stand below their row."""
    long = {number for row in rows for number, cell in enumerate(row) if isinstance(cell, shown.Remarks)}
    short = [[_write(cell) for number, cell in enumerate(row) if number not in long] for row in rows]
    first, *begun = align_columns([[head for number, head in enumerate(heads) if number not in long], *short])
    lines = [first] if any(heads) else []
    for row, begin in zip(rows, begun, strict=True):
        remarks = ((heads[number], _write(row[number])) for number in sorted(long))
        lines += [begin, *(f"    {head.lower()}: {remark}" for head, remark in remarks if remark)]
    return lines


def _write(line: shown.Content) -> str:
    match line:
        case str():
            return line
        case tuple():
            return shown.join_pieces(line, _write)
        case shown.Sign(outcome, words):
            return words or write_as_words(outcome)
        case shown.Remarks(parts):
            return "; ".join(parts)
        case _:
            return line.text
