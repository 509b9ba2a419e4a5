"""The page of stored runs over time: a chart a workload for each SLO and host, and a table of its runs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gatekeeper.core.text import counted, describe_setting
from gatekeeper.core.verdict import Estimate
from gatekeeper.report import phrases
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, el, join, note, section, table
from gatekeeper.report.html.page import document

HEADS = ("Night", "Outcome", "Speed against plain decoding", "Failed or open", "Changed since the run before")
HEIGHT = 110
"""Pixels of a chart."""


def render(history: Mapping[str, Any]) -> str:
    """Return the page of what `gatekeeper history` found."""
    parts = [_group(slo["slo"], host, runs) for slo in history["slos"] for host, runs in by_host(slo["runs"]).items()]
    if history["unreadable"]:
        rows = [(run["run"], run["because"]) for run in history["unreadable"]]
        parts.append(section("Cannot be read", table(("Run", "Because"), rows, "plainly")))
    total = sum(len(slo["runs"]) for slo in history["slos"])
    hero = el(
        "header",
        el("p", "gatekeeper", el("span", " · history"), class_="eyebrow"),
        el("h1", f"{counted(total, 'run')} of {counted(len(history['slos']), 'SLO')}"),
        el(
            "p",
            "Each mark is the soak of one run with its confidence interval; the dashed line is the bound of the "
            "objective, the solid one plain decoding. Hover for details.",
            class_="dim",
        ),
        class_="hero",
    )
    return document("gatekeeper history", hero, parts)


def by_host(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the runs by the host they were made on."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        groups[run["host"]].append(run)
    return dict(groups)


def _group(slo: str, host: str, runs: Sequence[Mapping[str, Any]]) -> Markup:
    names = list(dict.fromkeys(name for run in runs for name in run["workloads"]))
    drawn = [_chart(name, runs) for name in names]
    rows = [_row(run) for run in reversed(runs)]
    passed = sum(run["outcome"] == "promoted" for run in runs)
    return section(
        f"{slo} on {host}",
        el("div", *(chart for chart in drawn if chart), class_="columns few"),
        table(HEADS, rows, "nights"),
        about=f"{counted(len(runs), 'run')}, {passed} promoted.",
        name=f"{slo}-{host}".lower().replace(" ", "-"),
    )


def _chart(name: str, runs: Sequence[Mapping[str, Any]]) -> Markup | None:
    soaks = [
        (at, run, workload)
        for at, run in enumerate(runs)
        if (workload := run["workloads"].get(name)) and workload["speed"]
    ]
    if not soaks:
        return None
    bounds = [
        (at + edge, workload["bound"])
        for at, _, workload in soaks
        if workload["bound"] is not None
        for edge in (-0.5, 0.5)
    ]
    values = [workload["speed"][end] for _, _, workload in soaks for end in ("lo", "hi")]
    across = Scale(-0.5, len(runs) - 0.5)
    up = charts.scale([1.0, *values, *(bound for _, bound in bounds)], log=False)

    def row(value: float) -> float:
        return HEIGHT * (1 - up.share(value))

    marks = [charts.level(row(1.0), "axis one")]
    for at, run, workload in soaks:
        speed, x = workload["speed"], across.percent(at)
        ends = {"y1": f"{row(speed['lo']):.1f}", "y2": f"{row(speed['hi']):.1f}"}
        tip = f"{run['at'][:16]}Z\n{phrases.spaced(workload['outcome'])}, {describe_setting(workload['setting'])}\n"
        tip += f"{phrases.ratio(Estimate.of(speed))}" + (f", bound {workload['bound']:g}x" if workload["bound"] else "")
        marks.append(el("line", class_=f"whisker {workload['outcome']}", x1=x, x2=x, **ends))
        marks.append(
            el(
                "circle",
                class_=f"center {workload['outcome']}",
                cx=x,
                cy=f"{row(speed['center']):.1f}",
                r="4.5",
                data_tip=tip,
            )
        )
    drawing = charts.plot(
        across,
        up,
        height=HEIGHT,
        x_show=lambda at: (
            runs[round(at)]["at"][5:10] if at in range(len(runs)) else ""
        ),  # between runs there is no date
        y_show=lambda value: f"{value:g}x",
        lines=[Line(bounds, "limit", step=True)],
        over=marks,
        label=f"{name}: speed against plain decoding over {counted(len(soaks), 'run')}",
    )
    return el("figure", el("figcaption", el("strong", name)), drawing)


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    outcome = run["outcome"]
    demo = " (demo)" if run["grade"] == "demo" else ""
    speeds = [
        note(
            f"{name} "
            + (
                phrases.ratio(Estimate.of(workload["speed"]))
                if workload["speed"]
                else phrases.spaced(workload["outcome"])
            )
        )
        for name, workload in run["workloads"].items()
    ]
    return (
        join(el("strong", f"{run['at'][:16].replace('T', ' ')}"), note(run["run"])),
        join(
            el("span", f"{phrases.GLYPHS.get(outcome, '‖')} {phrases.spaced(outcome)}", class_=f"pill {outcome}"),
            demo,
        ),
        join(*speeds),
        join(*map(note, _reasons(run))) or "-",
        join(*map(note, run["changed"])) or "-",
    )


def _reasons(run: Mapping[str, Any]) -> Iterator[str]:
    if run["trouble"]:
        yield f"not trusted: {run['trouble']}"
    for check in run["failed"]:
        yield f"{check['about']}: {check['metric']}: {check['because']}"
