"""What a round costs, in a probe and in the report of a run, where the target can time its passes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gatekeeper.report.html.sections.ceiling_section import round_cost
from tests.builders.golden_words import says
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import EASY

Scripted = Callable[..., ProjectFolder]
SIGHT = ["arrivals", "token_count", "text", "token_ids", "rounds", "memory", "plain", "logits", "prompt_time", "widths"]
TIMED = {"sight": SIGHT, "verify": {"2": "110 ms", "4": "130 ms"}, "noise": {"answer": 0.01}}


def ceilings(project: ProjectFolder) -> list[dict[str, Any]]:
    events = map(json.loads, (project.path / "run" / "events.jsonl").read_text().splitlines())
    return [event["detail"] for event in events if event.get("kind") == "ceiling"]


def test_a_run_shows_what_a_round_costs(scripted: Scripted) -> None:
    """
    Where passes can be timed, a run has their costs once, its page draws them, and judging it again changes nothing.
    """
    project = scripted(TIMED, workload=EASY)

    project.run("certify", "slo.toml", "--out", "run", code=0)
    costs = {
        cost["draft_length_tokens"]: cost["round_plain_tokens"]["center"] for cost in ceilings(project)[0]["rounds"]
    }
    page = (project.path / "run" / "report.html").read_text()

    assert [1.1, 1.3] == pytest.approx([costs[2], costs[4]], rel=0.05)
    assert 1 == len(ceilings(project))
    assert 1 == page.count('id="round-cost"')
    project.run("judge", "run", code=0)


def test_a_run_without_timed_passes_has_no_such_section() -> None:
    """
    Where nothing was timed there is no section and no figure: nothing is guessed.
    """
    assert round_cost(None) is None


def test_a_probe_says_it_in_one_line(scripted: Scripted) -> None:
    """
    `try` says the most that its draft can give, and the acceptance above which the length that it tried pays.
    """
    project = scripted({**TIMED, "token": "20 ms", "verify": "26 ms", "noise": {"answer": 0.0}}, workload=EASY)

    ran = project.run("try", "slo.toml", "--seconds", "20", code=0)

    says("run", "the line of a probe on its ceiling", next(line for line in ran.out.splitlines() if "exceed" in line))
