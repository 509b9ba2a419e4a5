"""What `gatekeeper history` prints: the runs of each SLO, the speed of the last ones as a row of bars, the trend."""

from collections.abc import Sequence

from gatekeeper.analysis.verdict.run_verdict import outcome_words
from gatekeeper.core.metrics import PLAIN_SPEED
from gatekeeper.core.text import aligned, counted, describe_setting
from gatekeeper.core.units import show_bytes
from gatekeeper.report.commands.compare_document import change, figure
from gatekeeper.report.data.compared_runs import Contrast
from gatekeeper.report.data.run_history import HistoryRun, NoTrend, RunHistory, Trend
from gatekeeper.report.outcome_signs import spaced
from gatekeeper.report.phrases import ratio

BARS = "▁▂▃▄▅▆▇█"
NIGHTS = 30
"""Runs of a sparkline."""


def history_text(history: RunHistory) -> str:
    """Return each SLO's runs, oldest first, and its trend."""
    lines: list[str] = []
    for slo in history.slos:
        lines += [f"{slo.slo}: {counted(len(slo.runs), 'run')}", *_sparklines(slo.runs)]
        for run in slo.runs:
            lines += _run(run)
        lines += _trend(slo.trend)
    lines += [f"cannot be read: {run.run}: {run.because}" for run in history.unreadable]
    return "\n".join(lines or ["no runs found: gatekeeper certify SLO.toml makes one"]) + "\n"


def _run(run: HistoryRun) -> list[str]:
    grade = f", {run.grade}" if run.grade else ""
    memory = f", footprint {show_bytes(run.footprint_peak)}" if run.footprint_peak else ""
    ended = outcome_words(run.outcome, [workload.outcome for workload in run.workloads.values()])
    lines = [f"  {run.at[:16]}Z  {ended}{grade}{memory}  {run.run}"]
    lines += [f"    not trusted: {run.trouble}"] if run.trouble else []
    for name, workload in run.workloads.items():
        figures = [f"{ratio(workload.speed.estimate())} against plain"] if workload.speed is not None else []
        if (plain := workload.figures[PLAIN_SPEED]) is not None:
            figures.append(f"plain {figure(plain, PLAIN_SPEED)}")
        if (acceptance := workload.figures["acceptance_rate"]) is not None:
            figures.append(f"acceptance {figure(acceptance, 'acceptance_rate')}")
        lines.append(f"    {name}: {spaced(workload.outcome)}, {describe_setting(workload.setting)}")
        lines += [f"      {'; '.join(figures)}"] if figures else []
    return lines


def _sparklines(runs: Sequence[HistoryRun]) -> list[str]:
    """Return a row for each workload and host: the speed of its last runs, the latest one, its bound, the outcomes."""
    rows = []
    for host in dict.fromkeys(run.host for run in runs):
        on_host = [run for run in runs if run.host == host][-NIGHTS:]
        for name in dict.fromkeys(name for run in on_host for name in run.workloads):
            workloads = [run.workloads[name] for run in on_host if name in run.workloads]
            speeds = [workload.speed.center if workload.speed is not None else None for workload in workloads]
            measured = [(workload.speed, workload.bound) for workload in workloads if workload.speed is not None]
            speed, least = measured[-1] if measured else (None, None)
            latest = ratio(speed.estimate()) if speed is not None else "not measured"
            bound = f"bound {least:g}x" if least is not None else ""
            promoted = sum(workload.outcome == "promoted" for workload in workloads)
            count = f"{promoted} of {len(workloads)} promoted"
            rows.append((name, _sparkline(speeds), latest, bound, count, host))
    return [f"  {row}" for row in aligned(rows)] if rows else []


def _sparkline(values: Sequence[float | None]) -> str:
    """Draw values between the least and the largest of them; a dot is a run without one."""
    measured = [value for value in values if value is not None]
    least, most = min(measured, default=0.0), max(measured, default=0.0)
    step = (most - least) / (len(BARS) - 1) or 1.0
    return "".join("·" if value is None else BARS[round((value - least) / step)] for value in values)


def _trend(trend: Trend | NoTrend | None) -> list[str]:
    if trend is None:
        return ["  trend: needs two complete runs"]
    if isinstance(trend, NoTrend):
        return [f"  trend: {trend.because}"]
    lines = [f"  trend, {trend.b} against {trend.a}:"]
    for name, contrasts in trend.workloads.items():
        measured = (contrast for contrast in contrasts if contrast.a is not None and contrast.b is not None)
        lines += [f"    {name}: {_contrast(contrast)}" for contrast in measured]
    if trend.footprint_peak.change is not None:
        lines.append(f"    {_contrast(trend.footprint_peak)}")
    causes = ", ".join(trend.differences)
    return [*lines, *([f"    also different, a possible cause: {causes}"] if causes else [])]


def _contrast(contrast: Contrast) -> str:
    metric = contrast.metric
    size = f" ({change(contrast)})" if contrast.change is not None else ""
    return f"{metric}: {figure(contrast.a, metric)} -> {figure(contrast.b, metric)}{size}, {contrast.says}"
