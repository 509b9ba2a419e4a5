"""The table of words that `explain`, the reports and the docs use."""

import ast
from pathlib import Path

import pytest

from gatekeeper.core.judgement import FindingKind
from gatekeeper.core.metrics import ALL
from gatekeeper.core.reasons import Reason
from gatekeeper.report.data import glossary

PACKAGE = Path(glossary.__file__).parents[2]


def kinds_of_findings() -> set[str]:
    """Return the kind of every `Finding(...)` in the program: what it names of FindingKind, else its source text."""
    kinds = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "FindingKind":
                kinds.add(FindingKind[node.attr].value)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding" and node.args:
                kind = node.args[0]
                kinds |= {repr(kind.value)} if isinstance(kind, ast.Constant) else set()
    return kinds


@pytest.mark.whole
def test_every_word_that_a_run_can_say_is_explained() -> None:
    """Each metric with its formula, each finding the program can make and no other, each reason of the deploy gate."""
    assert [] == [metric.name for metric in ALL if not metric.formula or not metric.remedy]
    assert set(Reason) == glossary.REASONS.keys()
    assert set(FindingKind) == kinds_of_findings()
    assert {"pass", "fail", "unproven", "promoted", "graded_back", "failed"} <= glossary.OUTCOMES.keys()


def test_words_are_found_as_people_write_them() -> None:
    """Capitals, spaces and hyphens do not matter; a word of two kinds has two entries."""
    for name in ("Counter lie", "impossible counts"):
        assert ["counter_lie"] == [entry.word for entry in glossary.find_entries(name)]
    assert ["outcome", "reason"] == [entry.kind for entry in glossary.find_entries("UNPROVEN")]
    assert ["draft, target"] == [entry.word for entry in glossary.find_entries("target")]
    assert [["inter_token_latency", "itl"]] == [entry.names for entry in glossary.find_entries("ITL")]
    assert [] == glossary.find_entries("nothing")
