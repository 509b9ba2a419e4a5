"""The page of stored runs over time: a chart a workload for each SLO and host, and a table of its runs."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from gatekeeper.analysis.verdict.run_verdict import outcome_words
from gatekeeper.core.text import counted, describe_setting, listed
from gatekeeper.report import phrases
from gatekeeper.report.data.glossary import in_words
from gatekeeper.report.data.run_history import HistoryRun, HistoryWorkload, RunHistory
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.document_page import page_head, pill, run_link, write_page
from gatekeeper.report.html.markup import NONE, Markup, el, join, note, section, table
from gatekeeper.report.outcome_signs import glyph_of, spaced

HEADS = ("Night", "Outcome", "Speed against plain decoding", "Failed or open", "Changed since the run before")
HEIGHT = 110
"""Pixels of a chart."""


def render(history: RunHistory) -> str:
    """Return the page of what `gatekeeper history` found."""
    parts = [_group(slo.slo, host, runs) for slo in history.slos for host, runs in by_host(slo.runs).items()]
    if history.unreadable:
        rows = [(run.run, run.because) for run in history.unreadable]
        parts.append(section("Cannot be read", table(("Run", "Because"), rows, "plainly")))
    total = sum(len(slo.runs) for slo in history.slos)
    title = f"{counted(total, 'run')} of {counted(len(history.slos), 'SLO')}"
    about = (
        "Each mark is the soak of one run with its confidence interval; the dashed line is the bound of the "
        "objective, the solid one plain decoding. Hover for details."
    )
    return write_page("gatekeeper history", page_head("history", title, el("p", about, class_="dim")), parts)


def by_host(runs: Sequence[HistoryRun]) -> dict[str, list[HistoryRun]]:
    """Return the runs by the host they were made on."""
    groups: dict[str, list[HistoryRun]] = defaultdict(list)
    for run in runs:
        groups[run.host].append(run)
    return dict(groups)


def _group(slo: str, host: str, runs: Sequence[HistoryRun]) -> Markup:
    names = list(dict.fromkeys(name for run in runs for name in run.workloads))
    drawn = [_chart(name, runs) for name in names]
    rows = [_row(run, is_first=run is runs[0]) for run in reversed(runs)]
    passed = sum(run.outcome == "promoted" for run in runs)
    return section(
        f"{slo} on {host}",
        el("div", *(chart for chart in drawn if chart), class_="columns few"),
        table(HEADS, rows, "nights"),
        about=f"{counted(len(runs), 'run')}, {passed} promoted.",
        name=f"{slo}-{host}".lower().replace(" ", "-"),
    )


def _chart(name: str, runs: Sequence[HistoryRun]) -> Markup | None:
    soaks = [
        (position, run, workload, workload.speed)
        for position, run in enumerate(runs)
        if (workload := run.workloads.get(name)) is not None and workload.speed is not None
    ]
    if not soaks:
        return None
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
        tip = f"{run.at[:16]}Z\n{spaced(workload.outcome)}, {describe_setting(workload.setting)}\n"
        tip += phrases.ratio(speed.estimate()) + (f", bound {workload.bound:g}x" if workload.bound else "")
        marks.append(el("line", class_=f"whisker {workload.outcome}", x1=x, x2=x, **ends))
        center = {"cx": x, "cy": f"{row(speed.center):.1f}", "r": "4.5"}
        marks.append(el("circle", class_=f"center {workload.outcome}", **center, data_tip=tip))
    for position, run in enumerate(runs):
        workload = run.workloads.get(name)
        if workload is None or workload.speed is None:  # no speed is no absence: the run is on the axis by its sign
            outcome = workload.outcome if workload is not None else run.outcome
            place = {"x": across.percent(position), "y": f"{HEIGHT - 6}", "text_anchor": "middle"}
            tip = f"{run.at[:16]}Z\n{spaced(outcome)}, no speed against plain decoding"
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
        label=f"{name}: speed against plain decoding over {counted(len(soaks), 'run')}",
    )
    return el("figure", el("figcaption", el("strong", name)), drawing)


def _row(run: HistoryRun, *, is_first: bool) -> tuple[str, ...]:
    link = run_link(run.run, run.at[:16].replace("T", " "))
    ended = outcome_words(run.outcome, [workload.outcome for workload in run.workloads.values()])
    return (
        join(el("strong", link), el("span", PurePath(run.run).name, class_="dim note", title=run.run)),
        join(pill(run.outcome, ended), note("demo") if run.grade == "demo" else None),
        join(*(note(f"{name} {_speed(workload)}") for name, workload in run.workloads.items())) or NONE,
        join(*map(note, _reasons(run))) or NONE,
        join(*map(note, run.changed)) or note("the first run" if is_first else "nothing"),
    )


def _speed(workload: HistoryWorkload) -> str:
    return phrases.ratio(workload.speed.estimate()) if workload.speed is not None else spaced(workload.outcome)


def _reasons(run: HistoryRun) -> Iterator[str]:
    if run.trouble:
        yield f"not trusted: {run.trouble}"
    metrics: dict[tuple[str, str], list[str]] = defaultdict(list)
    for check in run.failed:
        metrics[check.about, in_words(check.because)].append(check.metric)
    for (about, because), names in metrics.items():
        yield f"{about}: {listed(names)}: {because}"
