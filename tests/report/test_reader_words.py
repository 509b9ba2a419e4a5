"""No sentence that a person reads has a word of the program: kinds and flags are for JSON."""

import ast
import re
import shutil
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path

import pytest

import gatekeeper
from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome
from gatekeeper.core.judgement import FindingKind
from gatekeeper.core.metrics import ALL
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.reasons import Reason
from gatekeeper.report import FORMATS, RenderedFrom
from gatekeeper.run.stored.stored_page import load_page_data
from tests.builders.project_folder import ROOT

PACKAGE = Path(gatekeeper.__file__).parent
RUNS = ROOT / "tests" / "golden" / "runs"
IDENTIFIER = re.compile(r"(?<![\w./{<$-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w(./-])")
WORD = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+")
OURS = {flag.name.lower() for flag in Sight if flag.name} | {*FindingKind} | {*Reason} | {*WorkloadOutcome}
"""Words of JSON: a sentence has other words for them."""
OTHERS = {
    *("host_statistics64", "oom_kill", "weight_map", "huggingface_hub", "device_info", "kex_exchange_identification"),
    *("dflash_enabled", "mtp_enabled", "mtp_fixed_draft_depth", "speculative_algorithm", "speculative_config"),
    *("capable_python", "adaptive_policy_effective"),
}
"""Names of other programs, their settings and counters, which a person finds there."""


@cache
def keys() -> frozenset[str]:
    """Return what a person writes or reads in a file: keys of SLO files and policies, fields of protocols, metrics."""
    documents = [path for folder in ("docs", "slos", "canaries") for path in (ROOT / folder).rglob("*.md")]
    described = {word for path in documents for word in WORD.findall(path.read_text())} - OURS
    written = set(WORD.findall((ROOT / "slos" / "slo.schema.json").read_text()))
    return frozenset(described | written | {metric.name for metric in ALL})


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts of three words or more with their lines, without docstrings."""
    inside = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for statement in body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        if len(text.split()) > 2:
            yield node.lineno, text


@pytest.mark.whole
def test_no_sentence_of_the_program_has_an_identifier() -> None:
    """Every word with an underscore in a text of the package is a key that a person writes, a metric, or another
    program's; kinds of findings, flags and reasons have words of their own.
    """
    identifiers = [
        f"{path.relative_to(PACKAGE)}:{line}: {word}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in sentences(ast.parse(path.read_text()))
        for word in IDENTIFIER.findall(text)
        if word not in keys() | OTHERS
    ]

    assert [] == identifiers


@pytest.mark.parametrize("name", ["unproven", "failed", "graded_back", "promoted"])
def test_no_report_has_an_identifier(name: str, tmp_path: Path) -> None:
    """Neither has a report: what is computed of a run goes through the same words."""
    run = Path(shutil.copytree(RUNS / name, tmp_path / "run"))
    page = load_page_data(run)

    for form in ("text", "line", "markdown", "html"):
        chosen = FORMATS[form]
        text = chosen.load()(page if chosen.source is RenderedFrom.PAGE else page.decision)
        if form == "html":
            text = re.sub(r"<(style|script|pre)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
        words = set(IDENTIFIER.findall(unescape(text).replace("\\", "")))
        assert set() == words - keys() - OTHERS, form


def test_each_flag_has_words() -> None:
    """What a backend shows is written in words, whichever combination it is."""
    assert all(flag.words and "_" not in flag.words for flag in Sight)
    assert 1 == (Sight.COLD | Sight.ROUNDS).words.count(", ")
