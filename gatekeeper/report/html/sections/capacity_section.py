"""The capacity on the page: what is proven in sentences, latency by streams with both curves, and every probe."""

from collections.abc import Iterator

from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.analysis.verdict.stream_capacity import ArmCapacity, StreamCapacity
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.units import percent, show
from gatekeeper.report.data.capacity_curves import CapacityCurves, CurvePoint, curves, sentences
from gatekeeper.report.html import charts, soak_charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, el, join, section, table
from gatekeeper.report.html.page_parts import pill

HEIGHT = 180
KINDS = {"keeps": "promoted", "inside": "promoted", "breaks": "failed", "outside": "failed", "open": "unproven"}
"""The colours of the outcomes, by the class of a pill."""


def capacities(verdict: Verdict) -> Markup | None:
    """Return the section; None where no capacity was measured."""
    measured = {workload.name: workload.capacity for workload in verdict.workloads if workload.capacity is not None}
    if not measured:
        return None
    confidence = next(iter(measured.values())).confidence
    about = (
        "How many requests in flight keep the latency objectives, each end of a range with "
        f"{percent(confidence)} confidence. The route speculates as far as drafting is proven to keep them and to be "
        "faster. Inside: a higher number of streams is proven to keep them. Outside: a lower one is proven to break "
        "them."
    )
    return section("Capacity", *(_workload(name, capacity) for name, capacity in measured.items()), about=about)


def _workload(name: str, capacity: StreamCapacity) -> Markup:
    drawn = curves(capacity)
    heads = ("Streams", "Outcome", "Because", "Answers", "All streams")
    rows = [*_rows("plain", capacity.plain), *(_rows("draft", capacity.draft) if capacity.draft is not None else ())]
    return join(
        el("h3", name),
        el("p", " ".join(sentences(capacity))),
        _drawing(drawn) if drawn is not None else None,
        el("details", el("summary", "Probes"), table(heads, rows, "probes")),
    )


def _rows(arm: str, capacity: ArmCapacity) -> Iterator[tuple[str, ...]]:
    for level in capacity.levels:
        speed = show(level.speed, "tok/s") if level.speed is not None else ""
        word = capacity.word(level)
        yield f"{level.streams} {arm}", pill(KINDS[word], word), level.because, str(level.answers), speed


def _drawing(drawn: CapacityCurves) -> Markup:
    """Draw the latency of both arms by streams, with intervals, against the bound."""
    points = [point for arm in drawn.arms.values() for point in arm]
    ends = [end for point in points for end in (point.latency.lo, point.latency.hi) if end is not None]
    up = charts.scale([*(point.latency.center for point in points), *ends, drawn.bound], floor=0.0, log=False)
    most = max(point.streams for point in points)
    across = Scale(0.9, max(1.1, 1.1 * most), log=True)
    write = BY_NAME[drawn.metric].show
    drawing = charts.plot(
        across,
        up,
        height=HEIGHT,
        x_show=lambda streams: f"{streams:g}",
        y_show=write,
        lines=[
            Line([(point.streams, point.latency.center) for point in arm], name) for name, arm in drawn.arms.items()
        ],
        over=[
            charts.level(HEIGHT * (1 - up.share(drawn.bound))),
            *(mark for name, arm in drawn.arms.items() for point in arm for mark in _marks(point, name, across, up)),
        ],
        label=f"{drawn.metric} by streams in flight, {write(drawn.bound)} allowed",
    )
    title = f"{drawn.metric} by streams in flight; dashed: {write(drawn.bound)} allowed"
    return el("figure", el("figcaption", title), soak_charts.legend(), drawing)


def _marks(point: CurvePoint, arm: str, across: Scale, up: Scale) -> Iterator[Markup]:
    def row(value: float) -> float:
        return HEIGHT * (1 - up.share(value))

    column, latency = across.percent(point.streams), point.latency
    low = latency.lo if latency.lo is not None else latency.center
    high = latency.hi if latency.hi is not None else latency.center
    yield el("line", class_=f"line {arm}", x1=column, x2=column, y1=f"{row(low):.1f}", y2=f"{row(high):.1f}")
    tip = f"{point.streams}, {arm}: {BY_NAME[latency.metric].show(latency.center)}, {point.word}"
    yield charts.dot(column, row(latency.center), arm, tip=tip)
