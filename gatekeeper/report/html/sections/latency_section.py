"""Latency on the page: the distributions of time to first token and of time per token, by arm."""

from collections.abc import Mapping

from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import percent, show
from gatekeeper.report.data.distributions import QUANTILES, STEPS, Curve
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.html import charts, soak_charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, el, section, table

CURVES = {"ttft": "Time to first token", "itl": "Time per token after it"}


def latency_section(page: PageData) -> Markup | None:
    """Return medians as a table, and the curves behind it; None where nothing was timed."""
    if not page.distributions:
        return None
    columns, rows = [], []
    for distributions in page.distributions:
        source = f"{distributions.source}, {describe_setting(distributions.setting)}"
        figures = [_curves(CURVES[metric], arms) for metric, arms in distributions.curves.items()]
        columns.append(el("div", el("h3", distributions.workload), *figures))
        medians = [_medians(distributions.curves.get(metric, {})) for metric in CURVES]
        rows.append((el("strong", distributions.workload), *medians, el("span", source, class_="dim")))
    about = (
        "The share of answers (time to first token) or tokens (time per token) that arrived within a time. Further "
        "left is faster. Where the curves cross, one arm is faster for most and slower for some. A percentile is "
        "given only where enough canaries were answered."
    )
    drawings = el("div", *columns, class_="columns")
    curves = el("details", el("summary", "Distributions"), el("p", about, class_="dim"), soak_charts.legend(), drawings)
    heads = ("Workload", *(f"{title}, median" for title in CURVES.values()), "Measured in")
    return section("Latency", table(heads, rows, "plainly"), curves)


def _medians(arms: Mapping[str, Curve]) -> str:
    medians = [show(arms[arm].quantiles[0] or 0.0, "s") for arm in ("plain", "candidate") if arm in arms]
    return " → ".join(medians) or "not measured"


def _curves(title: str, arms: Mapping[str, Curve]) -> Markup:
    across = charts.scale(value for curve in arms.values() for value in curve.values if value > 0)
    lines = [
        Line([(value, step / STEPS) for step, value in enumerate(curve.values)], arm, step=True)
        for arm, curve in arms.items()
    ]
    figures = [f"{soak_charts.ARMS[arm]} {_quantiles(curve)}" for arm, curve in arms.items()]
    drawing = charts.plot(
        across,
        Scale(0.0, 1.0),
        height=100,
        x_show=lambda value: show(value, "s"),
        y_show=lambda value: percent(value, ".0f"),
        y_ticks=(0.0, 0.5, 0.95),
        lines=lines,
        label=f"{title}: {'; '.join(figures)}",
    )
    return el("figure", el("figcaption", title), drawing, el("p", " · ".join(figures), class_="dim note"))


def _quantiles(curve: Curve) -> str:
    names = ("median", *(f"p{100 * q:.0f}" for q in QUANTILES[1:]))
    return ", ".join(
        f"{name} {show(value, 's')}" for name, value in zip(names, curve.quantiles, strict=True) if value is not None
    )
