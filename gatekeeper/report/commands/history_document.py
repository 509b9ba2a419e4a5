"""What `gatekeeper history` shows: of each SLO and host the speeds over its runs, the runs, and their trend."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from gatekeeper.analysis.verdict.run_verdict import outcome_words
from gatekeeper.core.metrics import PLAIN_SPEED
from gatekeeper.core.text import describe_setting, join_names, show_count
from gatekeeper.core.units import show_bytes
from gatekeeper.report.commands.compare_document import change, figure
from gatekeeper.report.data.compared_runs import Contrast
from gatekeeper.report.data.glossary import in_words
from gatekeeper.report.data.run_history import HistoryRun, HistoryWorkload, NoTrend, RunHistory, SloHistory, Trend
from gatekeeper.report.outcome_signs import write_as_words
from gatekeeper.report.phrases import ratio
from gatekeeper.report.shown_document import (
    Beside,
    Chart,
    Content,
    Document,
    Listing,
    Node,
    Note,
    Remarks,
    RunLink,
    Section,
    Sign,
    Strong,
    Table,
)

BARS = "▁▂▃▄▅▆▇█"
NIGHTS = 30
"""Runs of a row of bars."""
HEADS = ("Night", "Outcome", "Speed against plain decoding", "Failed or open", "Changed since the run before")
ABOUT = "Each mark is a soak with its interval; the dashed line is the bound, the solid one plain decoding."


def history_document(history: RunHistory) -> Document:
    """Return the runs of each SLO and host, and those that cannot be read."""
    sections = [_of_host(slo, host, runs) for slo in history.slos for host, runs in runs_by_host(slo.runs).items()]
    if history.unreadable:
        unreadable = [f"{run.run}: {run.because}" for run in history.unreadable]
        sections.append(Section("Cannot be read", (Listing(unreadable),)))
    total = sum(len(slo.runs) for slo in history.slos)
    if not total and not history.unreadable:
        return Document("history", "no runs found: gatekeeper certify SLO.toml makes one", ())
    return Document("history", f"{show_count(total, 'run')} of {show_count(len(history.slos), 'SLO')}", sections)


def runs_by_host(runs: Sequence[HistoryRun]) -> dict[str, list[HistoryRun]]:
    """Return the runs by the host they were made on."""
    groups: dict[str, list[HistoryRun]] = defaultdict(list)
    for run in runs:
        groups[run.host].append(run)
    return dict(groups)


def _of_host(slo: SloHistory, host: str, runs: Sequence[HistoryRun]) -> Section:
    names = list(dict.fromkeys(name for run in runs for name in run.workloads))
    charts = [Chart(partial(_draw, name, runs), _bars(name, runs[-NIGHTS:])) for name in names]
    rows = [_row(run, is_first=run is runs[0]) for run in reversed(runs)]
    # The trend is that of the newest run, on whichever host it was made.
    trend = _trend(slo.trend) if runs[-1] is slo.runs[-1] else ()
    passed = sum(run.outcome == "promoted" for run in runs)
    about = f"{show_count(len(runs), 'run')}, {passed} promoted. {ABOUT}"
    name = f"{slo.slo}-{host}".lower().replace(" ", "-")
    return Section(f"{slo.slo} on {host}", (Beside(charts), Table(HEADS, rows, "nights"), *trend), about, name)


def _draw(name: str, runs: Sequence[HistoryRun]) -> str:
    from gatekeeper.report.html.history_chart import draw_history  # noqa: PLC0415 (a text draws nothing)

    return draw_history(name, runs)


def _bars(name: str, runs: Sequence[HistoryRun]) -> str:
    """Return a line on the last runs of a workload: bars of their speeds, the latest one, its bound, the outcomes."""
    workloads = [run.workloads[name] for run in runs if name in run.workloads]
    speeds = [workload.speed.center if workload.speed is not None else None for workload in workloads]
    measured = [workload for workload in workloads if workload.speed is not None]
    latest = _speed(measured[-1]) if measured else "not measured"
    bound = f"bound {measured[-1].bound:g}x" if measured and measured[-1].bound is not None else ""
    promoted = sum(workload.outcome == "promoted" for workload in workloads)
    count = f"{promoted} of {len(workloads)} promoted"
    return "  ".join(filter(None, (name, _sparkline(speeds), latest, bound, count)))


def _row(run: HistoryRun, *, is_first: bool) -> tuple[Content, ...]:
    ended = outcome_words(run.outcome, [workload.outcome for workload in run.workloads.values()])
    memory = [f"footprint {show_bytes(run.footprint_peak)}"] if run.footprint_peak else []
    return (
        (RunLink(f"{run.at[:16].replace('T', ' ')}Z", run.run), Remarks((run.run,))),
        Sign(run.outcome, f"{ended}{' (demo)' if run.grade == 'demo' else ''}"),
        Remarks([*(_describe_workload(name, workload) for name, workload in run.workloads.items()), *memory]),
        Remarks(list(_reasons(run))),
        Remarks(run.changed or ("the first run" if is_first else "nothing",)),
    )


def _describe_workload(name: str, workload: HistoryWorkload) -> str:
    """Write what a run showed of a workload, and with which setting."""
    figures = [f"{name} {_speed(workload)}", describe_setting(workload.setting)]
    if (plain := workload.figures.get(PLAIN_SPEED)) is not None:
        figures.append(f"plain {figure(plain, PLAIN_SPEED)}")
    if (acceptance := workload.figures.get("acceptance_rate")) is not None:
        figures.append(f"acceptance {figure(acceptance, 'acceptance_rate')}")
    return ", ".join(figures)


def _speed(workload: HistoryWorkload) -> str:
    return ratio(workload.speed.estimate()) if workload.speed is not None else write_as_words(workload.outcome)


def _reasons(run: HistoryRun) -> Iterator[str]:
    if run.trouble:
        yield f"not trusted: {run.trouble}"
    metrics: dict[tuple[str, str], list[str]] = defaultdict(list)
    for check in run.failed:
        metrics[check.about, in_words(check.because)].append(check.metric)
    for (about, because), names in metrics.items():
        yield f"{about}: {join_names(names)}: {because}"


def _sparkline(values: Sequence[float | None]) -> str:
    """Draw values between the least and the largest of them; a dot is a run without one."""
    measured = [value for value in values if value is not None]
    least, most = min(measured, default=0.0), max(measured, default=0.0)
    step = (most - least) / (len(BARS) - 1) or 1.0
    return "".join("·" if value is None else BARS[round((value - least) / step)] for value in values)


def _trend(trend: Trend | NoTrend | None) -> tuple[Node, ...]:
    """Return how the newest run compares with the one before it."""
    if trend is None:
        return (Note("trend: needs two complete runs"),)
    if isinstance(trend, NoTrend):
        return (Note(f"trend: {trend.because}"),)
    lines: list[Content] = []
    for name, contrasts in trend.workloads.items():
        measured = (contrast for contrast in contrasts if contrast.a is not None and contrast.b is not None)
        lines += [(Strong(f"{name}:"), _contrast(contrast)) for contrast in measured]
    if trend.footprint_peak.change is not None:
        lines.append(_contrast(trend.footprint_peak))
    if trend.differences:
        lines.append(f"also different, a possible cause: {', '.join(trend.differences)}")
    return Note(f"trend, {trend.b} against {trend.a}:"), Listing(lines)


def _contrast(contrast: Contrast) -> str:
    metric = contrast.metric
    size = f" ({change(contrast)})" if contrast.change is not None else ""
    return f"{metric}: {figure(contrast.a, metric)} -> {figure(contrast.b, metric)}{size}, {contrast.says}"
