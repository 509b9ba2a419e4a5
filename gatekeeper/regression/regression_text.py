"""What `versus` and `bisect` print."""

from gatekeeper.core.metrics import BY_NAME, DECODE_RATIO
from gatekeeper.core.units import percent, show, show_seconds
from gatekeeper.core.verdict import Estimate, Missing
from gatekeeper.regression.bisect_result import BisectResult, Step
from gatekeeper.regression.versus_result import MetricComparison, VersusResult

_RATIO = BY_NAME[DECODE_RATIO]


def versus_text(result: VersusResult) -> str:
    """Return B over A, metric by metric, with what differs between them."""
    lines = [f"{result.slo}, {result.workload}: {show_seconds(result.seconds)}, B over A"]
    for side in (result.a, result.b):
        versions = ", ".join(f"{name} {version}" for name, version in side.versions.items())
        lines.append(f"{side.label}: {side.name}{f' ({versions})' if versions else ''}")
    lines += [f"{comparison.metric}: {_comparison(comparison)}" for comparison in result.metrics]
    if result.differences:
        lines.append(f"differs: {', '.join(result.differences)}")
    if result.run:
        lines.append(f"run: {result.run}")
    return "\n".join(lines) + "\n"


def _comparison(comparison: MetricComparison) -> str:
    value, says = comparison.value, comparison.says
    if isinstance(value, Missing):
        return f"{says}: {value.because}"
    if not says:
        return f"{percent(value.center)} of the canaries have equal answers"
    metric = BY_NAME[comparison.metric]
    return f"{(metric if metric.relative else _RATIO).show_range(value.lo, value.hi)}: {says}"


def bisect_text(result: BisectResult) -> str:
    """Return each tested version with its answer, and the first bad one."""
    symptom, metric = result.symptom, BY_NAME[result.symptom.metric]
    good = ""
    if symptom.threshold is not None:
        good = f", good: {symptom.bound.replace('_', ' ')} {metric.show(symptom.threshold)}"
    lines = [f"{result.slo}, {result.workload}: {metric.name}{good}"]
    lines += [f"  {step.name}: {_step(step, result)}" for step in result.steps]
    if result.first_bad:
        lines.append(f"first bad: {result.first_bad}; last good: {result.last_good}")
    if result.also_differs:
        lines.append(f"differs between them, too: {', '.join(result.also_differs)}")
    if result.because:
        lines.append(f"not found: {result.because}")
    if result.hint:
        lines.append(f"hint: {result.hint}")
    if result.reproduce:
        lines.append(f"again: {result.reproduce}")
    if (environments := result.environments) is not None:
        folder = environments.folder
        lines.append(f"environments: {show(environments.bytes, 'B')} in {folder}; to free it: rm -r {folder}")
    lines.append(f"run: {result.run}")
    return "\n".join(lines) + "\n"


def _step(step: Step, result: BisectResult) -> str:
    value, answer = step.value, step.answer(result.symptom)
    if isinstance(value, Missing):
        return f"{answer}: {step.because}"
    span = BY_NAME[result.symptom.metric].show_range(value.lo, value.hi)
    seconds = f", {show_seconds(step.seconds)}" if step.seconds else ""
    remark = f": {step.remark}" if step.remark else ""
    if isinstance(change := step.change, Estimate):
        span = f"{_RATIO.show_range(change.lo, change.hi)} of the first version ({span})"
    return f"{answer or 'tested'}, {span} on {value.n} canaries{seconds}{remark}"
