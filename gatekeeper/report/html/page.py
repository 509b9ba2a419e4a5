"""The page: one HTML file that works offline, on a phone and in print; the verdict comes first."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from gatekeeper.analysis.verdict.remedies import Gap
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import describe_setting, last_part
from gatekeeper.core.units import show, show_memory, show_seconds
from gatekeeper.core.verdict import Check, Outcome, WorkloadVerdict
from gatekeeper.report import phrases
from gatekeeper.report.data.page import PageData
from gatekeeper.report.html import charts, sections
from gatekeeper.report.html.markup import Markup, breakable, el, embedded, facts, join, note, section, table


def render(page: PageData) -> str:
    """Return the document; it loads nothing, and its Content-Security-Policy forbids any loading."""
    style, script = _file("page.css"), _file("page.js")
    title = f"{page.verdict.slo}: {phrases.spaced(phrases.state(page))}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_rules(style, script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        el("style", Markup(style)),
    )
    body = el(
        "body",
        _hero(page),
        el("main", _glance(page), _gaps(page.gaps), _objectives(page), *sections.sections(page)),
        _foot(page),
        el("div", id="tip", role="status", hidden="hidden"),
        embedded(sections.sweep_document(page), "sweep-data"),
        el("script", Markup(script)),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


@cache
def _file(name: str) -> str:
    return files("gatekeeper.report.html").joinpath(name).read_text(encoding="utf-8")


def _rules(style: str, script: str) -> str:
    """Return the Content-Security-Policy: this style and this script by their digests, nothing else from anywhere."""
    digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (style, script))
    allowed = (f"{kind} 'sha256-{digest}'" for kind, digest in zip(("style-src", "script-src"), digests, strict=True))
    return "; ".join(("default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"))


def _hero(page: PageData) -> Markup:
    verdict, state = page.verdict, phrases.state(page)
    summary = (
        ("Exit code", str(verdict.exit_code)),
        ("Grade", verdict.grade),
        ("Host", _host(page)),
        ("Target", _target(page)),
        ("Frozen", str(page.manifest.get("frozen_at", "?"))[:16].replace("T", " ") + " UTC"),
        ("Confidence", f"{page.slo.confidence:.0%}, one-sided"),
    )
    return el(
        "header",
        el("p", "gatekeeper", el("span", f" · {verdict.slo}"), class_="eyebrow"),
        el("h1", _sign(state, class_="glyph"), phrases.spaced(state).capitalize()),
        el("p", phrases.lede(page), class_="lede"),
        el("p", page.slo.why, class_="dim") if page.slo.why else None,
        facts(summary, "facts"),
        class_=f"hero {state}",
    )


def _host(page: PageData) -> str:
    host = page.manifest.get("host", {})
    memory = host.get("memory_bytes")
    parts = (host.get("chip"), show_memory(memory) if memory else None, host.get("platform"), host.get("os"))
    return " · ".join(str(part) for part in parts if part) or "unknown"


def _target(page: PageData) -> str:
    subject = page.slo.subject
    name = last_part(subject.target) if subject.target else subject.url
    return f"{name or '?'} on {subject.backend}"


def _sign(state: str, class_: str | None = None) -> Markup:
    return el("span", phrases.GLYPHS[state], class_=class_, aria_hidden="true")


def _glance(page: PageData) -> Markup:
    seen = [(one, phrases.speed(one)) for one in page.verdict.workloads]
    across = charts.scale([1.1, *(value for _, speed in seen if speed for value in speed[:3])], floor=0.0, log=False)
    rows = [_glance_row(one, speed, across) for one, speed in seen]
    heads = ("Workload", "Setting", "Speed against plain decoding", "Checks passed")
    blended = phrases.routing(page.verdict)
    return section("At a glance", table(heads, rows, "glance"), el("p", blended, class_="dim") if blended else None)


def _glance_row(
    workload: WorkloadVerdict, seen: tuple[float, float, float, str] | None, across: charts.Scale
) -> tuple[str, ...]:
    speed: Markup = el("span", "not measured", class_="dim")
    if seen is not None:
        center, lo, hi, source = seen
        speed = join(
            el("strong", f"{center:.2f}x", class_="big"),
            el("span", f" [{lo:.2f}, {hi:.2f}] {source}", class_="dim"),
            charts.speedup(center, lo, hi, across, workload.outcome),
        )
    pill = el(
        "span", _sign(workload.outcome), f" {phrases.spaced(workload.outcome)}", class_=f"pill {workload.outcome}"
    )
    need = note(f"speculation {'required' if workload.required else 'optional'}")
    account = [el("p", line, class_="dim") for line in phrases.account(workload.choice)]
    details = el("details", el("summary", "Details from the sweep"), *account) if account else None
    passed = f"{phrases.passed(workload.checks)} of {len(workload.checks)}" if workload.checks else "none apply"
    checks = (el("strong", passed), el("span", "checks passed" if workload.checks else "checks", class_="only-narrow"))
    return (
        join(el("strong", workload.name), el("br"), pill, need),
        join(describe_setting(workload.setting), note(workload.because), details),
        speed,
        join(*checks, *_figures(workload)),
    )


def _figures(workload: WorkloadVerdict) -> list[Markup]:
    found = []
    for metric, name in (("acceptance_rate", "acceptance"), ("ttft_delta", "TTFT"), ("decode_throughput", "")):
        if seen := workload.measured.get(metric):
            value = f"{seen['center']:+.1%}" if BY_NAME[metric].relative else show(seen["center"], BY_NAME[metric].unit)
            found.append(note(f"{name} {value}".strip()))
    return found


def _gaps(gaps: tuple[Gap, ...]) -> Markup:
    if not gaps:
        proven = "Nothing: every objective was measured, and its whole interval lies on one side of its bound."
        return section("What was not proven", el("p", proven))
    rows = [(el("strong", one.about), one.because, one.remedy) for one in gaps]
    return section("What was not proven", table(("What", "Because", "What would prove it"), rows, "gaps"))


def _objectives(page: PageData) -> Markup:
    groups = [(one.name, one.checks) for one in page.verdict.workloads]
    groups += [("Host", page.verdict.host_checks)] if page.verdict.host_checks else []
    heads = ("Objective", "Measured", "Against the bound", "Why this objective")
    parts = []
    for name, checks in groups:
        count = el("span", f" {phrases.passed(checks)} of {len(checks)} passed", class_="dim") if checks else None
        none = el("p", "No objective applies.", class_="dim")
        parts += [el("h3", name, count), table(heads, map(_check, checks), "checks") if checks else none]
    about = (
        "Each bar is the measurement with its confidence interval, the line is the bound. A check passes where the "
        "whole bar lies on the shaded side."
    )
    return section("Objectives", *parts, about=about)


def _check(check: Check) -> tuple[str, ...]:
    word = check.outcome.word
    glyph = el("span", phrases.CHECK_GLYPHS[check.outcome], class_=f"mark {word}", aria_label=word, role="img")
    meaning = BY_NAME[check.metric].description if check.metric in BY_NAME else None
    name = el("strong", breakable(check.metric), title=meaning)
    because = note(check.because) if check.outcome is not Outcome.PASS else None
    scope = f"n = {check.n} {phrases.about(check)}".rstrip()
    return (
        el("div", glyph, el("span", name, el("span", phrases.bound(check), class_="note")), class_="named"),
        join(el("span", phrases.measured(check), class_="figure"), note(scope), because),
        charts.interval(check),
        el("span", check.why, class_="dim"),
    )


def _foot(page: PageData) -> Markup:
    version = page.manifest.get("versions", {}).get("gatekeeper", "?")
    soak = show_seconds(page.slo.soak.duration)
    origin = (
        f"gatekeeper {version}. Every figure is computed from the records in the run directory; `gatekeeper judge "
        f"RUN_DIR` computes the verdict again. Soak of at least {soak}; manifest {page.verdict.manifest_sha256[:16]}."
    )
    return el("footer", el("p", origin, class_="dim"))
