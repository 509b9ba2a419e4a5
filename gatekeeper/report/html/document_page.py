"""A document as one page of HTML that works offline, on a phone and in print; and what all pages share."""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from gatekeeper.core.system.run_directory import REPORT
from gatekeeper.report import shown_document as shown
from gatekeeper.report.html.markup import NONE, Markup, el, facts, join, note, section, table
from gatekeeper.report.outcome_signs import glyph_of, write_as_words


def render_page(document: shown.Document, *after: Markup, live: bool = False) -> str:
    """Return the page, with *after* behind its sections; it loads nothing, and its Content-Security-Policy forbids it.

    A *live* page asks its own server for the next one.
    """
    ribbon = el("p", document.banner, class_="ribbon") if document.banner else None
    lede = [el("p", _write(sentence), class_="lede") for sentence in document.more]
    begun = [render_node(node) for node in document.nodes if not isinstance(node, shown.Section)]
    sections = [render_node(node) for node in document.nodes if isinstance(node, shown.Section)]
    head = page_head(document.about, document.headline, *lede, *begun, kind=document.outcome, above=ribbon)
    return write_page(f"gatekeeper: {document.about}", head, sections, *after, live=live)


def render_node(node: shown.Node) -> Markup:
    """Return a part as HTML."""
    match node:
        case shown.Facts(pairs, kind):
            markup = facts([(name, _write(value)) for name, value in pairs], kind)
        case shown.Table(heads, rows, kind):
            markup = table(heads, [[_write(cell) for cell in row] for row in rows], kind) if rows else Markup("")
        case shown.Listing(items, ordered):
            lines = [el("li", _write(item)) for item in items]
            markup = el("ol" if ordered else "ul", *lines, class_="events") if lines else Markup("")
        case shown.Chart(draw):
            markup = Markup(draw())
        case shown.Note(text):
            markup = el("p", _write(text), class_="dim")
        case shown.Command(text, about):
            markup = el("p", el("b", f"{about[:1].upper()}{about[1:]}: "), el("code", text), class_="next")
        case shown.Section(title, children, about, name):
            markup = section(title, *map(_render_inner, children), about=about, name=name)
        case shown.Fold(title, children, file):
            parts = [el("pre", file, tabindex="0")] if file else map(_render_inner, children)
            markup = el("details", el("summary", title), *parts)
        case shown.Beside(children):
            few = " few" if all(isinstance(child, shown.Chart) for child in children) else ""
            markup = el("div", *map(_render_inner, children), class_=f"columns{few}") if children else Markup("")
    return markup


def _render_inner(node: shown.Node) -> Markup:
    """Return a part of a section, where a section is a lesser one."""
    if not isinstance(node, shown.Section):
        return render_node(node)
    about = el("p", node.about, class_="dim") if node.about else None
    return el("div", el("h3", node.title), about, *map(render_node, node.nodes))


def _write(line: shown.Content) -> Markup:
    match line:
        case str():
            markup = join(line)
        case tuple():
            markup = join(*_spread(line))
        case shown.Code(text):
            markup = el("code", text)
        case shown.Strong(text):
            markup = el("strong", text)
        case shown.Sign(outcome, words, kind):
            markup = pill(outcome, words, kind=kind)
        case shown.RunLink(text, run):
            markup = el("strong", el("a", text, href=(PurePath(run) / REPORT).as_posix()))
        case shown.Chart():
            markup = render_node(line)
        case shown.Remarks(parts):
            markup = join(*map(note, parts)) or NONE
    return markup


def _spread(pieces: tuple[shown.Content, ...]) -> Iterator[str]:
    """Yield the pieces of a line with a space between those that follow each other on it."""
    for number, piece in enumerate(pieces):
        yield " " if number and not isinstance(piece, shown.Remarks) else ""
        yield _write(piece)


def write_page(title: str, hero: Markup, parts: Sequence[Markup], *after: Markup, live: bool = False) -> str:
    """Return a page with this beginning and these sections, in our style; *live* asks its server for the next one."""
    style, script = _file("page.css"), _file("page.js") + (_file("live.js") if live else "")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_rules(style, script, live=live)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        el("style", Markup(style)),
    )
    tip = el("div", id="tip", role="status", hidden="hidden")
    body = el("body", hero, _contents(parts), el("main", *parts), *after, tip, el("script", Markup(script)))
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


@cache
def _file(name: str) -> str:
    return files("gatekeeper.report.html").joinpath(name).read_text(encoding="utf-8")


def _rules(style: str, script: str, *, live: bool) -> str:
    """Return the Content-Security-Policy: this style and this script by their digests, nothing else from anywhere.

    The page of a run under way may ask its own server for the next version.
    """
    digests = (base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in (style, script))
    allowed = (f"{kind} 'sha256-{digest}'" for kind, digest in zip(("style-src", "script-src"), digests, strict=True))
    ask = ("connect-src 'self'",) if live else ()
    return "; ".join(("default-src 'none'", *allowed, *ask, "base-uri 'none'", "form-action 'none'"))


def _contents(parts: Sequence[Markup]) -> Markup:
    """Return links to the sections, by the ids and titles that their headings have."""
    headings = (re.search(r'<h2 id="([^"]*)"><a [^>]*>(.*?)</a>', part) for part in parts)
    links = (el("a", Markup(heading[2]), href=f"#{heading[1]}") for heading in headings if heading)
    return el("nav", *links, aria_label="Contents")


def page_head(about: str, title: str, *parts: Markup | None, kind: str = "", above: Markup | None = None) -> Markup:
    """Return the beginning of a page: what it is *about*, and its *title* with the sign and colour of its *kind*."""
    glyph = sign(glyph_of(kind), "glyph") if kind else None
    eyebrow = el("p", "gatekeeper", el("span", f" · {about}"), class_="eyebrow")
    heading = el("h1", glyph, el("span", title))
    return el("header", above, eyebrow, heading, *parts, class_=f"hero {kind}".strip())


def sign(glyph: str, kind: str | None = None) -> Markup:
    """Return a sign that a screen reader passes over: the word stands beside it."""
    return el("span", glyph, class_=kind, aria_hidden="true")


def pill(outcome: str, word: str = "", *, kind: str = "", title: str | None = None) -> Markup:
    """Return the sign and the *word* of an outcome in its colour, or in that of *kind*."""
    text = join(sign(glyph_of(outcome)), f" {word or write_as_words(outcome)}")
    return el("span", text, class_=f"pill {kind or outcome}", title=title)
