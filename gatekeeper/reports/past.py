"""A history and a comparison of runs, as lines to read."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.reports.plaintext import RELATIVE, interval, setting
from gatekeeper.terms.metrics import BY_NAME
from gatekeeper.terms.units import show


def history(document: Mapping[str, Any]) -> str:
    """Return each SLO's runs, oldest first, and its trend."""
    lines: list[str] = []
    for slo in document["slos"]:
        count = len(slo["runs"])
        lines += [f"{slo['slo']}: {count} {'run' if count == 1 else 'runs'}"]
        for run in slo["runs"]:
            grade = f", {run['grade']}" if run["grade"] else ""
            memory = f", footprint {_value(run['footprint_peak'], 'footprint_peak')}" if run["footprint_peak"] else ""
            lines.append(f"  {run['at'][:16]}Z  {run['outcome'].replace('_', ' ')}{grade}{memory}  {run['run']}")
            lines += [f"    not trusted: {run['trouble']}"] if run["trouble"] else []
            for name, one in run["workloads"].items():
                figures = [_interval(one["throughput_ratio"], "throughput_ratio")]
                figures += [f"acceptance {_interval(one['acceptance_rate'], 'acceptance_rate')}"]
                lines.append(f"    {name}: {one['outcome'].replace('_', ' ')}, {setting(one['setting'])}")
                lines += [f"      ratio {'; '.join(figures)}"] if one["throughput_ratio"] else []
        lines += _trend(slo["trend"])
    lines += [f"can not be read: {one['run']}: {one['because']}" for one in document["unreadable"]]
    return "\n".join(lines or ["no runs here"]) + "\n"


def _trend(trend: Mapping[str, Any] | None) -> list[str]:
    if trend is None:
        return ["  trend: needs two whole runs"]
    if trend["a"] is None:
        return [f"  trend: {trend['because']}"]
    lines = [f"  trend, {trend['b']} against {trend['a']}:"]
    for name, contrasts in trend["workloads"].items():
        lines += [f"    {name}: {_contrast(one)}" for one in contrasts if one["a"] and one["b"]]
    if trend["footprint_peak"]["change"] is not None:
        lines.append(f"    {_contrast(trend['footprint_peak'])}")
    return [*lines, *_differ(trend["differences"], "    ")]


def comparison(document: Mapping[str, Any]) -> str:
    """Return both runs, what keeps them from being compared, and each workload's figures side by side."""
    lines = []
    for side in ("a", "b"):
        one = document[side]
        outcome = one["outcome"].replace("_", " ")
        lines.append(f"{side.upper()}  {one['at'][:16]}Z  {one['slo']}: {outcome}, {one['grade']}  {one['run']}")
    if document["not_comparable"]:
        lines.append(f"not comparable: {', '.join(document['not_comparable'])}")
    lines += _differ(document["differences"], "")
    for workload in document["workloads"]:
        lines += ["", f"{workload['name']}"]
        for side in ("a", "b"):
            if (one := workload[side]) is not None:
                lines.append(f"  {side.upper()} {one['outcome'].replace('_', ' ')}, {setting(one['setting'])}")
        lines += [f"  not compared: {', '.join(workload['not_comparable'])}"] if workload["not_comparable"] else []
        lines += [f"  {_contrast(one)}" for one in workload["metrics"] if one["a"] or one["b"]]
    return "\n".join(lines) + "\n"


def _differ(differences: list[str], indent: str) -> list[str]:
    return [f"{indent}also different, and maybe why: {', '.join(differences)}"] if differences else []


def _contrast(one: Mapping[str, Any]) -> str:
    metric = one["metric"]
    change = f" ({one['change']:+.1%})" if one["change"] is not None else ""
    return f"{metric}: {_interval(one['a'], metric)} -> {_interval(one['b'], metric)}{change}, {one['says']}"


def _interval(seen: Mapping[str, Any] | None, metric: str) -> str:
    if not seen:
        return "-"
    known = seen["lo"] == seen["hi"] and metric not in RELATIVE
    return _value(seen["center"], metric) if known else interval({metric: seen}, metric, BY_NAME[metric].unit)


def _value(value: float, metric: str) -> str:
    return show(value, BY_NAME[metric].unit)
