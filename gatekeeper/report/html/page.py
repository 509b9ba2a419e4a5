"""The page: one HTML file that works offline, on a phone and in print; the decision comes first."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome, WorkloadVerdict
from gatekeeper.analysis.verdict.unproven import Gap
from gatekeeper.core.slo import CERTIFICATION_S
from gatekeeper.core.text import describe_setting, last_part, listed, one_line
from gatekeeper.core.units import show_memory, show_ratio, show_seconds
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.data.page import PageData
from gatekeeper.report.data.workload_summary import SpeedUp, WorkloadSummary, rate
from gatekeeper.report.html import charts, objective_matrix, sections
from gatekeeper.report.html.markup import Markup, el, embedded, facts, join, note, section, table


def render(page: PageData) -> str:
    """Return the document; it loads nothing, and its Content-Security-Policy forbids any loading."""
    first = (objective_matrix.failures(page), _workloads(page), objective_matrix.matrix(page), _gaps(page.gaps))
    parts = [part for part in (*first, *sections.sections(page)) if part]
    title = f"{page.verdict.slo}: {phrases.spaced(phrases.state(page))}"
    data = embedded(sections.sweep_document(page), "sweep-data")
    return document(title, _hero(page), parts, _foot(page), data, live=page.progress is not None)


def document(title: str, hero: Markup, parts: Sequence[Markup], *after: Markup, live: bool = False) -> str:
    """Return a page with this beginning and these sections, in our style; *live* asks its server for the next one."""
    style, script = _file("page.css"), _file("page.js") + (_file("live.js") if live else "")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_rules(style, script, live=live)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        el("style", Markup(style)),
    )
    tip = el("div", id="tip", role="status", hidden="hidden")
    body = el("body", hero, _contents(parts), el("main", *parts), *after, tip, el("script", Markup(script)))
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def page_head(about: str, title: str, *parts: Markup) -> Markup:
    """Return the beginning of a page that is not of one run."""
    eyebrow = el("p", "gatekeeper", el("span", f" · {about}"), class_="eyebrow")
    return el("header", eyebrow, el("h1", title), *parts, class_="hero")


@cache
def _file(name: str) -> str:
    return files("gatekeeper.report.html").joinpath(name).read_text(encoding="utf-8")


def _rules(style: str, script: str, *, live: bool) -> str:
    """Return the Content-Security-Policy: this style and this script by their digests, nothing else from anywhere.

    The page of a run under way may ask its own server for the next version.
    """
    digests = (base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in (style, script))
    allowed = (f"{kind} 'sha256-{digest}'" for kind, digest in zip(("style-src", "script-src"), digests, strict=True))
    ask = ("connect-src 'self'",) if live else ()
    return "; ".join(("default-src 'none'", *allowed, *ask, "base-uri 'none'", "form-action 'none'"))


def _contents(parts: Sequence[Markup]) -> Markup:
    """Return links to the sections, by the ids and titles that their headings have."""
    headings = (re.search(r'<h2 id="([^"]*)"><a [^>]*>(.*?)</a>', part) for part in parts)
    links = (el("a", Markup(heading[2]), href=f"#{heading[1]}") for heading in headings if heading)
    return el("nav", *links, aria_label="Contents")


def _hero(page: PageData) -> Markup:
    verdict, decision, state = page.verdict, page.decision, phrases.state(page)
    kind = "demo" if decision.demo and state == "promoted" else state
    glyph = "!" if kind == "demo" else phrases.GLYPHS[state]
    until = decision.valid_until
    no_policy = "no policy was written" if page.progress is None else "not yet"
    summary = (
        ("Valid until", readable_time(until) if until else no_policy),
        ("Machine", _host(page)),
        ("Models", _target(page)),
        ("Outcome", _outcome(page)),
        ("Started", readable_time(page.manifest.frozen_at)),
        ("Run folder", page.run or "unknown"),
    )
    headline, reason = decision.headline, decision.reason
    if page.progress is not None:
        headline = phrases.under_way(page.progress)
        reason = "Every figure is from what was measured so far; the verdict follows at the end"
    ribbon = (
        f"Demo: the soak was shorter than {show_seconds(CERTIFICATION_S)}. It shows how gatekeeper works; it is not a "
        "certificate, and the deploy gate refuses it."
    )
    return join(
        el("p", ribbon, class_="ribbon") if decision.demo and page.progress is None else None,
        el(
            "header",
            el("p", "gatekeeper", el("span", f" · {verdict.slo}"), class_="eyebrow"),
            el("h1", el("span", glyph, class_="glyph", aria_hidden="true"), el("span", headline)),
            el("p", f"{reason}.", class_="lede") if reason else None,
            el("p", one_line(page.slo.why), class_="dim") if page.slo.why else None,
            el(
                "p",
                f"{decision.advice[:1].upper()}{decision.advice[1:]}. " if decision.advice else None,
                el("b", "Next: "),
                el("code", decision.next_step(run=page.run or "RUN_DIR")),
                class_="next",
            )
            if page.progress is None
            else el("progress", max="1", value=page.progress.share, aria_label="This part of the run"),
            facts(summary, "facts"),
            class_=f"hero {kind}",
        ),
    )


def _outcome(page: PageData) -> str:
    if page.progress is not None:
        return "none yet"
    verdict = page.verdict
    return f"{phrases.spaced(phrases.state(page))}, exit code {verdict.exit_code}, grade {verdict.grade}"


def _later(delta: float) -> str:
    """Write a change of a time to first token: 19 % later."""
    change = round(100 * delta)
    return f"{abs(change)} % {'later' if change > 0 else 'earlier'}" if change else "as early as plain decoding"


def _host(page: PageData) -> str:
    host = page.manifest.host
    memory = host.get("memory_bytes")
    parts = (host.get("chip"), show_memory(memory) if memory else None, host.get("platform"), host.get("os"))
    return " · ".join(str(part) for part in parts if part) or "unknown"


def _target(page: PageData) -> str:
    subject = page.slo.subject
    name = last_part(subject.target) if subject.target else subject.url
    drafts = listed([last_part(draft) for draft in subject.drafts])
    return f"{name or '?'}{f' with {drafts}' if drafts else ''} on {subject.backend}"


def _workloads(page: PageData) -> Markup:
    speeds = [workload.speed for workload in page.decision.workloads if workload.speed]
    across = charts.scale(
        [1.1, *(value for speed in speeds for value in (speed.center, speed.lo, speed.hi))], floor=0.0, log=False
    )
    pairs = zip(page.decision.workloads, page.verdict.workloads, strict=True)
    cards = [_workload(summary, judged, across) for summary, judged in pairs]
    blended = phrases.routing(page.verdict)
    return section(
        "Workloads", el("div", *cards, class_="cards"), el("p", blended, class_="dim note") if blended else None
    )


def _workload(summary: WorkloadSummary, judged: WorkloadVerdict, across: charts.Scale) -> Markup:
    """Return a card: whether to draft, how much faster, with which setting, and whether the answers stay the same."""
    back = summary.outcome is WorkloadOutcome.GRADED_BACK
    kind = "failed" if back and summary.required else summary.outcome
    rates = [rate(value) for value in (summary.plain, None if back else summary.drafting) if value is not None]
    speed = summary.speed
    need = f"speculation {'required' if summary.required else 'optional'}"
    sign = el("span", phrases.GLYPHS[summary.outcome], aria_hidden="true")
    pill = el("span", sign, f" {phrases.spaced(summary.outcome)}", class_=f"pill {kind}", title=need)
    rates = [f"plain {rates[0]}"] if rates and (back or summary.drafting is None) else rates
    big = "off" if back else f"{speed.center:.2f}x" if speed else "?"
    parts: list[Markup | None] = [
        el("p", el("strong", big, class_="big"), f" {' → '.join(rates)} tok/s" if rates else None, class_="speed")
    ]
    if speed is not None:
        drawing = charts.speedup(speed.center, speed.lo, speed.hi, across, kind)
        parts += [drawing, note(f"{speed.where or 'in the soak'}: {_as_fast(speed, judged)}")]
    figures = (
        ("Policy", describe_setting(summary.setting)),
        ("Prompts", phrases.prompt_speeds(judged.measured)),
        ("Acceptance", f"{summary.acceptance:.0%}" if summary.acceptance is not None else None),
        ("Quality", summary.quality),
        ("First token", _later(summary.ttft_delta) if summary.ttft_delta is not None else None),
        ("Checks", phrases.checks_passed(summary, " of ", " passed") or "none apply"),
    )
    account = [el("p", line, class_="dim") for line in phrases.account(judged.choice)]
    return el(
        "article",
        el("h3", summary.name, pill),
        *parts,
        facts([(name, value) for name, value in figures if value], "figures"),
        el("details", el("summary", "Why"), el("p", f"{summary.because} ({need})", class_="dim"), *account),
        class_=f"card {kind}",
    )


def _as_fast(speed: SpeedUp, judged: WorkloadVerdict) -> str:
    """Write how much sooner the same work is done; of a run of older rules, the mean ratio of its prompts."""
    if judged.measured.prompts is None:
        return show_ratio(speed.center, speed.lo, speed.hi)
    return f"does the same work {speed.center:.2f}x as fast ({speed.lo:.2f}x to {speed.hi:.2f}x)"


def _gaps(gaps: tuple[Gap, ...]) -> Markup | None:
    # The ribbon and the next step say what the grade lacks.
    rows = [(el("strong", gap.about), gap.because, gap.remedy) for gap in gaps if gap.about != "the grade"]
    heads = ("What", "Because", "What would prove it")
    return section("What was not proven", table(heads, rows, "gaps"), name="open") if rows else None


def _foot(page: PageData) -> Markup:
    version = page.manifest.versions.get("gatekeeper", "?")
    run = page.run or "RUN_DIR"
    origin = (
        f"gatekeeper {version}, manifest {page.verdict.manifest_sha256[:16]}, confidence {page.slo.confidence:.0%} "
        "one-sided. Every figure is computed from the records in the run folder; this computes the verdict again: "
    )
    return el("footer", el("p", origin, el("code", f"gatekeeper judge {run}"), class_="dim"))
