"""What a round of drafted tokens costs, on the page: by its width, against the most tokens that it can yield."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.report.commands.ceiling_text import HEADS, ceiling_sentences, cost_row
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, el, section, table

ABOUT = (
    "The time of a pass of the target over 1 to 16 tokens, in tokens of plain decoding, with its interval. The dashed "
    "line is the most tokens that such a round can yield: a draft can gain where the cost lies below it, and takes "
    "time besides."
)


def round_cost(ceiling: Mapping[str, Any] | None) -> Markup | None:
    """Return the section; None where the run did not time passes."""
    if ceiling is None:
        return None
    rounds, sentences = ceiling["rounds"], ceiling_sentences(ceiling)
    points = [(cost["draft_length_tokens"] + 1, cost["round_plain_tokens"]) for cost in rounds]
    widest = float(max(width for width, _ in points))
    lines = [
        Line([(1.0, 1.0), (widest, widest)], "limit"),
        *(Line([(width, cost["lo"]), (width, cost["hi"])], "candidate") for width, cost in points),
        Line([(width, cost["center"]) for width, cost in points], "candidate"),
    ]
    drawing = charts.plot(
        Scale(1.0, widest),
        Scale(0.0, max(widest, *(cost["center"] for _, cost in points))),
        height=160,
        x_show=lambda width: f"{width:g}",
        y_show=lambda tokens: f"{tokens:g}",
        lines=lines,
        label=f"Cost of a round by its width. {'. '.join(sentences)}",
    )
    return section(
        "Round cost",
        el("ul", *(el("li", sentence) for sentence in sentences), class_="events"),
        el("figure", el("figcaption", "Cost of a round in plain tokens, by the tokens of its pass"), drawing),
        el("details", el("summary", "As a table"), table(HEADS, map(cost_row, rounds), "plainly")),
        about=ABOUT,
    )
