"""The objectives of a page as a matrix of objectives and workloads."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.metrics import BY_NAME, shown_as
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.records import Knobs
from gatekeeper.core.text import describe_setting, one_line
from gatekeeper.core.units import show
from gatekeeper.report import phrases
from gatekeeper.report.data.glossary import in_words
from gatekeeper.report.data.objective_rows import show_measurement
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.requirements import Requirement, requirements
from gatekeeper.report.data.workload_summary import best_first
from gatekeeper.report.html import charts
from gatekeeper.report.html.markup import Markup, breakable, el, note
from gatekeeper.report.outcome_signs import glyph_of
from gatekeeper.report.shown_document import Chart, Section

Key = tuple[str, str, float]
"""Metric, direction and bound: what makes two checks the same objective."""


@dataclass(slots=True)
class _Row:
    """An objective with its check of each workload; a setting where that setting was given up."""

    first: Check
    cells: dict[str, tuple[Check, Knobs | None]] = field(default_factory=dict)


def matrix_section(page: PageData) -> Section | None:
    """Return the objectives as rows and the workloads as columns; each cell opens to its chart and its evidence.

    None for a run under way that has judged nothing yet.
    """
    names = [workload.name for workload in page.verdict.workloads]
    rows = _rows(page)
    required = requirements(page.verdict, page.unfinished) if page.progress is None else ()
    host = [_Row(check, {"host": (check, None)}) for check in page.verdict.host_checks]
    checks = [cell[0] for row in (*rows, *host) for cell in row.cells.values() if cell[1] is None]
    if not checks and page.progress is not None:
        return None
    head = el("tr", *(el("th", column, scope="col") for column in ("Objective", *names)))
    lines = [_line(row, names) for row in rows]
    lines += [_line(row, ["host"], span=len(names)) for row in host]
    lines += _requirement_lines(required, names)
    proven = "" if page.gaps or page.progress is not None else ", nothing is unproven"
    given_up = any(setting is not None for row in rows for _, setting in row.cells.values())
    outcomes = [*(check.outcome for check in checks), *(each.outcome for each in required)]
    passed = f"{outcomes.count(Outcome.PASS)} of {len(outcomes)} checks"
    about = (
        f"{passed}{' of what is deployed' if given_up else ''} passed{proven}. "
        "A check passes where its whole interval lies on the right side of the bound. Click a cell for its chart."
    )
    return Section("Objectives", (Chart(partial(_table, head, lines)),), about, "objectives")


def _requirement_lines(required: Sequence[Requirement], names: Sequence[str]) -> Iterator[Markup]:
    """Yield a row for drafting where the SLO requires it, and one for the evidence of the run."""
    cells = {each.about: _requirement_cell(each) for each in required}
    for name in dict.fromkeys(each.name for each in required):
        of_run = next((each for each in required if each.name == name and not each.about), None)
        rule = of_run.rule if of_run is not None else "where it is required"
        kind = el("span", " · run", class_="dim") if of_run is not None else None
        head = el("th", el("strong", name), el("span", f" {rule}", class_="bar"), kind, scope="row")
        if of_run is not None:
            yield el("tr", head, el("td", cells[""], data_head="run", colspan=len(names)))
        else:
            none = el("span", "-", class_="dim none", title="drafting is optional")
            yield el("tr", head, *(el("td", cells.get(about, none), data_head=about) for about in names))


def _requirement_cell(required: Requirement) -> Markup:
    advised = required.outcome is not Outcome.PASS and required.remedy
    notes = [in_words(required.reason), f"What to do: {required.remedy}" if advised else ""]
    return _fold(required.outcome, required.shown, required.rule, *map(note, filter(None, notes)))


def _fold(outcome: Outcome, shown: str, about: str, *parts: Markup | None, given_up: bool = False) -> Markup:
    """Return a cell with the sign of its outcome, which opens to its parts."""
    word = outcome.word
    glyph = el("span", glyph_of(word), class_=f"mark {word}", aria_label=word, role="img")
    summary = el("summary", glyph, el("span", el("strong", shown), note(about), class_="seen"))
    return el("details", summary, *parts, class_=f"cell {word}{' given-up' if given_up else ''}")


def _table(head: Markup, lines: Iterable[Markup]) -> Markup:
    table = el("table", el("thead", head), el("tbody", *lines), class_="matrix")
    return el("div", table, class_="scroll", tabindex="0", role="region", aria_label="Objectives by workload")


def _rows(page: PageData) -> list[_Row]:
    rows: dict[Key, _Row] = {}
    for workload in page.verdict.workloads:
        tried: list[tuple[Check, Knobs | None]] = [(check, None) for check in workload.checks]
        failed = [row for row in page.decision.rows if row.about == workload.name and row.abandoned]
        tried += [(row.check, row.setting) for row in failed]  # as the cards above show it
        tried += [(check, step.setting) for step in best_first(workload) for check in step.checks]
        for check, setting in tried:
            row = rows.setdefault((check.metric, check.bound, check.threshold), _Row(check))
            row.cells.setdefault(workload.name, (check, setting))
    return list(rows.values())


def _line(row: _Row, names: Iterable[str], span: int | None = None) -> Markup:
    check = row.first
    head = el(
        "th",
        el("strong", breakable(check.metric)),
        el("span", f" {phrases.bound(check)}", class_="bar"),
        el("span", " · host", class_="dim") if span else None,
        scope="row",
        title=one_line(check.why),
    )
    none = el("span", "-", class_="dim none", title="does not apply")
    cells = (
        el("td", _cell(*row.cells[name]) if name in row.cells else none, data_head=name, colspan=span) for name in names
    )
    return el("tr", head, *cells)


def _cell(check: Check, setting: Knobs | None) -> Markup:
    given_up = f"{describe_setting(setting)}, given up" if setting is not None else ""
    return _fold(
        check.outcome,
        show_value(check),
        given_up or margin(check),
        charts.interval(check),
        note(f"{show_measurement(check)}, n = {check.n}"),
        *map(note, phrases.scopes(check)),
        note(in_words(check.because)) if check.outcome is not Outcome.PASS or check.metric in phrases.TESTS else None,
        note(f"Measured: {BY_NAME[check.metric].description}") if check.metric in BY_NAME else None,
        note(f"Why: {one_line(check.why)}"),
        given_up=bool(given_up),
    )


def show_value(check: Check) -> str:
    """Write the middle of what was measured, in the unit of its metric."""
    if check.center is None:
        return "not measured"
    metric = _find_metric(check)
    if metric is None:
        return show(check.center, check.unit)
    return metric.show_interval(check.center, check.center, check.center)


def _find_metric(check: Check) -> Metric | None:
    metric = BY_NAME.get(check.metric)
    return None if metric is None else shown_as(metric, check.against)


def margin(check: Check) -> str:
    """Write how far the end of the interval that decides lies from the bound, in the unit of the metric."""
    end = check.lo if check.bound == "at_least" else check.hi
    metric = _find_metric(check)
    if end is None or metric is None:
        return check.outcome.word
    room = end - check.threshold if check.bound == "at_least" else check.threshold - end
    size = _size(metric, room)
    if check.outcome is Outcome.PASS:
        return f"{size} to spare" if room else "exactly the bound"
    if check.outcome is Outcome.FAIL:
        near = check.hi if check.bound == "at_least" else check.lo
        return f"misses by {_size(metric, (near if near is not None else end) - check.threshold)}"
    return f"undecided: {size} short" if room < 0 else "undecided"


def _size(metric: Metric, difference: float) -> str:
    """Write the size of a difference with two digits; shares are apart by points."""
    size = float(f"{abs(difference):.2g}")
    return f"{100 * size:g} points" if metric.relative else metric.show(size)
