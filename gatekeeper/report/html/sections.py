"""The evidence of a page: the sweep, the distributions, the soak over time, the way down, the policy, the manifest."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import show
from gatekeeper.report.data.distributions import QUANTILES, STEPS, Curve, Distributions
from gatekeeper.report.data.page import PageData
from gatekeeper.report.data.sweep import METRICS
from gatekeeper.report.html import charts, soak
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, cell, el, join, table

CURVES = {"ttft": "Time to first token", "itl": "Time per token after it"}


def sections(page: PageData) -> list[Markup]:
    """Return the sections that follow the promises, those with nothing to show left out."""
    found = (
        _sweep(page),
        _spreads(page.distributions),
        soak.section(page),
        _way(page),
        _findings(page),
        _policy(page),
        _manifest(page),
    )
    return [one for one in found if one]


def sweep_document(page: PageData) -> dict[str, Any]:
    """Return what the page's script draws the sweep from; texts and names are held once and pointed to."""
    seen = page.sweep
    names: dict[str, int] = {}
    texts: dict[str, int] = {}
    workloads = [one.name for one in page.verdict.workloads]
    trials = [one.name for one in seen.settings]
    rows = [
        [
            workloads.index(one.workload),
            trials.index(one.trial),
            names.setdefault(one.canary, len(names)),
            one.repeat,
            one.tokens,
            texts.setdefault(one.excerpt, len(texts)),
            texts.setdefault(one.fault, len(texts)) if one.fault is not None else None,
            *one.figures,
        ]
        for one in seen.rows
    ]
    return {
        "workloads": workloads,
        "settings": [
            {"name": one.name, "arm": one.arm, "moved": one.moved, "label": _label(one.name, one.knobs)}
            for one in seen.settings
        ],
        "metrics": [
            {
                "name": one,
                "unit": BY_NAME[one].unit,
                "says": BY_NAME[one].description,
                "ratio": BY_NAME[one].against_plain,
            }
            for one in METRICS
        ],
        "chosen": [_chosen(page, one.setting) for one in page.verdict.workloads],
        "ended": [
            f"{one.outcome.replace('_', ' ')}: {describe_setting(one.setting)}" for one in page.verdict.workloads
        ],
        "estimates": [
            [workloads.index(workload), trials.index(trial), METRICS.index(metric), *seen]
            for (workload, trial, metric), seen in seen.estimates.items()
            if metric in METRICS and trial in trials
        ],
        "canaries": list(names),
        "texts": list(texts),
        "rows": rows,
    }


def _label(name: str, knobs: Mapping[str, Any]) -> str:
    if knobs.get("draft") is None:
        rest = [f"{knob} {value}" for knob, value in knobs.items() if knob != "draft"]
        return ", ".join((f"plain decoding{', again' if name == 'null' else ''}", *rest))
    return describe_setting(knobs)


def _chosen(page: PageData, setting: Mapping[str, Any]) -> int | None:
    """Return which trial of the sweep is the setting a workload ends in; None where the sweep did not try it alone."""
    for number, one in enumerate(page.sweep.settings):
        if one.arm == "candidate" and setting.get("draft") and setting.items() <= one.knobs.items():
            return number
    return None


def _sweep(page: PageData) -> Markup:
    if not page.sweep.rows:
        return Markup("")
    rest = (
        f" {page.sweep.left_out} answers more are not drawn; the intervals rest on all." if page.sweep.left_out else ""
    )
    key = (
        "Each dot is an answer: rest on it to see which. The bar is the estimate with its bounds. "
        f"The sweep chooses, it proves nothing.{rest}"
    )
    pickers = [
        el("label", name, el("select", id=f"pick-{name.lower()}", autocomplete="off"))
        for name in ("Workload", "Knob", "Metric")
    ]
    tables = [_swept_table(one.name, one.choice) for one in page.verdict.workloads if one.choice.get("settings")]
    return el(
        "section",
        el("h2", "The sweep"),
        el("p", key, class_="dim"),
        el("div", *pickers, class_="pickers"),
        el("div", id="sweep", aria_live="polite"),
        el("noscript", el("p", "This picture needs scripts; the table below says the same.", class_="dim")),
        el("details", el("summary", "As a table"), *tables),
    )


def _swept_table(name: str, choice: Mapping[str, Any]) -> Markup:
    heads = ("Setting", "Against plain", "Acceptance", "Canaries")
    rows = []
    for one in choice["settings"]:
        ratio = f"{one['ratio']:.2f} [{one['lo']:.2f}, {one['hi']:.2f}]" if one["ratio"] else one.get("because", "-")
        accepted = one["acceptance_rate"]
        told = (describe_setting(one["setting"]), ratio, "-" if accepted is None else f"{accepted:.2f}", str(one["n"]))
        rows.append(el("tr", *(cell(head, text) for head, text in zip(heads, told, strict=True))))
    return join(el("h3", name), table(heads, rows, "plainly"))


def _spreads(spreads: Sequence[Distributions]) -> Markup:
    if not spreads:
        return Markup("")
    parts = []
    for one in spreads:
        where = f"{one.source} · {describe_setting(one.setting)}"
        figures = [_curves(CURVES[metric], arms) for metric, arms in one.curves.items()]
        parts += [el("h3", one.workload, el("span", f" {where}", class_="dim")), el("div", *figures, class_="pair")]
    key = (
        "The share of answers (of tokens, on the right) that came within a time. Further left is faster; where the "
        "curves cross, one arm is faster on most and slower on some."
    )
    return el("section", el("h2", "Distributions"), el("p", key, class_="dim"), soak.legend(), *parts)


def _curves(title: str, arms: Mapping[str, Curve]) -> Markup:
    across = charts.scale(value for one in arms.values() for value in one.values if value > 0)
    up = Scale(0.0, 1.0)
    lines = [
        Line([(value, step / STEPS) for step, value in enumerate(one.values)], arm, step=True)
        for arm, one in arms.items()
    ]
    drawing = charts.plot(
        across,
        up,
        height=150,
        x_show=lambda value: show(value, "s"),
        y_show=lambda value: f"{value:.0%}",
        y_ticks=(0.0, 0.5, 0.95),
        lines=lines,
        label=f"{title}: "
        + "; ".join(f"{soak.ARMS[arm]} median {show(one.quantiles[0], 's')}" for arm, one in arms.items()),
    )
    heads = ("", *(f"p{q * 100:.0f}" for q in QUANTILES), "answers")
    rows = [
        el(
            "tr",
            el("th", el("span", class_=f"key {arm}"), f" {soak.ARMS[arm]}", scope="row"),
            *(el("td", show(value, "s")) for value in one.quantiles),
            el("td", str(one.answers), class_="dim"),
        )
        for arm, one in arms.items()
    ]
    numbers = el(
        "table", el("thead", el("tr", *(el("th", head) for head in heads))), el("tbody", *rows), class_="numbers"
    )
    return el("figure", el("figcaption", title), drawing, numbers)


def _way(page: PageData) -> Markup:
    steps = page.verdict.transitions
    if not steps:
        return Markup("")
    told = [
        el(
            "li",
            el("strong", step.workload),
            f": {describe_setting(step.before)} → {describe_setting(step.after)}",
            el("span", f"{step.because} ({step.at[:19].replace('T', ' ')} UTC)", class_="dim note"),
        )
        for step in steps
    ]
    return el("section", el("h2", "The way down the ladder"), el("ol", *told, class_="told"))


def _findings(page: PageData) -> Markup:
    if not page.verdict.findings:
        return Markup("")
    told = [
        el(
            "li",
            el("strong", f"{one.kind.replace('_', ' ')}, {one.about}"),
            f": {one.detail}",
            el("span", one.advice, class_="dim note") if one.advice else None,
        )
        for one in page.verdict.findings
    ]
    return el("section", el("h2", "Findings"), el("ul", *told, class_="told"))


def _policy(page: PageData) -> Markup:
    if page.policy is None:
        text = "No policy was written: an unproven or unfinished run changes nothing."
        return el("section", el("h2", "The policy"), el("p", text))
    return el(
        "section",
        el("h2", "The policy"),
        el("p", "policy.toml, as it may be deployed:", class_="dim"),
        el("pre", page.policy),
    )


def _manifest(page: PageData) -> Markup:
    held = page.manifest
    rows = [("manifest", page.verdict.manifest_sha256), ("SLO", f"{held['slo']['name']} {held['slo']['sha256'][:16]}")]
    rows += [("target", _model(held["target"]))] if held.get("target") else []
    rows += [("draft", _model(one)) for one in held.get("drafts", ())]
    rows += [
        (f"canaries, {name}", f"{one['count']} in {one['name']} {one['sha256'][:16]}")
        for name, one in held["canaries"].items()
    ]
    rows += [
        ("soak profile", f"{held['profile']['name']} {held['profile']['sha256'][:16]}"),
        ("backend", held["backend"]),
    ]
    rows += [("versions", ", ".join(f"{name} {version}" for name, version in held["versions"].items()))]
    facts = [el("div", el("dt", name), el("dd", str(value))) for name, value in rows]
    whole = json.dumps(held, indent=1, sort_keys=True, ensure_ascii=False)
    return el(
        "section",
        el("h2", "The manifest"),
        el("p", "What was frozen before the first token.", class_="dim"),
        el("dl", *facts, class_="rows"),
        el("details", el("summary", "All of it"), el("pre", whole)),
    )


def _model(model: Mapping[str, Any]) -> str:
    return f"{model['name']}, {model['quantisation']}, {show(model['bytes'], 'B')}, {model['digest'][:16]}"
