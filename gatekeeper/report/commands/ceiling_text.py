"""What `gatekeeper ceiling` prints, and the sentences on the ceiling that other commands and the page show."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.core.text import aligned, last_part
from gatekeeper.core.units import show_ratio, show_seconds
from gatekeeper.report.commands import Document

USUAL_LENGTH = 4
"""The draft length that a sentence is about where none is in use."""
WIDE = 2.0
"""Bounds that are further apart than this factor decide nothing."""
LONGER = 0.05
"""Of a token: what the first round of an answer takes longer is noise below it."""
Figures = Mapping[str, Any]
HEADS = ("drafted", "round", "in plain tokens", "at most", "pays above an acceptance of")


def ceiling_text(document: Document) -> str:
    """Return the costs of rounds as a table and what follows from them, or why there is none."""
    pair = last_part(document["target"]) + (f" with {last_part(document['draft'])}" if document["draft"] else "")
    if not document["measurable"]:
        return f"{pair}, {document['backend']}: not measurable here: {document['because']}\n"
    head = (
        f"{pair}, {document['backend']}, timed {document['timed']}: {document['turns']} turns, "
        f"{show_seconds(document['seconds'])} in all, {document['context_tokens']} tokens cached\n"
        f"plain decoding takes {show_seconds(document['plain_token_s'])} a token{_first(document)}\n"
    )
    rows = [HEADS, *map(cost_row, document["rounds"])]
    return "\n".join([head, *aligned(rows, right=0), "", *ceiling_sentences(document)]) + "\n"


def _first(document: Document) -> str:
    longer = document["first_round_longer_s"]
    shown = longer > LONGER * document["plain_token_s"]
    return f"; the first round of an answer takes {show_seconds(longer)} longer" if shown else ""


def ceiling_line(probe: Document) -> str:
    """Return what the ceiling of a probe means for the draft length that it tried, in one line."""
    return "; ".join(ceiling_sentences(probe["ceiling"], probe["setting"].get("num_draft_tokens")))


def ceiling_sentences(document: Document, length: int | None = None) -> list[str]:
    """Return what a measured ceiling means: the most a draft can give, and when one of *length* pays."""
    wanted = USUAL_LENGTH if length is None else length
    chosen = [cost for cost in document["rounds"] if cost["draft_length_tokens"] == wanted]
    free = [] if document["with_draft"] else ["Assumes a draft that takes no time; --draft times a real one"]
    return [_most(document), *map(_pays, chosen), *free] if _decided(document) else [_most(document)]


def _decided(document: Document) -> bool:
    bounds: tuple[float, float] = document["most_ratio"]["lo"], document["most_ratio"]["hi"]
    return bounds[1] <= WIDE * bounds[0]


def _most(document: Document) -> str:
    most, longest = document["most_ratio"], document["rounds"][-1]["draft_length_tokens"]
    draft, no_draft = ("This", "This draft cannot") if document["with_draft"] else ("A", "No draft can")
    if not _decided(document):
        return f"{draft} draft's most on this machine is not decided: too unsteady times, close other programs"
    if most["hi"] <= 1:
        return f"{no_draft} make this target faster on this machine"
    return (
        f"{no_draft} exceed {most['hi']:.2f}x on this machine (estimate {most['center']:.2f}x, at draft length "
        f"{most['draft_length_tokens']}; lengths 1 to {longest})"
    )


def _pays(cost: Figures) -> str:
    length, needed = cost["draft_length_tokens"], cost["break_even_acceptance_ratio"]
    price = cost["round_plain_tokens"]
    if cost["pays"] == "always":
        decided = "" if price["hi"] <= 1 else f" (not decided: it may take {price['hi']:.2f})"
        return f"draft length {length} pays at any acceptance: a round takes no longer than a plain token{decided}"
    if cost["pays"] == "never":
        decided = "" if price["lo"] >= length + 1 else f" (not decided: it may take {price['lo']:.2f})"
        return (
            f"draft length {length} never pays: a round takes the time of {price['center']:.2f} plain tokens and "
            f"yields at most {length + 1}{decided}"
        )
    return f"draft length {length} pays above an acceptance of {needed['center']:.2f} ({_acceptances(needed)})"


def _acceptances(needed: Figures) -> str:
    lo = "any" if needed["lo"] <= 0 else f"{needed['lo']:.2f}"
    return f"{lo} to {'none' if needed['hi'] >= 1 else format(needed['hi'], '.2f')}"


def cost_row(cost: Figures) -> tuple[str, ...]:
    """Return the figures of one draft length, under HEADS."""
    price, most, needed = cost["round_plain_tokens"], cost["most_ratio"], cost["break_even_acceptance_ratio"]
    pays = {"always": "any", "never": "none"}.get(cost["pays"]) or f"{needed['center']:.2f} ({_acceptances(needed)})"
    return (
        str(cost["draft_length_tokens"]),
        show_seconds(cost["round_s"]),
        f"{price['center']:.2f} [{price['lo']:.2f}, {price['hi']:.2f}]",
        show_ratio(most["center"], most["lo"], most["hi"]),
        pays,
    )
