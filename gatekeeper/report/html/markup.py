"""HTML and SVG, escaped by construction: only what this module makes counts as markup."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


class Markup(str):
    """Text that is markup already; every other string is escaped where it is inserted."""

    __slots__ = ()


VOID = frozenset({"br", "hr", "meta", "wbr"})


def el(name: str, /, *children: str | Markup | None, **attributes: str | float | None) -> Markup:
    """Return an element; `class_` writes class, `data_tip` data-tip, an attribute that is None is left out."""
    written = "".join(
        f' {_attribute(key)}="{escape(_text(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*parts: str | Markup | None) -> Markup:
    """Join pieces; what is not markup is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part, quote=True) for part in parts if part))


def breakable(name: str) -> Markup:
    """Write a name_with_underscores so that a narrow column may break it at them."""
    return join(*(piece for part in name.replace("_", "_\n").split("\n") for piece in (part, el("wbr"))))


def section(title: str, *parts: Markup | None, about: str = "") -> Markup:
    """Return a section of the page, with an introduction *about* it."""
    return el("section", el("h2", title), el("p", about, class_="dim") if about else None, *parts)


def note(text: str) -> Markup:
    """Return a small remark on a line of its own."""
    return el("span", text, class_="dim note")


def facts(pairs: Iterable[tuple[str, str]], kind: str) -> Markup:
    """Return names and values as a list."""
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in pairs), class_=kind)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> Markup:
    """Return a table; on a narrow screen its rows become cards, so each cell names its column."""
    head = el("thead", el("tr", *(el("th", one, scope="col") for one in heads)))
    body = (
        el("tr", *(el("td", el("div", cell), data_head=name) for name, cell in zip(heads, row, strict=True)))
        for row in rows
    )
    return el("table", head, el("tbody", *body), class_=kind)


def embedded(document: Any, identity: str) -> Markup:
    """Return JSON inside a script element; <, > and & are escaped, so that nothing in it can end the element."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(f'<script type="application/json" id="{escape(identity, quote=True)}">{text}</script>')


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.5g}" if isinstance(value, float) else str(value)
