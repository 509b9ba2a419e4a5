"""Conversations on the page: the speed-up by the length of the prompt, and where the route ends."""

from collections.abc import Iterator

from gatekeeper.analysis.verdict.grown_conversations import WORDS, ContextBin, GrownConversations
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.units import show, show_bytes
from gatekeeper.core.verdict import Estimate
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Scale
from gatekeeper.report.html.markup import Markup, el, join, section, table
from gatekeeper.report.html.page_parts import pill
from gatekeeper.report.phrases import end_of_gain

HEADS = (
    "Prompt, tokens", "Against plain", "Outcome", "Acceptance", "First token", "As expected", "Memory", "Evidence",
    "Because",
)  # fmt: skip
KINDS = {"inside": "promoted", "outside": "failed", "open": "unproven"}
"""The outcomes of a run whose sign and colour the words of a bin have."""
ABOUT = (
    "Each conversation was asked turn after turn in both arms, on the prompt cache as deployed. All intervals hold "
    "together, with the conversation as the unit. Drafting is on for prompts up to where the gain is proven."
)


def conversations(verdict: Verdict) -> Markup | None:
    """Return the section; None where no workload has conversations."""
    grown = {work.name: work.conversations for work in verdict.workloads if work.conversations is not None}
    ends = [end for each in grown.values() for end in _ends(each)]
    across = charts.scale(ends, floor=1.0)
    blocks = [_workload(name, each, across) for name, each in grown.items()]
    return section("Conversations", *blocks, about=ABOUT) if blocks else None


def _ends(grown: GrownConversations) -> Iterator[float]:
    for context in grown.bins:
        if isinstance(context.ratio, Estimate):
            yield from (context.ratio.lo, context.ratio.hi)


def _workload(name: str, grown: GrownConversations, across: Scale) -> Markup:
    rows = [_row(context, across) for context in grown.bins]
    return join(el("h3", name), el("p", end_of_gain(grown)), table(HEADS, rows, "plainly") if rows else None)


def _row(context: ContextBin, across: Scale) -> tuple[str, ...]:
    ratio, word = context.ratio, WORDS[context.outcome]
    drawn = "-"
    if isinstance(ratio, Estimate):
        drawn = charts.speedup(ratio.center, ratio.lo, ratio.hi, across, KINDS[word])
    first, passed = context.ttft, context.passed
    return (
        f"{context.least} to {context.most}",
        drawn,
        pill(KINDS[word], word),
        "-" if context.acceptance is None else show(context.acceptance, "1"),
        "-" if first is None else f"{show(first['candidate'], 's')}, plain {show(first['plain'], 's')}",
        "-" if passed is None else f"{passed['candidate']} of {passed['of']}, plain {passed['plain']}",
        "-" if context.footprint is None else show_bytes(context.footprint),
        f"{context.turns} turns of {context.conversations} conversations",
        context.because,
    )
