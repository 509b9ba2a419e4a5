"""The cards of the workloads: what is deployed and how fast, what is measured so far, or the best try."""

from collections.abc import Iterator, Sequence
from functools import partial

from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import percent, show, show_number, show_ratio
from gatekeeper.report import phrases
from gatekeeper.report.data.glossary import in_words
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.workload_progress import WorkloadRow
from gatekeeper.report.data.workload_summary import SpeedUp, WorkloadSummary
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Scale
from gatekeeper.report.html.document_page import pill
from gatekeeper.report.html.markup import Markup, el, facts, note
from gatekeeper.report.shown_document import Chart, Note, Section

Facts = Sequence[tuple[str, str | None]]


def workloads_section(page: PageData) -> Section:
    """Return the section with a card for each workload, whose drawings share one scale."""
    pairs = list(zip(page.decision.workloads, page.verdict.workloads, strict=True))
    running = {row.workload: row for row in page.progress.rows} if page.progress is not None else {}
    speeds = [speed for summary, _ in pairs if (speed := _speed(summary, running.get(summary.name), page)) is not None]
    across = charts.scale(
        [1.1, *(value for speed in speeds for value in (speed.center, speed.lo, speed.hi))], floor=0.0, log=False
    )
    if page.progress is not None:
        cards = [_running(summary, running.get(summary.name), page, across) for summary, _ in pairs]
    else:
        cards = [_build_card(summary, judged, across) for summary, judged in pairs]
    blended = phrases.routing(page.verdict) if page.progress is None and len(pairs) > 1 else ""
    drawn = Chart(partial(el, "div", *cards, class_="cards"))
    return Section("Workloads", (drawn, *([Note(blended)] if blended else [])))


def _build_card(summary: WorkloadSummary, judged: WorkloadVerdict, across: Scale) -> Markup:
    """Return a card: whether to draft, how much faster, with which setting, and whether the answers stay the same."""
    back = summary.outcome is WorkloadOutcome.GRADED_BACK
    kind = "failed" if back and summary.required else summary.outcome
    need = f"speculation {'required' if summary.required else 'optional'}"
    now: Facts = (
        ("Measured" if summary.outcome is WorkloadOutcome.UNPROVEN else "Policy", describe_setting(summary.setting)),
        ("Prompts", phrases.prompt_speeds(judged.measured)),
        *(() if summary.off else _list_draft_facts(summary)),
        ("Quality", summary.quality),
        ("Checks", phrases.checks_passed(summary, " of ", " passed") or "none apply"),
    )
    return el(
        "article",
        el("h3", summary.name, pill(summary.outcome, kind=kind, title=need)),
        el("p", f"{in_words(summary.because)} ({need})", class_="dim"),
        *([_big("off", _rates(summary.plain, None))] if summary.off else _on(summary, judged, across, kind)),
        _figures(now),
        _best_try(summary, judged, across) if summary.off else None,
        class_=f"card {kind}",
    )


def _list_draft_facts(summary: WorkloadSummary) -> Facts:
    return (
        ("Acceptance", percent(summary.acceptance, ".0f") if summary.acceptance is not None else None),
        ("First token", _later(summary.ttft_delta) if summary.ttft_delta is not None else None),
    )


def _on(summary: WorkloadSummary, judged: WorkloadVerdict, across: Scale, kind: str) -> Iterator[Markup]:
    speed = summary.speed
    rates = _rates(summary.plain, summary.drafting)
    yield _big(f"{speed.center:.2f}x" if speed else "?", rates and f"median {rates}")
    if speed is not None:
        yield charts.speedup(speed.center, speed.lo, speed.hi, across, kind)
        yield note(f"{speed.where or 'in the soak'}: {_as_fast(speed, judged)}")


def _best_try(summary: WorkloadSummary, judged: WorkloadVerdict, across: Scale) -> Markup | None:
    """Return what is not deployed: the fastest setting that was tried, and why it was given up."""
    speed = summary.speed
    if speed is None:
        return None
    drawn = charts.speedup(speed.center, speed.lo, speed.hi, across, "tried")
    drafting = show(summary.drafting, "tok/s") if summary.drafting is not None else None
    tried: Facts = (("Speed", drafting), *_list_draft_facts(summary), ("Given up", speed.because))
    where = f"{describe_setting(speed.setting)}{', in the sweep' if speed.source == 'sweep' else ''}"
    about = note(f"{where}: {_as_fast(speed, judged)}")
    return el("div", el("h4", "Best try, not deployed"), drawn, about, _figures(tried), class_="tried")


def _running(summary: WorkloadSummary, row: WorkloadRow | None, page: PageData, across: Scale) -> Markup:
    """Return a card of a run under way: the speed so far, and the answers it is of."""
    speed = _speed(summary, row, page)
    answers = _count_answers(summary.name, row, page)
    parts = [_big(f"{speed.center:.2f}x", "so far") if speed is not None else _big("…", "no ratio yet")]
    if speed is not None:
        about = f"so far {phrases.ratio(speed)}, {answers}"
        if _stage(page) != speed.source:
            about = f"{speed.where or 'in the soak'}: {phrases.ratio(speed)}"
        parts += [charts.speedup(speed.center, speed.lo, speed.hi, across, "running"), note(about)]
    now: Facts = (
        ("Best so far", describe_setting(speed.setting) if speed is not None else None),
        ("Answers", answers if speed is None or _stage(page) != speed.source else None),
        ("Now", row.setting if row is not None else None),
        ("Speed", _rates(row.plain, row.drafting) if row is not None else None),
        ("Acceptance", percent(row.acceptance, ".0f") if row is not None and row.acceptance is not None else None),
        ("Checks", phrases.checks_passed(summary, " of ", " pass so far")),
    )
    sign = pill("running", "measuring")
    return el("article", el("h3", summary.name, sign), *parts, _figures(now), class_="card running")


def _stage(page: PageData) -> str:
    """Return the stage of a run under way as a speed names its source: sweep or soak; empty for a pass after it."""
    stage = page.progress.stage if page.progress is not None else ""
    return next((source for source in ("sweep", "soak") if stage.startswith(source)), "")


def _speed(summary: WorkloadSummary, row: WorkloadRow | None, page: PageData) -> SpeedUp | None:
    """Return the speed that a card shows: of this stage before that of an earlier one.

    Where nothing can be concluded of the stage yet, it is that of its latest answers.
    """
    stage, speed = _stage(page), summary.speed
    if not stage or row is None or row.ratio is None or (speed is not None and speed.source == stage):
        return speed
    return SpeedUp(*row.ratio, stage, summary.setting)


def _count_answers(name: str, row: WorkloadRow | None, page: PageData) -> str:
    """Write how many answers a workload has in this stage: the first line of the page counts those of all."""
    count, planned = row.answered if row is not None else 0, page.planned.get(name)
    return f"{count}{f' of {planned}' if planned else ''} answers of {name}"


def _big(figure: str, text: str) -> Markup:
    return el("p", el("strong", figure, class_="big"), f" {text}" if text else None, class_="speed")


def _rates(plain: float | None, drafting: float | None) -> str:
    """Write both speeds, or the one that is known: plain 11 tok/s."""
    rates = [show_number(value) for value in (plain, drafting) if value is not None]
    if not rates:
        return ""
    return f"{'plain ' if drafting is None else ''}{' → '.join(rates)} tok/s"


def _figures(pairs: Facts) -> Markup | None:
    known = [(name, value) for name, value in pairs if value]
    return facts(known, "figures") if known else None


def _as_fast(speed: SpeedUp, judged: WorkloadVerdict) -> str:
    """Write how much sooner the same work is done."""
    if judged.measured.prompts is None:
        return phrases.ratio(speed)
    return f"does the same work {show_ratio(speed.center, speed.lo, speed.hi)} as fast"


def _later(delta: float) -> str:
    """Write a change of a time to first token: 19 % later."""
    change = round(100 * delta)
    return f"{abs(change)} % {'later' if change > 0 else 'earlier'}" if change else "as early as plain decoding"
