"""The sections of a page in their order, from what failed to the manifest."""

import json
from collections.abc import Iterator, Mapping
from functools import partial

from gatekeeper.analysis.verdict.cached_contexts import CachedContext
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.judgement import Estimate, Outcome
from gatekeeper.core.manifest import Model
from gatekeeper.core.metrics import ENERGY_RATIO
from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import percent, show
from gatekeeper.report import phrases
from gatekeeper.report.data.distributions import QUANTILES, STEPS, Curve
from gatekeeper.report.data.objective_rows import show_measurement
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.requirements import open_requirements
from gatekeeper.report.html import charts, soak_charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, el
from gatekeeper.report.html.objective_matrix import matrix_section
from gatekeeper.report.html.sweep_section import sweep_section
from gatekeeper.report.html.workload_cards import workloads_section
from gatekeeper.report.run_document import (
    blocking_section,
    findings_section,
    gaps_section,
    given_up_section,
    steps_section,
)
from gatekeeper.report.shown_document import Beside, Chart, Content, Facts, Fold, Node, Note, Section, Strong, Table

CONTEXT_HEADS = ("Prompt, tokens", "Whole turn", "First token", "Acceptance", "Failed", "Evidence")
CONTEXT_KINDS = {Outcome.PASS: "promoted", Outcome.FAIL: "failed", Outcome.UNPROVEN: "unproven"}
"""The outcomes of a run whose colour the interval of a length has."""
ABOUT_CONTEXTS = (
    "Conversations that grew turn by turn in both arms with their prompt caches on; the first turn of each fills its "
    "cache and is not timed. All intervals of the whole turn hold together, with the conversation as the unit."
)
ABOUT_ENERGY = (
    "Joules a token above the power at rest, of the same work in both arms: by readings of the sensor that lie wholly "
    "inside an answer. Rest was sampled before and after the soak; the interval holds for either."
)
ABOUT_LATENCY = (
    "The share of answers (time to first token) or tokens (time per token) that arrived within a time. Further left is "
    "faster. Where the curves cross, one arm is faster for most and slower for some. A percentile is given only where "
    "there are enough answers."
)
CURVE_TITLES = {"ttft": "Time to first token", "itl": "Time per token after it"}


def list_sections(page: PageData) -> Iterator[Section]:
    """Yield the sections of a page in their order; those with nothing to show are left out."""
    finished = page.progress is None
    required = open_requirements(page.decision, page.unfinished)
    judged = finished or any(workload.checks for workload in page.verdict.workloads)
    parts = (
        blocking_section(page.decision, required, charts.interval) if finished else None,
        workloads_section(page),
        matrix_section(page),
        given_up_section(page.decision, charts.interval),
        gaps_section(page),
        contexts_section(page.verdict),
        energy_section(page.verdict),
        sweep_section(page),
        latency_section(page),
        soak_charts.soaks_section(page),
        steps_section(page.verdict) if judged else None,  # those of a run that has judged nothing are only foreseen
        findings_section(page.verdict),
        manifest_section(page),
    )
    yield from (part for part in parts if part is not None)


def contexts_section(verdict: Verdict) -> Section | None:
    """Return turns on a warm cache by the length of their prompts; None where no workload has any."""
    measured = {work.name: work.measured.contexts for work in verdict.workloads if work.measured.contexts}
    ratios = (context.ratio for contexts in measured.values() for context in contexts)
    ends = [end for ratio in ratios if isinstance(ratio, Estimate) for end in (ratio.lo, ratio.hi)]
    across = charts.scale(ends, floor=1.0)
    parts = [
        Section(name, (Table(CONTEXT_HEADS, [_context_row(context, across) for context in contexts]),))
        for name, contexts in measured.items()
    ]
    return Section("Warm cache", parts, about=ABOUT_CONTEXTS) if parts else None


def _context_row(context: CachedContext, across: Scale) -> tuple[Content, ...]:
    ratio, kind = context.ratio, CONTEXT_KINDS[context.outcome]
    drawn: Content = "-"
    if isinstance(ratio, Estimate):
        drawn = Chart(partial(charts.speedup, ratio.center, ratio.lo, ratio.hi, across, kind), phrases.ratio(ratio))
    return (
        f"{context.least} to {context.most}",
        drawn,
        phrases.first_tokens(context),
        phrases.figure(context.acceptance, "acceptance_rate"),
        str(context.failed),
        f"{context.turns} turns of {context.conversations} conversations",
    )


def energy_section(verdict: Verdict) -> Section | None:
    """Return the section; None where no objective compares the energy of the arms, or none was measured."""
    parts = []
    for workload in verdict.workloads:
        energy = workload.measured.energy
        for check in workload.checks:
            if check.metric == ENERGY_RATIO and energy is not None:
                result = f"{show_measurement(check)} times the joules a token of plain decoding; {energy.basis}"
                bars = {f"plain {show(energy.plain, 'J')}": energy.plain}
                bars[f"draft {show(energy.drafting, 'J')}"] = energy.drafting
                drawn = Chart(partial(charts.bars, bars, f"joules a token: {result}"))
                parts.append(Section(workload.name, (drawn, Note(result))))
    return Section("Energy", parts, about=ABOUT_ENERGY) if parts else None


def latency_section(page: PageData) -> Section | None:
    """Return medians as a table, and the curves behind it; None where nothing was timed."""
    if not page.distributions:
        return None
    columns: list[Node] = []
    rows: list[tuple[Content, ...]] = []
    for distributions in page.distributions:
        curves = [partial(_draw_curves, CURVE_TITLES[metric], arms) for metric, arms in distributions.curves.items()]
        columns.append(Section(distributions.workload, [Chart(draw) for draw in curves]))
        quantiles = [
            _show_arms(distributions.curves.get(metric, {}), place)
            for metric in CURVE_TITLES
            for place in ((0, 1, 2) if metric == "itl" else (0,))
        ]
        source = f"{distributions.source}, {describe_setting(distributions.setting)}"
        rows.append((Strong(distributions.workload), *quantiles, source))
    heads = ("Workload", *(f"{title}, median" for title in CURVE_TITLES.values()), "p95", "p99", "Measured in")
    parts = (Table(heads, rows), Note(ABOUT_LATENCY), Chart(soak_charts.legend), Beside(columns))
    return Section("Latency", parts)


def _show_arms(arms: Mapping[str, Curve], place: int) -> str:
    """Show one of the `QUANTILES` of plain decoding and of the candidate."""
    quantiles = [arms[arm].quantiles[place] for arm in ("plain", "candidate") if arm in arms]
    return " → ".join("?" if value is None else show(value, "s") for value in quantiles) or "not measured"


def _draw_curves(title: str, arms: Mapping[str, Curve]) -> Markup:
    across = charts.scale(value for curve in arms.values() for value in curve.values if value > 0)
    lines = [
        Line([(value, step / STEPS) for step, value in enumerate(curve.values)], arm, step=True)
        for arm, curve in arms.items()
    ]
    figures = [f"{soak_charts.ARMS[arm]} {_show_quantiles(curve)}" for arm, curve in arms.items()]
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


def _show_quantiles(curve: Curve) -> str:
    names = ("median", *(f"p{100 * q:.0f}" for q in QUANTILES[1:]))
    return ", ".join(
        f"{name} {show(value, 's')}" for name, value in zip(names, curve.quantiles, strict=True) if value is not None
    )


def manifest_section(page: PageData) -> Section:
    """Return the policy, and what was fixed before the first token."""
    frozen = page.manifest
    rows: list[tuple[str, Content]] = [
        ("manifest", page.verdict.manifest_sha256),
        ("SLO", f"{frozen.slo.name} {frozen.slo.sha256[:16]}"),
        *([("target", _describe_model(frozen.target))] if frozen.target is not None else []),
        *(("draft", _describe_model(draft)) for draft in frozen.drafts),
        *(
            (f"canaries, {name}", f"{file.count} in {file.name} {file.sha256[:16]}")
            for name, file in frozen.canaries.items()
        ),
        ("soak profile", f"{frozen.profile.name} {frozen.profile.sha256[:16]}"),
        ("backend", frozen.backend),
        ("versions", ", ".join(f"{name} {version}" for name, version in frozen.versions.items())),
    ]
    manifest_json = json.dumps(frozen.document(), indent=1, sort_keys=True, ensure_ascii=False)
    files: tuple[Node, ...] = (
        Fold("Models, canaries and versions", (Facts(rows, "rows"),)),
        Fold("manifest.json: what was fixed before the first token", file=manifest_json),
    )
    if page.progress is not None:
        return Section("Manifest", files, name="files")
    policy: Node = Note("No policy was written: an unproven or unfinished run changes nothing.")
    if page.policy is not None:
        policy = Fold("policy.toml: what to deploy, with its guards", file=page.policy)
    return Section("Policy and manifest", (policy, *files), name="files")


def _describe_model(model: Model) -> str:
    return f"{model.name}, {model.quantisation}, {show(model.bytes, 'B')}, {model.digest[:16]}"
