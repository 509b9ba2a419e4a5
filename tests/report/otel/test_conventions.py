"""Our names against the released GenAI conventions: what moved is named, so that it is noticed when they change."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import gatekeeper.report.otel
from gatekeeper.report.otel.metric_names import request_metrics

SEMCONV = "opentelemetry.semconv._incubating"
FOLDER = Path(gatekeeper.report.otel.__file__).parent
ELSEWHERE = re.compile("gen_ai_latest_experimental|gen_ai.client.(inference.*|operation)|gen_ai.token.modality")
"""Names of the conventions' own repository, which no release of the package has, and the stem of ours."""
REPOSITORY = "Moved to the [OpenTelemetry GenAI semantic conventions repository]"
"""What the release says of every name since 1.41: the name stays, its text is kept elsewhere now."""


def released(module: str) -> dict[str, str]:
    """Return each name of the installed release with what it says of its deprecation."""
    source = inspect.getsource(importlib.import_module(f"{SEMCONV}.{module}.gen_ai_{module}"))
    documented = re.findall(
        r'^[A-Z_]+: Final = \(?\s*"(gen_ai[^"]+)"\s*\)?\n(?:"""\n(.*?)\n""")?', source, re.MULTILINE | re.DOTALL
    )
    return {name: doc.partition("Deprecated: ")[2] for name, doc in documented}


def used() -> set[str]:
    text = "\n".join(path.read_text() for path in FOLDER.glob("*.py"))
    return {name for name in re.findall(r'"(gen_ai[a-z_.]+)"', text) if not ELSEWHERE.fullmatch(name)}


def test_our_names_are_those_of_the_released_conventions() -> None:
    """Each gen_ai name that is sent by default is in the installed release of the conventions, and is neither
    replaced nor
    removed there; the failure names those that are, with what takes their place.
    """
    pytest.importorskip(SEMCONV, reason="the conventions moved to another module")
    released_names = released("metrics") | released("attributes")
    metrics = request_metrics(latest=False)
    times = (metrics.duration, metrics.first_chunk, metrics.output_chunk, metrics.first_token, metrics.output_token)
    sent = {
        metric.name for metric in (*times, metrics.input_tokens.histogram, metrics.output_tokens.histogram)
    } | used()

    replacement = {name: released_names.get(name, "is in no release") for name in sent}

    assert {} == {name: note for name, note in replacement.items() if note and not note.startswith(REPOSITORY)}
    assert 15 < len(sent)
