"""What `versus` shows."""

from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.metrics import BY_NAME, DECODE_RATIO, PASS_RATES
from gatekeeper.core.text import join_names
from gatekeeper.core.units import percent, show, show_interval, show_seconds
from gatekeeper.report.shown_document import Document, Facts, Listing, Table
from gatekeeper.versus.answer_comparison import WordComparison
from gatekeeper.versus.versus_result import ComparedSide, MetricComparison, VersusResult

_RATIO = BY_NAME[DECODE_RATIO]
ACCEPTANCE = "acceptance_rate"
_RIGHT = {None: "right", "json": "of JSON right", "tool": "of tool calls right"}


def versus_document(result: VersusResult) -> Document:
    """Return B over A, metric by metric, with what differs between them."""
    sides = [(side.label, _side(side)) for side in (result.a, result.b)]
    rows = [_comparison(comparison, result) for comparison in result.metrics]
    remarks = _words(result.words) if result.words is not None else []
    remarks += [f"differs: {', '.join(result.differences)}"] if result.differences else []
    remarks += [f"run: {result.run}"] if result.run else []
    warnings = [f"warning: {warning}" for warning in result.warnings]
    nodes = (Facts(sides), Listing(warnings), Table(("Metric", "B over A", ""), rows), Listing(remarks))
    return Document("versus", f"{result.slo}, {result.workload}: {show_seconds(result.seconds)}, B over A", nodes)


def _side(side: ComparedSide) -> str:
    """Return what is compared, and what it shows alone: speed, first token, right answers, failed ones."""
    versions = [f"{name} {version}" for name, version in side.versions.items() if version not in {side.name, "unknown"}]
    names = ", ".join([*versions, *([f"model {side.model}"] if side.model else [])])
    values = {name: value.center for name, value in side.measured.items() if isinstance(value, Estimate)}
    figures = [
        words.format(show(values[name], unit))
        for name, unit, words in (("decode_throughput", "tok/s", "{}"), ("ttft", "s", "first token after {}"))
        if name in values
    ]
    rates = {
        ACCEPTANCE: "of drafted tokens accepted",
        **{rate.figure: _RIGHT[rate.kind] for rate in PASS_RATES.values()},
    }
    figures += [f"{percent(values[name], '.3g')} {words}" for name, words in rates.items() if name in values]
    if failed := values.get("error_rate"):
        figures.append(f"{percent(failed, '.3g')} of the answers failed")
    return f"{side.name}{f' ({names})' if names else ''}: {', '.join(figures) or 'no answer'}"


def _words(words: WordComparison) -> list[str]:
    """Return the first difference of the answers, and which side does not repeat its own."""
    lines = []
    if words.unsteady:
        lines.append(
            f"repeats differ: {join_names(words.unsteady)} answered a canary in other words when it came again"
        )
    if words.differences:
        place = words.differences[0]
        parts = f"A {place.a!r}, B {place.b!r}"
        lines.append(f"first difference: {place.canary}, after {place.characters} characters: {parts}")
    return lines


def _comparison(comparison: MetricComparison, result: VersusResult) -> tuple[str, str, str]:
    """Return the metric, its change, and what that says."""
    value, says, metric = comparison.value, comparison.says, BY_NAME[comparison.metric]
    drafting = [side.label for side in (result.a, result.b) if isinstance(side.measured.get(ACCEPTANCE), Estimate)]
    if isinstance(value, Missing):
        says = f"{says}: {value.because}"
        if metric.from_rounds and len(drafting) == 1:
            says = f"only {drafting[0]} shows that it drafts, so there is nothing to compare"
        return comparison.metric, "-", says
    if not says:
        return comparison.metric, percent(value.center, ".3g"), "of the canaries have equal answers"
    if metric.pass_rate:
        change = show_interval(*(percent(end, "+.3g") for end in (value.center, value.lo, value.hi)))
    else:
        change = (metric if metric.relative else _RATIO).show_interval(value.center, value.lo, value.hi)
    return comparison.metric, change, "; ".join((says, *(value.notes if not metric.pass_rate else ())))
