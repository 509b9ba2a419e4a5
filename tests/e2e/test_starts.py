"""Starts at the end of a run: what the first answer waits for where its models are loaded anew, in both arms."""

from collections.abc import Callable

from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import EASY

Scripted = Callable[..., ProjectFolder]

START = {"start": "2 s", "cold": {"start": "1 s", "pause": "0 s"}}
"""Each process takes two seconds to start, and its first answer a second more than the next one."""
FEW = {"workload": EASY, "sweep": {"repeats": 1, "num_draft_tokens": [4]}}


def test_a_run_measures_what_a_start_takes(scripted: Scripted) -> None:
    """
    The first token after a start comes three seconds later than the next answer's, in both arms; the promoted workload
    has both times with intervals, the text and the page show them, and `judge` derives the same bytes.
    """
    project = scripted(START, soak={"duration": "60 s", "starts": 6}, **FEW)

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)

    verdict = project.verdict("run")
    loaded, following = verdict["workloads"][0]["at_end"]
    for arm in ("plain", "drafting"):
        assert 2.9 <= loaded[arm]["center"] - following[arm]["center"] <= 3.1
        assert 6 == loaded[arm]["n"]
    assert loaded["ratio"]["lo"] <= loaded["ratio"]["center"] <= loaded["ratio"]["hi"]
    assert verdict == project.run("judge", "run", "--json", code=0).document
    assert loaded["title"] in project.run("report", "run", "--format", "text", "-v").out
    assert loaded["title"] in (project.path / "run" / "report.html").read_text()


def test_a_run_without_the_key_starts_nothing_anew(scripted: Scripted) -> None:
    """
    Starts are measured only where the SLO asks for them; `plan` foresees them then.
    """
    project = scripted(START)
    without = project.run("plan", "slo.toml", "--json").document["expected_seconds"]

    project = scripted(START, soak={"duration": "150 s", "starts": 6})

    planned = project.run("plan", "slo.toml", "--json").document["expected_seconds"]
    assert 0 == without.get("starts", 0)
    assert planned["starts"] > 60
