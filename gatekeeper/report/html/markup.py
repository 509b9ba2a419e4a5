"""Markup: HTML and SVG that is escaped by construction; only what this module makes is taken as it is."""

import json
from html import escape
from typing import Any


class Markup(str):
    """Text that is markup already; every other string is escaped where it is put."""

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
    """Put pieces after each other, escaping what is not markup."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part, quote=True) for part in parts if part))


def breakable(name: str) -> Markup:
    """Write a name_with_underscores so that a narrow column may break it at them."""
    return join(*(piece for part in name.replace("_", "_\n").split("\n") for piece in (part, el("wbr"))))


def table(heads: tuple[str, ...], rows: list[Markup], kind: str) -> Markup:
    """Return a table whose rows become cards on a narrow screen."""
    head = el("thead", el("tr", *(el("th", one, scope="col") for one in heads)))
    return el("table", head, el("tbody", *rows), class_=kind)


def cell(head: str, *parts: str | Markup | None, class_: str | None = None) -> Markup:
    """Return a cell that names its column, for where the head is not shown."""
    return el("td", el("div", *parts), data_head=head, class_=class_)


def embedded(document: Any, identity: str) -> Markup:
    """Return JSON inside a script element that nothing in it can end: no <, > or & is left as it is."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(f'<script type="application/json" id="{escape(identity, quote=True)}">{text}</script>')


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.5g}" if isinstance(value, float) else str(value)
