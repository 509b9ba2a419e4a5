"""The page: one HTML file that works offline, on a phone and in print; the decision comes first."""

from functools import partial

from gatekeeper.core.reasons import CERTIFICATION_S
from gatekeeper.core.text import join_names, last_part, one_line
from gatekeeper.core.units import percent, show_memory, show_seconds
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.progress import Snapshot
from gatekeeper.report.html.document_page import render_page
from gatekeeper.report.html.markup import Markup, el, embed_json
from gatekeeper.report.html.sections import list_sections
from gatekeeper.report.html.sweep_section import sweep_document
from gatekeeper.report.shown_document import Chart, Command, Document, Facts, Node, Note

ALLOWING = frozenset({"promoted", "graded_back"})
"""Outcomes after which a policy may be deployed until it expires."""
DEMO = (
    f"Demo: the soak was shorter than {show_seconds(CERTIFICATION_S)}. It shows how gatekeeper works; it is not a "
    "certificate, and the deploy gate refuses it."
)


def render(page: PageData) -> str:
    """Return the page; that of a run under way asks its own server for the next one."""
    data = embed_json(sweep_document(page), "sweep-data")
    document = _decision_document(page) if page.progress is None else _progress_document(page, page.progress)
    return render_page(document, _foot(page), data, live=page.progress is not None)


def _decision_document(page: PageData) -> Document:
    decision, state = page.decision, phrases.state(page)
    nodes: list[Node] = [Note(one_line(page.slo.why))] if page.slo.why else []
    nodes += [Note(f"{decision.advice[:1].upper()}{decision.advice[1:]}.")] if decision.advice else []
    nodes += [
        Command(decision.next_step(page.manifest.slo.name, page.run or "RUN_DIR")),
        Facts([*_validity(page), *_origin(page)]),
    ]
    return Document(
        f"{page.verdict.slo}: {phrases.describe_state(page)}",
        decision.headline,
        (*nodes, *list_sections(page)),
        (f"{decision.reason}.",) if decision.reason else (),
        "demo" if decision.demo and state == "promoted" else state,
        DEMO if decision.demo else "",
    )


def _progress_document(page: PageData, now: Snapshot) -> Document:
    progress = partial(el, "progress", max="1", value=now.share, aria_label="This part of the run")
    nodes: list[Node] = [Note(one_line(page.slo.why))] if page.slo.why else []
    return Document(
        f"{page.verdict.slo}: {phrases.describe_state(page)}",
        phrases.under_way(now),
        (*nodes, Chart(progress), Facts(_origin(page)), *list_sections(page)),
        ("Every figure is from what was measured so far; the verdict follows at the end.",),
        "running",
    )


def _validity(page: PageData) -> list[tuple[str, str]]:
    """Return until when the run allows something, where it allows it, and how it ended."""
    verdict, decision, state = page.verdict, page.decision, phrases.state(page)
    ended = f"{phrases.describe_state(page)}, exit code {verdict.exit_code}, grade {verdict.grade}"
    allows = decision.valid_until if state in ALLOWING and not decision.demo else None
    return [*([("Valid until", readable_time(allows))] if allows else []), ("Outcome", ended)]


def _origin(page: PageData) -> list[tuple[str, str]]:
    return [
        ("Machine", _host(page)),
        ("Models", _target(page)),
        ("Started", readable_time(page.manifest.frozen_at)),
        ("Run folder", page.run or "unknown"),
    ]


def _host(page: PageData) -> str:
    host = page.manifest.host
    memory = host.get("memory_bytes")
    ambient = page.slo.host.ambient_c
    parts = (
        host.get("chip"), show_memory(memory) if memory else None, host.get("platform"), host.get("os"),
        None if ambient is None else f"declared ambient {ambient:g} °C",
    )  # fmt: skip
    return " · ".join(str(part) for part in parts if part) or "unknown"


def _target(page: PageData) -> str:
    subject = page.slo.subject
    name = last_part(subject.target) if subject.target else subject.url
    drafts = join_names([last_part(draft) for draft in subject.drafts])
    return f"{name or '?'}{f' with {drafts}' if drafts else ''} on {subject.backend}"


def _foot(page: PageData) -> Markup:
    version = page.manifest.versions.get("gatekeeper", "?")
    run = page.run or "RUN_DIR"
    origin = (
        f"gatekeeper {version}, manifest {page.verdict.manifest_sha256[:16]}, "
        f"confidence {percent(page.slo.confidence)} one-sided. Every figure is computed from the records in the run "
        "folder; this computes the verdict again: "
    )
    return el("footer", el("p", origin, el("code", f"gatekeeper judge {run}"), class_="dim"))
