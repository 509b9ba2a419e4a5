"""`gatekeeper bisect` on real installs of local wheels: the first bad version, skipped ones, and the way back."""

import json
import shlex
from pathlib import Path

import pytest

from gatekeeper.regression import package_environments as environments
from tests.builders.project_folder import ProjectFolder, project_folder
from tests.builders.scripted_slo import write_scripted

SEARCH = ("bisect", "slo.toml", "--package", "echo-worker", "--metric", "acceptance_rate", "--quiet", "--json")
ENDS = ("--good", "1.0", "--bad", "1.4")


def test_it_finds_the_first_bad_version_and_skips_one_that_does_not_start(worker: ProjectFolder) -> None:
    """
    Versions come from the index; one that does not start is unclear, so the change is between 1.1 and 1.3 …
    """
    document = worker.run(*SEARCH, *ENDS, "--out", "search", code=3).document

    answers = {step["name"]: step["answer"] for step in document["steps"]}
    assert {f"echo-worker==1.{n}": word for n, word in enumerate(["good", "good", "unclear", "bad", "bad"])} == answers
    assert ["echo-worker==1.2"] == document["unclear"]
    assert ("echo-worker==1.1", None) == (document["last_good"], document["first_bad"])
    changes = {step["name"][-3:]: step["change"]["hi"] for step in document["steps"] if "change" in step}
    assert changes["1.1"] >= 1 > changes["1.3"] == changes["1.4"]
    assert document["environments"]["bytes"] > 0


def test_the_change_is_named_with_both_intervals_and_the_command_repeats_it(worker: ProjectFolder) -> None:
    """
    … and with 1.2 left out the first bad version is known; the printed command tests its two sides again.
    """
    listed = ("--versions", "1.0,1.1,1.3,1.4")
    document = worker.run(*SEARCH, *listed, "--out", "search", code=0).document
    again = worker.run(*shlex.split(document["reproduce"])[1:], "--out", "again", "--json", "--quiet", code=0).document

    assert ("echo-worker==1.1", "echo-worker==1.3") == (document["last_good"], document["first_bad"])
    steps = {step["name"]: step for step in document["steps"]}
    assert steps["echo-worker==1.1"]["lo"] > steps["echo-worker==1.3"]["hi"]
    assert document["threshold"] is None
    assert "echo-worker==1.3" == again["first_bad"]


@pytest.mark.nightly
def test_packages_that_are_locked_together_are_one_step(worker: ProjectFolder) -> None:
    """
    The worker stays and the package it drafts with changes: the step that brings it is the first bad one.
    """
    steps = [f"echo-worker==3.0 echo-drafter=={version}" for version in ("0.1", "0.2")]
    step_words = [word for step in steps for word in ("--step", step)]

    document = worker.run("bisect", "slo.toml", *step_words, *SEARCH[4:], "--out", "search", code=0).document

    assert (steps[0], steps[1]) == (document["last_good"], document["first_bad"])


@pytest.mark.nightly
def test_memory_is_a_symptom(worker: ProjectFolder) -> None:
    """
    The resident memory of the processes, as this machine shows it: the version that holds 300 MB more.
    """
    words = ("--versions", "2.0,2.1", "--metric", "footprint_peak", "--at-most", "200e6")

    document = worker.run(*SEARCH[:4], *words, "--json", "--quiet", "--out", "search", code=0).document

    assert "echo-worker==2.1" == document["first_bad"]
    small, large = (step["center"] for step in document["steps"])
    assert large > small + 250e6


def test_a_search_goes_on_where_it_was_interrupted(worker: ProjectFolder) -> None:
    """
    With --resume tested versions are not tested again; another search in that folder is refused.
    """
    listed = ("--versions", "1.0,1.1,1.3,1.4")
    uninterrupted = worker.run(*SEARCH, *listed, "--out", "search", code=0).document
    state = json.loads((worker.path / "search" / "bisect.json").read_text())
    last = max(state["steps"], key=int)
    state["steps"] = {key: {**step, "seconds": 777} for key, step in state["steps"].items() if key != "1"}
    (worker.path / "search" / "bisect.json").write_text(json.dumps(state))

    document = worker.run(*SEARCH, *listed, "--out", "search", "--resume", code=0).document
    refused = worker.run(*SEARCH, "--versions", "1.0,1.4", "--out", "search", "--resume", code=2)

    assert uninterrupted["first_bad"] == document["first_bad"]
    assert 777 == document["steps"][int(last)]["seconds"] != document["steps"][1]["seconds"]
    assert "holds another search" in refused.err


def test_ends_that_do_not_differ_are_said_and_nothing_is_searched(worker: ProjectFolder) -> None:
    """
    Two good ends have no change between them: exit code 3, and only the ends were tested. Without --output each search
    has a folder of its own, and --resume continues the latest.
    """
    words = (*SEARCH, "--versions", "1.0,1.1")
    document = worker.run(*words, code=3).document
    resumed = worker.run(*words, "--resume", code=3).document
    again = worker.run(*words, code=3).document

    assert "no difference" in document["because"]
    assert "--at-least" in document["hint"]
    assert 2 == len(document["steps"])
    assert (document["run"], document["steps"]) == (resumed["run"], resumed["steps"])
    assert ["runs/bisect-slo", "runs/bisect-slo-2"] == [document["run"], again["run"]]


def test_a_small_loss_of_speed_is_found_by_answering_again(tmp_path: Path) -> None:
    """
    Of four drafts the last two take longer: the canaries are answered again until the change is proven. An
    interrupted search continues with the values that it has.
    """
    drafts = {"a": "5 ms", "b": "5 ms", "c": "12 ms", "d": "12 ms"}
    truth = {"draft_token": drafts, "canaries": {"easy-": {"acceptance": 0.98}}}
    subject = {"backend": "scripted", "target": "t", "drafts": ["a"], "script": "truth.json"}
    project = project_folder(tmp_path)
    write_scripted(project, truth, subject=subject)
    words = [word for draft in drafts for word in ("--draft", draft)]
    search = ("bisect", "slo.toml", *words, "--workload", "easy", "--out", "search", "--json", "--quiet")

    document = project.run(*search, code=0).document
    resumed = project.run(*search, "--resume", code=0).document

    assert ("b", "c", None) == (document["last_good"], document["first_bad"], document["threshold"])
    assert document["steps"][2]["change"]["hi"] < 1 < document["steps"][1]["change"]["hi"]
    assert [False, True, False, True] == [step.get("rounds", 1) > 1 for step in document["steps"]]
    assert document["steps"] == resumed["steps"]


def test_a_version_that_cannot_be_installed_is_said_with_the_installers_words(worker: ProjectFolder) -> None:
    """
    An end that the index lacks is exit code 2. One that does not install proves nothing: code 3, with the installer's
    reason and what to try; no half-made environment stays.
    """
    unknown = worker.run(*SEARCH, "--good", "0.1", "--bad", "1.4", "--out", "search", code=2)
    absent = worker.run(*SEARCH, "--versions", "0.1,1.4", "--out", "search", code=3).document

    assert "no echo-worker 0.1" in unknown.err
    assert "1.4" in unknown.err
    assert absent["because"].startswith("the good version ")
    assert "echo-worker==0.1" in absent["because"].partition(":")[2]
    assert "--with" in absent["hint"]
    assert ["unclear"] == [step["answer"] for step in absent["steps"]]
    folder = Path(worker.environment["XDG_CACHE_HOME"]) / "gatekeeper" / "environments"
    environment_folders = [path for path in folder.iterdir() if path.is_dir()]
    assert all((folder / environments.MADE).exists() for folder in environment_folders)


def test_an_end_that_answers_nothing_is_said(worker: ProjectFolder) -> None:
    """
    A bad version that does not even start ends the search with exit code 3, before anything between is tested.
    """
    document = worker.run(*SEARCH, "--versions", "1.0,1.1,1.2", "--out", "search", code=3).document

    assert document["because"].startswith("the bad version ")
    assert all(word in document["because"] for word in ("echo-worker==1.2", "exit code 5"))
    assert not (worker.path / "search" / "step-001").exists()
