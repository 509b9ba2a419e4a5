"""What pages of a run, of many runs and of a server share: their head, the sign of an outcome, a link to a run."""

from pathlib import PurePath

from gatekeeper.core.system.run_directory import REPORT
from gatekeeper.report import phrases
from gatekeeper.report.html.markup import Markup, el, join

OTHER_SIGNS = {"no_verdict": "!", "unfinished": "‖", "open": "…", "excluded": "-", "plain": "○"}
"""The signs of what is no outcome of a run; those of outcomes are in `phrases.GLYPHS`."""


def page_head(about: str, title: str, *parts: Markup | None, kind: str = "", above: Markup | None = None) -> Markup:
    """Return the beginning of a page: what it is *about*, and its *title* with the sign and colour of its *kind*."""
    glyph = sign("!" if kind == "demo" else glyph_of(kind), "glyph") if kind else None
    eyebrow = el("p", "gatekeeper", el("span", f" · {about}"), class_="eyebrow")
    heading = el("h1", glyph, el("span", title))
    return el("header", above, eyebrow, heading, *parts, class_=f"hero {kind}".strip())


def glyph_of(outcome: str) -> str:
    """Return the sign of an outcome."""
    return (phrases.GLYPHS | OTHER_SIGNS).get(outcome, "?")


def sign(glyph: str, kind: str | None = None) -> Markup:
    """Return a sign that a screen reader passes over: the word stands beside it."""
    return el("span", glyph, class_=kind, aria_hidden="true")


def pill(outcome: str, word: str = "", *, kind: str = "", title: str | None = None) -> Markup:
    """Return the sign and the *word* of an outcome in its colour, or in that of *kind*."""
    text = join(sign(glyph_of(outcome)), f" {word or phrases.spaced(outcome)}")
    return el("span", text, class_=f"pill {kind or outcome}", title=title)


def run_link(run: str, text: str) -> Markup:
    """Return a link to the report of a run, which a page beside the folder of runs finds."""
    return el("a", text, href=(PurePath(run) / REPORT).as_posix())
