"""What `gatekeeper history` prints: the runs of each SLO, the speed of the last ones as a row of bars, the trend."""

from collections.abc import Sequence

from gatekeeper.core.text import aligned, counted, describe_setting
from gatekeeper.core.units import show_bytes
from gatekeeper.core.verdict import Estimate
from gatekeeper.report.commands import Document
from gatekeeper.report.comparison import change, figure
from gatekeeper.report.phrases import ratio, spaced

BARS = "▁▂▃▄▅▆▇█"
NIGHTS = 30
"""Runs of a sparkline."""


def history_text(document: Document) -> str:
    """Return each SLO's runs, oldest first, and its trend."""
    lines: list[str] = []
    for slo in document["slos"]:
        lines += [f"{slo['slo']}: {counted(len(slo['runs']), 'run')}", *_sparklines(slo["runs"])]
        for run in slo["runs"]:
            lines += _run(run)
        lines += _trend(slo["trend"])
    lines += [f"cannot be read: {run['run']}: {run['because']}" for run in document["unreadable"]]
    return "\n".join(lines or ["no runs found"]) + "\n"


def _run(run: Document) -> list[str]:
    grade = f", {run['grade']}" if run["grade"] else ""
    memory = f", footprint {show_bytes(run['footprint_peak'])}" if run["footprint_peak"] else ""
    lines = [f"  {run['at'][:16]}Z  {spaced(run['outcome'])}{grade}{memory}  {run['run']}"]
    lines += [f"    not trusted: {run['trouble']}"] if run["trouble"] else []
    for name, workload in run["workloads"].items():
        figures = [f"{ratio(Estimate.of(workload['speed']))} against plain"] if workload["speed"] else []
        if workload["acceptance_rate"]:
            figures.append(f"acceptance {figure(workload['acceptance_rate'], 'acceptance_rate')}")
        lines.append(f"    {name}: {spaced(workload['outcome'])}, {describe_setting(workload['setting'])}")
        lines += [f"      {'; '.join(figures)}"] if figures else []
    return lines


def _sparklines(runs: Sequence[Document]) -> list[str]:
    """Return a row for each workload and host: the speed of its last runs, the latest one, its bound, the outcomes."""
    rows = []
    for host in dict.fromkeys(run["host"] for run in runs):
        last_runs = [run for run in runs if run["host"] == host][-NIGHTS:]
        for name in dict.fromkeys(name for run in last_runs for name in run["workloads"]):
            results = [run["workloads"][name] for run in last_runs if name in run["workloads"]]
            speeds = [result["speed"]["center"] if result["speed"] else None for result in results]
            measured = [result for result in results if result["speed"]]
            latest = ratio(Estimate.of(measured[-1]["speed"])) if measured else "not measured"
            bound = f"bound {measured[-1]['bound']:g}x" if measured and measured[-1]["bound"] is not None else ""
            count = f"{sum(result['outcome'] == 'promoted' for result in results)} of {len(results)} promoted"
            rows.append((name, _sparkline(speeds), latest, bound, count, host))
    return [f"  {row}" for row in aligned(rows)] if rows else []


def _sparkline(values: Sequence[float | None]) -> str:
    """Draw values between the least and the largest of them; a dot is a run without one."""
    measured = [value for value in values if value is not None]
    least, most = min(measured, default=0.0), max(measured, default=0.0)
    step = (most - least) / (len(BARS) - 1) or 1.0
    return "".join("·" if value is None else BARS[round((value - least) / step)] for value in values)


def _trend(trend: Document | None) -> list[str]:
    if trend is None:
        return ["  trend: needs two complete runs"]
    if trend["a"] is None:
        return [f"  trend: {trend['because']}"]
    lines = [f"  trend, {trend['b']} against {trend['a']}:"]
    for name, contrasts in trend["workloads"].items():
        lines += [f"    {name}: {_contrast(contrast)}" for contrast in contrasts if contrast["a"] and contrast["b"]]
    if trend["footprint_peak"]["change"] is not None:
        lines.append(f"    {_contrast(trend['footprint_peak'])}")
    if trend["differences"]:
        lines.append(f"    also different, a possible cause: {', '.join(trend['differences'])}")
    return lines


def _contrast(contrast: Document) -> str:
    metric = contrast["metric"]
    size = f" ({change(contrast)})" if contrast["change"] is not None else ""
    return f"{metric}: {figure(contrast['a'], metric)} -> {figure(contrast['b'], metric)}{size}, {contrast['says']}"
