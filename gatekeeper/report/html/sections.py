"""The evidence of a page: sweep, distributions, soaks over time, steps down the ladder, policy and manifest."""

import json
from collections.abc import Mapping

from gatekeeper.analysis.sweep.setting_result import SettingResult
from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.manifest import Model
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.records import Knobs
from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import percent, show
from gatekeeper.core.verdict import Missing
from gatekeeper.report import phrases
from gatekeeper.report.data.distributions import QUANTILES, STEPS, Curve
from gatekeeper.report.data.glossary import finding_title, in_words
from gatekeeper.report.data.page import PageData
from gatekeeper.report.data.sweep import METRICS
from gatekeeper.report.html import charts, soak_charts
from gatekeeper.report.html.capacity_section import capacities
from gatekeeper.report.html.ceiling_section import round_cost
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.conversations_section import conversations
from gatekeeper.report.html.energy_section import energies
from gatekeeper.report.html.markup import Markup, el, facts, note, section, table
from gatekeeper.report.html.region_section import regions

SWEEP_HEADS = ("Setting", "Against plain", "Acceptance", "Canaries")
CURVES = {"ttft": "Time to first token", "itl": "Time per token after it"}


def sections(page: PageData) -> list[Markup]:
    """Return the sections that follow the objectives; those with nothing to show are left out."""
    verdict = page.verdict
    around = (regions(verdict), conversations(verdict), capacities(verdict), energies(verdict))
    measured = (
        *around,
        _at_end(page),
        _sweep(page),
        round_cost(page.ceiling),
        _distributions(page),
        soak_charts.soaks(page),
    )
    return [part for part in (*measured, _transitions(page), _findings(page), _files(page)) if part]


def _at_end(page: PageData) -> Markup | None:
    """Return what further passes at the end of the run measured in both arms."""
    measured = [
        (workload.name, phrases.arms_compared(compared))
        for workload in page.verdict.workloads
        for compared in workload.at_end
    ]
    about = "Measured after all soaks, in both arms. No outcome rests on it."
    return section("At the end of the run", facts(measured, "rows"), about=about) if measured else None


def sweep_document(page: PageData) -> dict[str, object]:
    """Return the data from which the page's script draws the sweep; texts and names are stored once, with an index."""
    sweep = page.sweep
    names: dict[str, int] = {}
    texts: dict[str, int] = {}
    workloads = [workload.name for workload in page.verdict.workloads]
    trials = [setting.name for setting in sweep.settings]
    rows = [
        [
            workloads.index(answer.workload),
            trials.index(answer.trial),
            names.setdefault(answer.canary, len(names)),
            answer.repeat,
            answer.tokens,
            texts.setdefault(answer.excerpt, len(texts)),
            texts.setdefault(answer.fault, len(texts)) if answer.fault is not None else None,
            *answer.figures,
        ]
        for answer in sweep.rows
    ]
    return {
        "workloads": workloads,
        "settings": [
            {"name": trial.name, "arm": trial.arm, "moved": trial.moved, "label": _label(trial.name, trial.knobs)}
            for trial in sweep.settings
        ],
        "metrics": [
            {
                "name": metric.name,
                "unit": "x" if metric.speed_ratio else metric.unit,
                "description": metric.description,
                "ratio": metric.against_plain,
            }
            for metric in (BY_NAME[name] for name in METRICS)
        ],
        "chosen": [_chosen(page, workload.setting) for workload in page.verdict.workloads],
        "deployed": [workload.outcome is WorkloadOutcome.PROMOTED for workload in page.verdict.workloads],
        "ended": [_ended(page, workload) for workload in page.verdict.workloads],
        "estimates": [
            [workloads.index(workload), trials.index(trial), METRICS.index(metric), *interval]
            for (workload, trial, metric), interval in sweep.estimates.items()
            if metric in METRICS and trial in trials
        ],
        "canaries": list(names),
        "texts": list(texts),
        "rows": rows,
    }


def _label(name: str, knobs: Knobs) -> str:
    if knobs.get("draft") is None:
        rest = [f"{knob} {value}" for knob, value in knobs.items() if knob != "draft"]
        return ", ".join((f"plain decoding{', repeated' if name == 'null' else ''}", *rest))
    return describe_setting(knobs)


def _ended(page: PageData, workload: WorkloadVerdict) -> str:
    if page.progress is not None:
        return ""
    word = phrases.spaced(workload.outcome)
    return f" Result of {workload.name}: {word}, {describe_setting(workload.setting)}."


def _chosen(page: PageData, setting: Knobs) -> int | None:
    """Return the trial of the sweep with the setting a workload ends in; None where no trial has exactly that one.

    A run under way has chosen nothing yet.
    """
    if page.progress is not None:
        return None
    for number, trial in enumerate(page.sweep.settings):
        if trial.arm == "candidate" and setting.get("draft") and setting.items() <= trial.knobs.items():
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
        for workload in page.verdict.workloads
        if workload.choice is not None and workload.choice.results
        for part in (el("h3", workload.name), table(SWEEP_HEADS, map(_swept_row, workload.choice.results), "plainly"))
    ]
    return section(
        "Sweep",
        el("div", *pickers, class_="pickers"),
        el("div", id="sweep", aria_live="polite"),
        el("noscript", el("p", "This chart needs JavaScript; the table below has the same estimates.", class_="dim")),
        el("details", el("summary", "As a table"), *tables),
        about=about,
        name="settings",
    )


def _swept_row(result: SettingResult) -> tuple[str, ...]:
    return (
        describe_setting(dict(result.trial.setting)),
        result.ratio.because if isinstance(result.ratio, Missing) else phrases.ratio(result.ratio),
        "-" if result.acceptance is None else f"{result.acceptance:.2f}",
        str(result.ratio.n),
    )


def _distributions(page: PageData) -> Markup | None:
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


def _transitions(page: PageData) -> Markup | None:
    steps = [
        el(
            "li",
            el("strong", step.workload),
            f": {phrases.step(step)}",
            note(f"{in_words(step.because)} ({step.at[:19].replace('T', ' ')} UTC)"),
        )
        for step in page.verdict.transitions
    ]
    foreseen = page.progress is not None and not any(workload.checks for workload in page.verdict.workloads)
    return section("Fallback steps", el("ol", *steps, class_="events")) if steps and not foreseen else None


def _findings(page: PageData) -> Markup | None:
    findings = [
        el(
            "li",
            el("strong", f"{finding_title(finding.kind)}, {finding.about}"),
            f": {finding.detail}",
            note(finding.advice) if finding.advice else None,
        )
        for finding in phrases.merged(page.verdict)
    ]
    return section("Findings", el("ul", *findings, class_="events")) if findings else None


def _files(page: PageData) -> Markup:
    """Return the policy, and what was fixed before the first token."""
    frozen = page.manifest
    rows = [
        ("manifest", page.verdict.manifest_sha256),
        ("SLO", f"{frozen.slo.name} {frozen.slo.sha256[:16]}"),
        *([("target", _model(frozen.target))] if frozen.target is not None else []),
        *(("draft", _model(draft)) for draft in frozen.drafts),
        *(
            (f"canaries, {name}", f"{file.count} in {file.name} {file.sha256[:16]}")
            for name, file in frozen.canaries.items()
        ),
        ("soak profile", f"{frozen.profile.name} {frozen.profile.sha256[:16]}"),
        ("backend", frozen.backend),
        ("versions", ", ".join(f"{name} {version}" for name, version in frozen.versions.items())),
    ]
    manifest_json = json.dumps(frozen.document(), indent=1, sort_keys=True, ensure_ascii=False)
    policy = el("p", "No policy was written: an unproven or unfinished run changes nothing.")
    if page.policy is not None:
        policy = _folded("policy.toml: what to deploy, with its guards", page.policy)
    return section(
        "Policy and manifest" if page.progress is None else "Manifest",
        policy if page.progress is None else None,
        el("details", el("summary", "Models, canaries and versions"), facts(rows, "rows")),
        _folded("manifest.json: what was fixed before the first token", manifest_json),
        name="files",
    )


def _folded(title: str, text: str) -> Markup:
    return el("details", el("summary", title), el("pre", text, tabindex="0"))


def _model(model: Model) -> str:
    return f"{model.name}, {model.quantisation}, {show(model.bytes, 'B')}, {model.digest[:16]}"
