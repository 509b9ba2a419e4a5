"""The evidence of a page: sweep, distributions, soaks over time, steps down the ladder, policy and manifest."""

import json
from collections.abc import Mapping
from typing import Any

from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import show
from gatekeeper.report import phrases
from gatekeeper.report.data.distributions import QUANTILES, STEPS, Curve
from gatekeeper.report.data.page import PageData
from gatekeeper.report.data.sweep import METRICS
from gatekeeper.report.html import charts, soak
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, el, facts, note, section, table

SWEEP_HEADS = ("Setting", "Against plain", "Acceptance", "Canaries")
CURVES = {"ttft": "Time to first token", "itl": "Time per token after it"}


def sections(page: PageData) -> list[Markup]:
    """Return the sections that follow the objectives; those with nothing to show are left out."""
    found = (
        _sweep(page),
        _distributions(page),
        soak.soaks(page),
        _transitions(page),
        _findings(page),
        _policy(page),
        _manifest(page),
    )
    return [one for one in found if one]


def sweep_document(page: PageData) -> dict[str, Any]:
    """Return the data from which the page's script draws the sweep; texts and names are stored once, with an index."""
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
                "description": BY_NAME[one].description,
                "ratio": BY_NAME[one].against_plain,
            }
            for one in METRICS
        ],
        "chosen": [_chosen(page, one.setting) for one in page.verdict.workloads],
        "ended": [f"{phrases.spaced(one.outcome)}, {describe_setting(one.setting)}" for one in page.verdict.workloads],
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
        return ", ".join((f"plain decoding{', repeated' if name == 'null' else ''}", *rest))
    return describe_setting(knobs)


def _chosen(page: PageData, setting: Mapping[str, Any]) -> int | None:
    """Return the trial of the sweep with the setting a workload ends in; None where no trial has exactly that one."""
    for number, one in enumerate(page.sweep.settings):
        if one.arm == "candidate" and setting.get("draft") and setting.items() <= one.knobs.items():
            return number
    return None


def _sweep(page: PageData) -> Markup | None:
    if not page.sweep.rows:
        return None
    left_out = page.sweep.left_out
    about = (
        "Each dot is an answer: hover for details. The bar is the estimate with its confidence interval. The sweep "
        "chooses a setting; only the soak proves it."
        + (f" {left_out} more answers are not drawn, but count in the intervals." if left_out else "")
    )
    pickers = [
        el("label", name, el("select", id=f"pick-{name.lower()}", autocomplete="off"))
        for name in ("Workload", "Knob", "Metric")
    ]
    tables = [
        part
        for one in page.verdict.workloads
        if one.choice.get("settings")
        for part in (el("h3", one.name), table(SWEEP_HEADS, map(_swept_row, one.choice["settings"]), "plainly"))
    ]
    return section(
        "The sweep",
        el("div", *pickers, class_="pickers"),
        el("div", id="sweep", aria_live="polite"),
        el("noscript", el("p", "This chart needs JavaScript; the table below has the same estimates.", class_="dim")),
        el("details", el("summary", "As a table"), *tables),
        about=about,
    )


def _swept_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    accepted = one["acceptance_rate"]
    return (
        describe_setting(one["setting"]),
        phrases.ratio(one) if one["ratio"] else one.get("because", "-"),
        "-" if accepted is None else f"{accepted:.2f}",
        str(one["n"]),
    )


def _distributions(page: PageData) -> Markup | None:
    if not page.distributions:
        return None
    parts = []
    for one in page.distributions:
        source = f" {one.source} · {describe_setting(one.setting)}"
        figures = [_curves(CURVES[metric], arms) for metric, arms in one.curves.items()]
        parts += [el("h3", one.workload, el("span", source, class_="dim")), el("div", *figures, class_="pair")]
    about = (
        "The share of answers (on the right: of tokens) that arrived within a time. Further left is faster. Where the "
        "curves cross, one arm is faster for most and slower for some."
    )
    return section("Distributions", soak.legend(), *parts, about=about)


def _curves(title: str, arms: Mapping[str, Curve]) -> Markup:
    across = charts.scale(value for one in arms.values() for value in one.values if value > 0)
    lines = [
        Line([(value, step / STEPS) for step, value in enumerate(one.values)], arm, step=True)
        for arm, one in arms.items()
    ]
    medians = (f"{soak.ARMS[arm]} median {show(one.quantiles[0], 's')}" for arm, one in arms.items())
    drawing = charts.plot(
        across,
        Scale(0.0, 1.0),
        height=150,
        x_show=lambda value: show(value, "s"),
        y_show=lambda value: f"{value:.0%}",
        y_ticks=(0.0, 0.5, 0.95),
        lines=lines,
        label=f"{title}: {'; '.join(medians)}",
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
    head = el("thead", el("tr", *(el("th", one) for one in heads)))
    numbers = el("table", head, el("tbody", *rows), class_="numbers")
    return el("figure", el("figcaption", title), drawing, numbers)


def _transitions(page: PageData) -> Markup | None:
    steps = [
        el(
            "li",
            el("strong", step.workload),
            f": {phrases.step(step)}",
            note(f"{step.because} ({step.at[:19].replace('T', ' ')} UTC)"),
        )
        for step in page.verdict.transitions
    ]
    return section("Steps down the fallback ladder", el("ol", *steps, class_="events")) if steps else None


def _findings(page: PageData) -> Markup | None:
    found = [
        el(
            "li",
            el("strong", f"{phrases.spaced(one.kind)}, {one.about}"),
            f": {one.detail}",
            note(one.advice) if one.advice else None,
        )
        for one in page.verdict.findings
    ]
    return section("Findings", el("ul", *found, class_="events")) if found else None


def _policy(page: PageData) -> Markup:
    if page.policy is None:
        none = "No policy was written: an unproven or unfinished run changes nothing."
        return section("The policy", el("p", none))
    return section("The policy", el("pre", page.policy), about="policy.toml, ready to deploy:")


def _manifest(page: PageData) -> Markup:
    frozen = page.manifest
    rows = [
        ("manifest", page.verdict.manifest_sha256),
        ("SLO", f"{frozen['slo']['name']} {frozen['slo']['sha256'][:16]}"),
        *([("target", _model(frozen["target"]))] if frozen.get("target") else []),
        *(("draft", _model(one)) for one in frozen.get("drafts", ())),
        *(
            (f"canaries, {name}", f"{one['count']} in {one['name']} {one['sha256'][:16]}")
            for name, one in frozen["canaries"].items()
        ),
        ("soak profile", f"{frozen['profile']['name']} {frozen['profile']['sha256'][:16]}"),
        ("backend", str(frozen["backend"])),
        ("versions", ", ".join(f"{name} {version}" for name, version in frozen["versions"].items())),
    ]
    whole = json.dumps(frozen, indent=1, sort_keys=True, ensure_ascii=False)
    return section(
        "The manifest",
        facts(rows, "rows"),
        el("details", el("summary", "Full manifest"), el("pre", whole)),
        about="What was fixed before the first token.",
    )


def _model(model: Mapping[str, Any]) -> str:
    return f"{model['name']}, {model['quantisation']}, {show(model['bytes'], 'B')}, {model['digest'][:16]}"
