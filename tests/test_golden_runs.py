"""Golden runs: what every command shows of stored runs of the rules in force, byte for byte.

`python -m tests.golden.make` makes them anew. A change of these bytes that is meant is one commit with that diff.
"""

import json

import numpy as np
import pytest

from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.document import document_of, read_document
from gatekeeper.core.text import json_text
from tests.golden.make import GOLDEN, RUNS, what_is_shown

DECIDED = {
    "promoted": ("promoted", 0),
    "graded_back": ("graded_back", 1),
    "step_down": ("promoted", 0),
    "kept_plain": ("promoted", 0),
    "failed": ("failed", 1),
    "unproven": ("unproven", 3),
    "damaged": ("unproven", 3),
    "sampled": ("promoted", 0),
    "http": ("promoted", 0),
    "against_certified": ("promoted", 0),
    "continued": ("promoted", 0),
}
"""The outcome and the exit code of each run: whoever makes them anew reads here if one no longer says what it shows."""


def expected_files(name: str) -> dict[str, str]:
    return {path.name: path.read_bytes().decode() for path in sorted((GOLDEN / "expected" / name).iterdir())}


@pytest.mark.parametrize("name", RUNS)
def test_every_command_shows_the_same_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdict, policy, JUnit, Markdown, the text of the page, comparison and history of a stored run are the kept
    ones.
    """
    monkeypatch.delenv("COLUMNS", raising=False)
    made_with = json.loads((GOLDEN / "runs" / name / "manifest.json").read_text())["versions"]["numpy"]

    shown = what_is_shown(name)

    expected = expected_files(name)
    assert set(expected) == set(shown)
    for file, text in expected.items():
        assert text == shown[file], (
            f"{file} of the golden run '{name}' has changed (made with numpy {made_with}, this is {np.__version__}); "
            "if that is meant, run `python -m tests.golden.make` and read the diff"
        )


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_verdict_is_read_whole(name: str) -> None:
    """Read as a Verdict and written again, verdict.json has the same bytes, but for the choices of the sweep."""
    stored = json.loads((GOLDEN / "runs" / name / "verdict.json").read_text())
    for workload in stored["workloads"]:
        workload["choice"] = {}

    verdict = read_document(Verdict, stored, "verdict.json", hint="")

    assert json_text(stored) == json_text(document_of(verdict))
    assert (stored["outcome"], stored["exit_code"]) == (verdict.outcome, verdict.exit_code)


def test_each_run_ends_as_it_should() -> None:
    """The stored runs end in every outcome; a damaged one is never promoted."""
    verdicts = {name: json.loads(expected_files(name)["verdict.json"]) for name in RUNS}

    assert {name: (verdict["outcome"], verdict["exit_code"]) for name, verdict in verdicts.items()} == DECIDED
    assert {path.name for path in (GOLDEN / "runs").iterdir()} == set(RUNS)
    assert {path.name for path in (GOLDEN / "expected").iterdir()} == set(RUNS)


def test_the_runs_show_what_they_are_for() -> None:
    """One goes down the ladder, one was extended, one compares with a certified run, one routes several workloads."""
    steps = json.loads(expected_files("step_down")["verdict.json"])["workloads"][0]["steps"]
    events = (GOLDEN / "runs" / "continued" / "events.jsonl").read_text()
    certified = json.loads((GOLDEN / "runs" / "against_certified" / "manifest.json").read_text())["certified"]
    routes = expected_files("promoted")["policy.toml"]

    assert ["chat", "json", "random", "tools"] == sorted({*_workloads("promoted"), *_workloads("http")})
    assert 4 == steps[0]["setting"]["num_draft_tokens"]
    assert '"kind":"extended"' in events
    assert "before" == certified["run"]
    assert (2, 1) == (routes.count("\nspeculation = true"), routes.count('workload = "random"\nspeculation = false'))


def _workloads(name: str) -> list[str]:
    verdict = json.loads(expected_files(name)["verdict.json"])
    return [workload["name"] for workload in verdict["workloads"]]
