"""The badge of a verdict: the JSON of shields.io."""

import json
from dataclasses import replace

import pytest

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.report import badge
from tests.builders.page_data import VERDICT

PROMOTED = replace(VERDICT.workloads[0], outcome=WorkloadOutcome.PROMOTED, name="easy <b>", checks=())
GOOD = Verdict("made", "certification", "f" * 64, (PROMOTED,))


@pytest.mark.parametrize(
    ("verdict", "says", "colour"),
    [
        (GOOD, "easy <b> 1.3x", "#0b7a58"),
        (replace(GOOD, grade="demo"), "demo: easy <b> 1.3x", "#856000"),
        (VERDICT, "failed", "#b4380a"),
        (replace(GOOD, incomplete="cut off"), "unproven", "#7347ad"),
        (replace(GOOD, workloads=(PROMOTED,) * 9), "drafting on for 9 workloads", "#0b7a58"),
    ],
)
def test_a_badge_says_the_speed_or_the_outcome(verdict: Verdict, says: str, colour: str) -> None:
    """
    What is promoted has its speed, a demo says so and is amber; anything else is the outcome, in its own colour.
    """
    document = json.loads(badge.render(verdict))

    assert {"schemaVersion": 1, "label": "made", "message": says, "color": colour} == document
