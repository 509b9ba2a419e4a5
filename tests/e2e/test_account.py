"""What a run says beyond its verdict: every swept setting, at which concurrency, and what routing wins."""

import re
import tomllib
from collections.abc import Callable

import pytest

from tests.builders.golden_words import says
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import BOTH, EASY

Scripted = Callable[..., ProjectFolder]


def test_acceptance_is_told_by_position(scripted: Scripted) -> None:
    """Where the chance of acceptance falls along a round, the soak's figures fall with it, one for each position."""
    project = scripted({"acceptance": 0.95, "acceptance_falloff": 0.7, "canaries": {}})
    project.run("certify", "slo.toml", "--only", "soak", "--set", "num_draft_tokens=3", "--out", "run", code=0)

    chances = project.verdict()["workloads"][0]["measured"]["acceptance_by_position"]

    assert [0.95, 0.665, 0.466] == pytest.approx(chances, abs=0.1)


def test_the_summary_has_every_swept_setting(demo: ProjectFolder) -> None:
    """The text report has a line for each setting of the sweep with its interval, and one for what routing wins."""
    text = demo.run("report", "run", "-v", code=0).out

    routing = demo.verdict()["routing"]
    settings = [setting for part in demo.verdict()["workloads"] for setting in part["choice"]["settings"]]
    assert len(settings) == len(re.findall(r"^  swept .*: (?:faster|slower|not decided), ", text, re.MULTILINE))
    assert routing["says"] in text
    assert routing["gain"]["lo"] > 1


TWO_KNOBS = {"repeats": 1, "num_draft_tokens": [2, 6], "draft": ["heavy", "light"], "default": {"draft": "heavy"}}


def test_a_route_that_was_never_swept_has_no_gain(scripted: Scripted) -> None:
    """The best values of two knobs, combined, were not swept: no figure says what routing wins, and the reason does;
    judging again gives the same bytes.
    """
    project = scripted(sweep=TWO_KNOBS, workload=BOTH)
    project.run("certify", "slo.toml", "--out", "run", code=0)

    routing = project.verdict()["routing"]

    route = project.verdict()["workloads"][0]["setting"]
    assert {"draft": "light", "num_draft_tokens": 6} == route
    assert "gain" not in routing
    says("sweeps", "a route that was never swept has no gain", routing["because"])
    assert project.run("judge", "run", "--json", code=0).out == (project.path / "run" / "verdict.json").read_text()


def test_a_sweep_alone_names_a_lying_server(scripted: Scripted) -> None:
    """Counters that do not add up are a finding of `sweep`, in its text and its document."""
    project = scripted({"claims": {"accepted": 9.0}}, workload=BOTH)

    findings = project.run("certify", "slo.toml", "--only", "sweep", "--out", "run", "--json", code=0).document[
        "findings"
    ]

    assert {"counter_lie"} == {finding["kind"] for finding in findings}
    assert {"easy", "hard"} == {finding["about"].partition(",")[0] for finding in findings}


def test_a_swept_concurrency_has_the_speed_of_all_streams(scripted: Scripted) -> None:
    """Plain decoding that batches overtakes a draft that queues between one stream and eight: the verdict has both
    ratios,
    and the policy drafts for one stream alone.
    """
    project = scripted(
        {"batching": {"plain": 0.02, "candidate": 1.0}, "canaries": {}, "acceptance": 0.9},
        sweep={"repeats": 1, "num_draft_tokens": [4], "concurrency": [1, 8]},
        workload=EASY,
    )

    project.run("certify", "slo.toml", "--out", "run", code=0)

    at_one, at_eight = project.verdict()["workloads"][0]["choice"]["by_concurrency"]
    policy = tomllib.loads((project.path / "run" / "policy.toml").read_text())
    assert (1, 8) == (at_one["concurrency"], at_eight["concurrency"])
    assert at_one["lo"] > 1 > at_eight["hi"]
    assert 1 == policy["route"][0]["max_concurrency"]


def test_the_plan_shows_what_a_bound_implies(scripted: Scripted) -> None:
    """`plan` notes that 45 ms a token means 22.2 tok/s, and refuses nothing because of it."""
    project = scripted(objective=[{"metric": "itl_p50", "at_most": "45 ms", "why": "a reader's pace"}])

    planned = project.run("plan", "slo.toml", code=0)

    assert "at least 22.2 tok/s" in planned.out
