"""The speeds of a workload over its stored runs, each with its interval and the bound of its objective."""

from collections.abc import Sequence

from gatekeeper.core.text import describe_setting, show_count
from gatekeeper.report import phrases
from gatekeeper.report.data.run_history import HistoryRun
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, el
from gatekeeper.report.outcome_signs import glyph_of, write_as_words

HEIGHT = 110
"""Pixels of a chart."""


def draw_history(name: str, runs: Sequence[HistoryRun]) -> Markup:
    """Draw the soaks of the runs of one host; nothing where none has a speed."""
    soaks = [
        (position, run, workload, workload.speed)
        for position, run in enumerate(runs)
        if (workload := run.workloads.get(name)) is not None and workload.speed is not None
    ]
    if not soaks:
        return Markup("")
    bounds = [
        (position + edge, workload.bound)
        for position, _, workload, _ in soaks
        if workload.bound is not None
        for edge in (-0.5, 0.5)
    ]
    values = [end for *_, speed in soaks for end in (speed.lo, speed.hi)]
    across = Scale(-0.5, len(runs) - 0.5)
    up = charts.scale([1.0, *values, *(bound for _, bound in bounds)], log=False)

    def row(value: float) -> float:
        return HEIGHT * (1 - up.share(value))

    marks = [charts.level(row(1.0), "axis one")]
    for position, run, workload, speed in soaks:
        x = across.percent(position)
        ends = {"y1": f"{row(speed.lo):.1f}", "y2": f"{row(speed.hi):.1f}"}
        tip = f"{run.at[:16]}Z\n{write_as_words(workload.outcome)}, {describe_setting(workload.setting)}\n"
        tip += phrases.ratio(speed.estimate()) + (f", bound {workload.bound:g}x" if workload.bound else "")
        marks.append(el("line", class_=f"whisker {workload.outcome}", x1=x, x2=x, **ends))
        center = {"cx": x, "cy": f"{row(speed.center):.1f}", "r": "4.5"}
        marks.append(el("circle", class_=f"center {workload.outcome}", **center, data_tip=tip))
    for position, run in enumerate(runs):
        workload = run.workloads.get(name)
        if workload is None or workload.speed is None:  # no speed is no absence: the run is on the axis by its sign
            outcome = workload.outcome if workload is not None else run.outcome
            place = {"x": across.percent(position), "y": f"{HEIGHT - 6}", "text_anchor": "middle"}
            tip = f"{run.at[:16]}Z\n{write_as_words(outcome)}, no speed against plain decoding"
            marks.append(el("text", glyph_of(outcome), class_=f"outcome {outcome}", data_tip=tip, **place))
    days = [run.at[5:10] for run in runs]
    labels = days if len(set(days)) == len(days) else [f"{run.at[5:10]} {run.at[11:16]}" for run in runs]
    drawing = charts.plot(
        across,
        up,
        height=HEIGHT,
        x_show=lambda x: labels[round(x)] if x in range(len(runs)) else "",  # between runs there is no date
        y_show=lambda value: f"{value:g}x",
        lines=[Line(bounds, "limit", step=True)],
        over=marks,
        label=f"{name}: speed against plain decoding over {show_count(len(soaks), 'run')}",
    )
    return el("figure", el("figcaption", el("strong", name)), drawing)
