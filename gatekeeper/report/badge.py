"""The verdict as a badge: an SVG that loads nothing, and the JSON that shields.io draws one from."""

import json

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.core.text import counted, one_line
from gatekeeper.report.data.decision import short_ratio, speed_up
from gatekeeper.report.html.markup import el
from gatekeeper.report.phrases import spaced

COLOURS = {"promoted": "#0b7a58", "graded_back": "#b4380a", "failed": "#b4380a", "unproven": "#7347ad"}
DEMO = "#856000"
LONGEST = 60
"""Characters of a badge; with more, workloads are counted instead of named."""
CHARACTER, PAD, HEIGHT = 6.6, 12, 20
"""Pixels: the width of a character of 11 px, the space around a text, the height."""


def message(verdict: Verdict) -> str:
    """Return what the badge says: each workload's speed where drafting is on, else the outcome."""
    on = [one for one in verdict.workloads if one.outcome is WorkloadOutcome.PROMOTED]
    speeds = [f"{one.name} {short_ratio(seen.center)}" for one in on if (seen := speed_up(one)) is not None]
    text = (
        one_line(", ".join(speeds))
        if verdict.outcome is WorkloadOutcome.PROMOTED and speeds
        else spaced(verdict.outcome)
    )
    if len(text) > LONGEST:
        text = f"drafting on for {counted(len(on), 'workload')}"
    return text if verdict.grade == "certification" else f"{verdict.grade}: {text}"


def _colour(verdict: Verdict) -> str:
    return (
        DEMO
        if verdict.grade != "certification" and verdict.outcome is WorkloadOutcome.PROMOTED
        else COLOURS[verdict.outcome]
    )


def render(verdict: Verdict) -> str:
    """Return the SVG."""
    texts = one_line(verdict.slo)[:LONGEST], message(verdict)
    left, right = (len(text) * CHARACTER + PAD for text in texts)
    label = ": ".join(texts)

    def written(text: str, x: float, width: float) -> str:
        length = f"{width - PAD:g}"
        return el("text", text, x=f"{x + width / 2:g}", y="14", textLength=length, lengthAdjust="spacingAndGlyphs")

    drawing = el(
        "svg",
        el("title", label),
        el("rect", width=left, height=HEIGHT, fill="#444c54"),
        el("rect", x=left, width=right, height=HEIGHT, fill=_colour(verdict)),
        el(
            "g",
            written(texts[0], 0, left),
            written(texts[1], left, right),
            fill="#fff",
            text_anchor="middle",
            font_family="Verdana,DejaVu Sans,sans-serif",
            font_size="11",
        ),
        xmlns="http://www.w3.org/2000/svg",
        width=left + right,
        height=HEIGHT,
        role="img",
        aria_label=label,
    )
    return f"{drawing}\n"


def render_shields(verdict: Verdict) -> str:
    """Return the document of a shields.io endpoint badge."""
    document = {"schemaVersion": 1, "label": one_line(verdict.slo)[:LONGEST], "message": message(verdict)}
    return json.dumps(document | {"color": _colour(verdict)}, ensure_ascii=False) + "\n"
