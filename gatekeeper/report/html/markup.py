"""HTML and SVG, escaped by construction: only what this module makes counts as markup."""

import html
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from gatekeeper.core.text import inert_json


class Markup(str):
    """Text that is markup already; every other string is escaped where it is inserted."""

    __slots__ = ()


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that HTML forbids, that reverse the text around them, or that UTF-8 cannot hold."""
VOID = frozenset({"br", "hr", "meta", "wbr"})


def el(name: str, /, *children: str | Markup | None, **attributes: str | float | None) -> Markup:
    """Return an element; `class_` writes class, `data_tip` data-tip, an attribute that is None is left out."""
    known = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{_escape_text(_text(value))}"' for key, value in known.items())
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*parts: str | Markup | None) -> Markup:
    """Join pieces; what is not markup is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else _escape_text(part) for part in parts if part))


def breakable(name: str) -> Markup:
    """Write a name_with_underscores so that a narrow column may break it at them."""
    return join(*(piece for part in name.replace("_", "_\n").split("\n") for piece in (part, el("wbr"))))


def section(title: str, *parts: Markup | None, about: str = "", name: str = "") -> Markup:
    """Return a section of the page, with an introduction *about* it; its title links to itself, by its *name*."""
    name = name or title.lower().replace(" ", "-")
    head = el("h2", el("a", title, href=f"#{name}"), id=name)
    return el("section", head, el("p", about, class_="dim") if about else None, *parts)


def note(text: str) -> Markup:
    """Return a small remark on a line of its own."""
    return el("span", text, class_="dim note")


def facts(pairs: Iterable[tuple[str, str]], kind: str) -> Markup:
    """Return names and values as a list."""
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in pairs), class_=kind)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> Markup:
    """Return a table; on a narrow screen its rows become cards, so each cell names its column."""
    head = el("thead", el("tr", *(el("th", title, scope="col") for title in heads)))
    body = (
        el("tr", *(el("td", el("div", cell), data_head=name) for name, cell in zip(heads, row, strict=True)))
        for row in rows
    )
    return el("table", head, el("tbody", *body), class_=kind)


def embed_json(document: Any, identity: str) -> Markup:
    """Return JSON inside a script element; what could end the element, and control characters, are escaped."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    text = inert_json(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
    return Markup(f'<script type="application/json" id="{_escape_text(identity)}">{text}</script>')


def _escape_text(text: str) -> str:
    """Return foreign text as HTML, with a mark in place of each control character."""
    escaped = html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text), quote=True)
    return escaped.replace("##", "#&#35;").replace("::", ":&#58;")  # a CI system reads the page's lines, too


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.5g}" if isinstance(value, float) else str(value)


NONE = el("span", "-", class_="dim none")
"""A cell of a table with nothing to say; on a narrow screen it is left out."""
