"""The phrases that all reports share: outcome signs, figures with intervals, and the sentences about a verdict."""

from dataclasses import replace
from typing import TYPE_CHECKING

from gatekeeper.analysis.metrics.prompt_speeds import EACH
from gatekeeper.analysis.sweep.setting_result import SettingResult
from gatekeeper.analysis.verdict.routing_gain import Routing
from gatekeeper.analysis.verdict.run_verdict import Measured, Transition, Verdict
from gatekeeper.core.judgement import Check, Estimate, Finding, FindingKind, Missing, round_figure
from gatekeeper.core.metrics import BY_NAME, shown_as
from gatekeeper.core.text import describe_setting, join_names, show_count
from gatekeeper.core.units import percent, show, show_ratio, show_seconds
from gatekeeper.report.data.glossary import in_words
from gatekeeper.report.data.objective_rows import ObjectiveRow, show_measurement
from gatekeeper.report.data.workload_summary import SpeedUp, WorkloadSummary
from gatekeeper.report.outcome_signs import write_as_words

if TYPE_CHECKING:  # so that a command which prints a line does without numpy
    from gatekeeper.analysis.verdict.cached_contexts import CachedContext
    from gatekeeper.report.data.page_data import PageData
    from gatekeeper.report.data.progress import Snapshot

TESTS = frozenset({"sampled_tokens_p_value", "sampled_answers_p_value"})
"""Metrics of a statistical test: their power is shown where they pass, too."""


def describe_state(page: "PageData") -> str:
    """Write the state of a run for a reader: its outcome, or that there is none yet."""
    words = state(page)
    return page.decision.outcome if words == page.verdict.outcome else write_as_words(words)


def bound(check: Check) -> str:
    """Write an objective's bound: ≥ 1.16x."""
    metric = BY_NAME.get(check.metric)
    if metric is None:
        limit = show(check.threshold, check.unit)
    else:
        limit = shown_as(metric, check.against).show(check.threshold)
    return f"{'≥' if check.bound == 'at_least' else '≤'} {limit}{against(check)}"


def against(check: Check) -> str:
    """Write what a bound is relative to, where it is not a bound on this run alone."""
    return f" against the {check.against} run" if check.against is not None else ""


def about(check: Check) -> str:
    """Write which prompts a check's interval is about, and the interval for others beside it; nothing if counted."""
    if check.scope != "frozen":
        return "for prompts like these" if check.scope else ""
    population = check.population
    if population is None or population.lo is None or population.hi is None:
        return "on these canaries"
    wider = replace(check, lo=population.lo, hi=population.hi)
    return f"on these canaries; for prompts like these {show_measurement(wider)}"


def scopes(check: Check) -> list[str]:
    """Write the interval for these canaries and the one for prompts like them, a line each; nothing if counted."""
    population = check.population
    if check.scope != "frozen" or population is None or population.lo is None or population.hi is None:
        return [about(check)] if check.scope else []
    assert check.lo is not None
    assert check.hi is not None
    lines = [f"these canaries: {show_measurement(check)} (this decides)"]
    lines.append(f"prompts like them: {show_measurement(replace(check, lo=population.lo, hi=population.hi))}")
    if check.hi - check.lo > population.hi - population.lo:
        lines.append("The first is wider because few canaries were repeated: their noise is known only roughly.")
    return lines


def ratio(figure: Estimate | SpeedUp) -> str:
    """Write a ratio to plain decoding, or of two settings, with its interval: 1.31x [1.22, 1.38]."""
    return show_ratio(figure.center, figure.lo, figure.hi)


def step(transition: Transition, arrow: str = "→") -> str:
    """Write a step down the ladder: the setting before and after it."""
    return f"{describe_setting(transition.before)} {arrow} {describe_setting(transition.after)}"


def merge_findings(verdict: Verdict) -> list[Finding]:
    """Return each finding once, with every soak it was found in; a demo is too short to foresee when memory runs out.

    Of such forecasts about one value, only the latest is returned.
    """
    alike: dict[tuple[str, ...], list[tuple[str, Finding]]] = {}
    for finding in verdict.findings:
        soak, about = _split_soak(finding.about)
        forecast = finding.kind == FindingKind.MEMORY_EXHAUSTION
        if not (forecast and verdict.grade == "demo"):
            key = (finding.kind, about) if forecast else (finding.kind, about, finding.detail, finding.advice)
            alike.setdefault(key, []).append((soak, replace(finding, about=about)))
    merged_findings = []
    for findings in alike.values():
        soaks, last = [soak for soak, _ in findings if soak], findings[-1][1]
        merged_findings.append(replace(last, about=f"{last.about}, {join_names(soaks)}") if soaks else last)
    return merged_findings


def _split_soak(about: str) -> tuple[str, str]:
    """Split what a finding is about into its soak, empty without one, and the rest: soak-1, host; code, soak-1."""
    parts = about.split(", ")
    soak = next((part for part in parts if part.startswith("soak-")), "") if len(parts) > 1 else ""
    return soak, ", ".join(part for part in parts if part != soak)


def state(page: "PageData") -> str:
    """Return the outcome, or `interrupted` where there is none yet."""
    if page.progress is not None:
        return "running"
    return "interrupted" if page.unfinished else page.verdict.outcome


def under_way(now: "Snapshot") -> str:
    """Write how far a run is: the stage, the answers, and the time that is left."""
    count = f"{now.answered} of {now.of} answers" if now.of else show_count(now.answered, "answer")
    count += " of this part" if now.of and now.part else ""
    parts = [f"Running: {now.stage}", *([now.part] if now.part else []), count]
    # Less than a second is a forecast that is used up, not a time.
    parts += [f"about {show_seconds(now.run_left)} left"] if now.run_left is not None and now.run_left >= 1 else []
    parts += [show_count(now.faults, "fault")] if now.faults else []
    return ", ".join(parts)


def against_plain(figure: SpeedUp | None) -> str:
    """Write the speed against plain decoding, and where that was measured unless in the soak of the final setting."""
    if figure is None:
        return "-"
    where = {"sweep": " (sweep)", "abandoned": " (given up)"}.get(figure.source, "")
    return f"{ratio(figure)}{where}"


def checks_passed(workload: WorkloadSummary, of: str = "/", passed: str = "") -> str:
    """Write how many checks passed and how many objectives failed while drafting: 5/6, 1 failed; empty without any."""
    parts = [f"{workload.passed}{of}{workload.checks}{passed}"] if workload.checks else []
    parts += [f"{workload.failed_drafting} failed"] if workload.failed_drafting else []
    return ", ".join(parts)


def tokens_per_second(speed: float | None) -> str:
    """Write a speed; a dash where it was not measured."""
    return "-" if speed is None else show(speed, "tok/s")


def row_measured(row: ObjectiveRow) -> str:
    """Write what was measured of an objective, and with which settings where those were given up."""
    reason = in_words(row.check.bare_reason)
    if not row.abandoned:
        return reason
    more = f" (closest of {len(row.tried)} settings)" if len(row.tried) > 1 else ""
    return f"{reason}; with {describe_setting(row.setting)}{more}"


def swept_speed(result: SettingResult) -> str:
    """Write whether a setting of the sweep is faster than plain decoding, and its ratio or why there is none."""
    if isinstance(result.ratio, Missing):
        return f"not measured, {result.ratio.because}"
    figure = result.ratio.round_figures()
    if result.beats_plain:
        return f"faster, {ratio(figure)}"
    if figure.hi < 1:
        return f"slower, {ratio(figure)}"
    return f"not decided, {ratio(figure)}"


def routing(verdict: Verdict) -> str:
    """Write what the routes gain against one setting for all workloads, and which answers that rests on."""
    compared = verdict.routing
    if not isinstance(compared, Routing):
        return f"routing: {compared.because}" if compared is not None else ""
    mix, single = show(round_figure(compared.policy_throughput), "tok/s"), describe_setting(compared.best.setting)
    evidence = f"{compared.rests_on}, {compared.gain.n} canaries a workload"
    gain = f"{ratio(compared.gain)} as fast as {single} for all workloads ({evidence})"
    return f"routing: {mix} over the mix of workloads, {gain}; {compared.says}"


def prompt_speeds(measured: Measured) -> str:
    """Write the typical speed-up of a prompt, and how many prompts are proven slower; empty where it is not known."""
    prompts = measured.prompts
    if prompts is None:
        return ""
    slower = slower_prompts(measured) or ("no prompt is proven slower" if prompts.slower is not None else "")
    return "; ".join(filter(None, (f"typical {ratio(prompts.typical)}", slower)))


def slower_prompts(measured: Measured) -> str:
    """Write how many prompts are proven slower than plain decoding; empty where none is."""
    prompts = measured.prompts
    if prompts is None or not prompts.slower:
        return ""
    share = f"{len(prompts.slower)} of {prompts.typical.n} prompts"
    return f"{share} are proven slower than plain decoding (each at {percent(EACH, '.3g')})"


def figure(estimate: Estimate | Missing, metric: str) -> str:
    """Write a figure with its interval: 2.12x [2.08, 2.16], +14 % [+11, +17]; or why it is missing."""
    if isinstance(estimate, Missing):
        return f"open: {estimate.because}"
    return BY_NAME[metric].show_interval(estimate.center, estimate.lo, estimate.hi)


def first_tokens(context: "CachedContext") -> str:
    """Write the first token of turns on a warm cache in both arms, with the change and its interval."""
    if len(context.ttft) < 2:
        return "-"
    arms = f"{show(context.ttft['candidate'], 's')}, plain {show(context.ttft['plain'], 's')}"
    return f"{arms}: {figure(context.first_token, 'warm_cache_ttft_delta')}"


def cached_context(context: "CachedContext") -> str:
    """Write what turns on a warm cache with prompts of one length show."""
    parts = (
        f"whole turn {figure(context.ratio, 'warm_cache_turn_ratio')}",
        f"first token {first_tokens(context)}",
        f"acceptance {figure(context.acceptance, 'acceptance_rate')}",
        f"{show_count(context.failed, 'failed answer')} in {show_count(context.turns, 'turn')}",
    )
    return f"warm cache, prompts of {context.least} to {show_count(context.most, 'token')}: {'; '.join(parts)}"
