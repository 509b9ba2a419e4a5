"""The page: one HTML file that works offline, on a phone and in print; the verdict stands first."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from gatekeeper.analysis.verdict.remedies import Gap
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import describe_setting, last_part
from gatekeeper.core.units import show, show_memory, show_seconds
from gatekeeper.core.verdict import Check, Outcome, WorkloadVerdict
from gatekeeper.report import phrases, text
from gatekeeper.report.data.page import PageData
from gatekeeper.report.html import charts, sections
from gatekeeper.report.html.markup import Markup, breakable, cell, el, embedded, join, table


def render(page: PageData) -> str:
    """Return the document; it loads nothing, and its policy lets it load nothing."""
    style, script = _file("page.css"), _file("page.js")
    title = f"{page.verdict.slo}: {phrases.state(page).replace('_', ' ')}"
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
        el(
            "main",
            _glance(page),
            _gaps(page.gaps),
            _promises(page),
            *sections.sections(page),
        ),
        _foot(page),
        el("div", id="tip", role="status", hidden="hidden"),
        embedded(sections.sweep_document(page), "sweep-data"),
        el("script", Markup(script)),
    )
    text = f"<!doctype html>\n{el('html', head, body, lang='en')}\n"
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair, as a model may answer, is no UTF-8


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
    facts = [
        ("Exit code", str(verdict.exit_code)),
        ("Grade", verdict.grade),
        ("Host", _host(page)),
        ("Target", _target(page)),
        ("Frozen", str(page.manifest.get("frozen_at", "?"))[:16].replace("T", " ") + " UTC"),
        ("Confidence", f"{page.slo.confidence:.0%}, one-sided"),
    ]
    return el(
        "header",
        el("p", "gatekeeper", el("span", f" · {verdict.slo}"), class_="eyebrow"),
        el("h1", _sign(state, class_="glyph"), state.replace("_", " ").capitalize()),
        el("p", phrases.lede(page), class_="lede"),
        el("p", page.slo.why, class_="dim") if page.slo.why else None,
        el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts), class_="facts"),
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


def _pill(state: str) -> Markup:
    """Return an outcome as a sign and a word."""
    return el("span", _sign(state), f" {state.replace('_', ' ')}", class_=f"pill {state}")


def _glance(page: PageData) -> Markup:
    seen = [(one, phrases.speed(one, page)) for one in page.verdict.workloads]
    across = charts.scale([1.1, *(value for _, speed in seen if speed for value in speed[:3])], floor=0.0, log=False)
    rows = [_glance_row(one, speed, across) for one, speed in seen]
    heads = ("Workload", "Setting", "Speed against plain decoding", "Promises kept")
    parts = [table(heads, rows, "glance")]
    if blended := text.routing(page.verdict):
        parts.append(el("p", blended, class_="dim"))
    return el("section", el("h2", "At a glance"), *parts)


def _glance_row(
    workload: WorkloadVerdict, seen: tuple[float, float, float, str] | None, across: charts.Scale
) -> Markup:
    kept = sum(one.outcome is Outcome.PASS for one in workload.checks)
    speed: Markup = el("span", "not measured", class_="dim")
    if seen is not None:
        center, lo, hi, source = seen
        speed = join(
            el("strong", f"{center:.2f}x", class_="big"),
            el("span", f" [{lo:.2f}, {hi:.2f}] {source}", class_="dim"),
            charts.speedup(center, lo, hi, across, workload.outcome),
        )
    need = "speculation required" if workload.required else "speculation optional"
    told = [el("p", line, class_="dim") for line in text.account(workload)]
    why = join(
        el("span", workload.because, class_="dim note"),
        el("details", el("summary", "What the sweep says of it"), *told) if told else None,
    )
    return el(
        "tr",
        cell(
            "Workload",
            el("strong", workload.name),
            el("br"),
            _pill(workload.outcome),
            el("span", need, class_="dim note"),
        ),
        cell("Setting", describe_setting(workload.setting), why),
        cell("Speed against plain decoding", speed),
        cell(
            "Promises kept",
            el("strong", f"{kept} of {len(workload.checks)}" if workload.checks else "none applies"),
            el("span", "promises kept" if workload.checks else "of the promises", class_="only-narrow"),
            *_figures(workload),
        ),
    )


def _figures(workload: WorkloadVerdict) -> list[Markup]:
    found = []
    for metric, name in (("acceptance_rate", "acceptance"), ("ttft_delta", "TTFT"), ("decode_throughput", "")):
        if seen := workload.measured.get(metric):
            of = BY_NAME[metric]
            value = f"{seen['center']:+.1%}" if of.relative else show(seen["center"], of.unit)
            found.append(el("span", f"{name} {value}".strip(), class_="dim note"))
    return found


def _gaps(gaps: tuple[Gap, ...]) -> Markup:
    if not gaps:
        text = el("p", "Nothing: every promise was measured, and its whole interval lies on one side of its bound.")
        return el("section", el("h2", "What was not proven"), text)
    rows = [
        el(
            "tr",
            cell("What", el("strong", one.about)),
            cell("Because", one.because),
            cell("What would prove it", one.remedy),
        )
        for one in gaps
    ]
    heads = ("What", "Because", "What would prove it")
    return el("section", el("h2", "What was not proven"), table(heads, rows, "gaps"))


def _promises(page: PageData) -> Markup:
    verdict = page.verdict
    groups = [(one.name, one.checks) for one in verdict.workloads]
    groups += [("Host", verdict.host_checks)] if verdict.host_checks else []
    parts = []
    for name, checks in groups:
        kept = sum(one.outcome is Outcome.PASS for one in checks)
        head = el("h3", name, el("span", f" {kept} of {len(checks)} kept", class_="dim") if checks else None)
        heads = ("Promise", "Measured", "Against the bound", "Why it was promised")
        rows = [_promise(check) for check in checks]
        parts.append(
            join(head, table(heads, rows, "promises") if rows else el("p", "No promise applies to it.", class_="dim"))
        )
    key = (
        "Each bar is a whole interval: the measurement with its confidence bounds. The line is what was promised, the "
        "shaded side keeps it."
    )
    return el("section", el("h2", "Promises"), el("p", key, class_="dim"), *parts)


def _promise(check: Check) -> Markup:
    word = check.outcome.word
    sign = "≥" if check.bound == "at_least" else "≤"
    glyph = el("span", phrases.CHECK_GLYPHS[check.outcome], class_=f"mark {word}", aria_label=word, role="img")
    name = el(
        "strong", breakable(check.metric), title=BY_NAME[check.metric].description if check.metric in BY_NAME else None
    )
    promised = el("span", f"{sign} {show(check.threshold, check.unit)}", class_="note")
    because = el("span", check.because, class_="dim note") if check.outcome is not Outcome.PASS else None
    count = el("span", f"n = {check.n}", class_="dim note")
    return el(
        "tr",
        cell("Promise", el("div", glyph, el("span", name, promised), class_="named")),
        cell("Measured", el("span", charts.figure(check), class_="figure"), count, because),
        cell("Against the bound", charts.interval(check)),
        cell("Why it was promised", check.why, class_="dim"),
        class_=word,
    )


def _foot(page: PageData) -> Markup:
    version = page.manifest.get("versions", {}).get("gatekeeper", "?")
    soak = show_seconds(page.slo.soak.duration)
    text = (
        f"gatekeeper {version}. Every figure here follows from the records in the run directory: `gatekeeper judge "
        f"RUN_DIR` derives the verdict again. Soak of at least {soak}; manifest {page.verdict.manifest_sha256[:16]}."
    )
    return el("footer", el("p", text, class_="dim"))
