"""A soak that continues while a required ratio is open, or stops settings early, and what is stored of it."""

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend, ScriptedSystem
from gatekeeper.core.records import Setting
from tests.builders.project_folder import ProjectFolder, canary_lines
from tests.builders.scripted_slo import BOTH, EASY
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]
RATIO = {"metric": "throughput_ratio", "at_least": 1.3, "why": "the truth itself"}
OPEN: dict[str, Any] = {
    "truth": {"noise": {"answer": 0.03}, "ratio": 1.3},
    "workload": EASY,
    "objective": [RATIO],
    "sweep": {"repeats": 3, "num_draft_tokens": [4]},
    "confidence": 0.9999,
}
"""A truth at its bound, which no soak decides at this confidence."""
SOAK = {"duration": "100 s", "max_duration": "400 s", "until": "decided"}
PARTS = ["soak-1.jsonl", "soak-1.part-2.jsonl", "soak-1.part-3.jsonl"]
"""100 s, as long again, and the 200 s that are left."""
CERTIFY = ("certify", "slo.toml", "--out", "run", "--quiet")


def parts(project: ProjectFolder) -> list[str]:
    return sorted(path.name for path in (project.path / "run").glob("soak-1*.jsonl"))


def test_the_process_goes_on_through_all_parts_and_the_passes_between_them(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that warms up would be cold again in each part: from the soak's first answer on none is started."""
    started, start = [], ScriptedBackend.start

    def counted(backend: ScriptedBackend, knobs: Setting, *, cache: bool = False) -> ScriptedSystem:
        started.append(backend.residence(knobs))
        return start(backend, knobs, cache=cache)

    truth = {**OPEN["truth"], "agreement": 0.7, "gap": 0.02}
    project = scripted(**OPEN | {"truth": truth, "soak": SOAK, "visible_harm": 0.7})
    lines = [{"id": f"open-{at:02}", "messages": [{"role": "user", "content": f"Say {at}."}]} for at in range(12)]
    (project.path / "easy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(ScriptedBackend, "start", counted)

    project.run(*CERTIFY, code=3)

    assert [path.name for path in (project.path / "run").glob("near_ties-1*")]
    assert PARTS[1] in parts(project)
    assert started[-2:] == ["heavy", "heavy"], "one for the sweep, one for the soak"
    assert started.count("heavy") == 2


def test_a_run_killed_in_a_further_part_continues_it(scripted: Scripted) -> None:
    """Kill -9 in the second part: --resume keeps what was measured, and takes the parts of an undisturbed run."""
    project = scripted(**OPEN, soak=SOAK)
    second = project.path / "run" / PARTS[1]
    process = project.held(f"run/{PARTS[1]}", after=5).start(*CERTIFY)
    until(lambda: second.exists() and len(second.read_text().splitlines()) > 5)

    process.kill()
    process.communicate()
    before = second.read_text().splitlines()
    project.run(*CERTIFY, "--resume", code=3)

    assert before == second.read_text().splitlines()[: len(before)]
    assert parts(project) == PARTS


def test_a_finished_unproven_run_is_extended(scripted: Scripted) -> None:
    """Parts up to max_duration, then the command of the summary adds one; the verdict rests on all of them."""
    project = scripted(**{**OPEN, "objective": [RATIO | {"at_least": 1.28}]}, soak=SOAK)
    output_lines = project.run(*CERTIFY, code=3).out.splitlines()
    before = {name: (project.path / "run" / name).read_bytes() for name in PARTS}

    *extend, minutes, output, run = shlex.split(output_lines[-1].removeprefix("next: gatekeeper "))
    assert parts(project) == PARTS
    assert (["certify", "slo.toml", "--extend"], "--output", "run") == (extend, output, run), output_lines
    assert re.fullmatch(r"\d+m", minutes)
    project.run(*extend, "5m", output, run, "--quiet", code=3)
    judged = project.run("judge", "run", "--json", code=3)

    assert parts(project) == [*PARTS, "soak-1.part-4.jsonl"]
    assert before == {name: (project.path / "run" / name).read_bytes() for name in PARTS}
    assert judged.document == project.verdict()
    answers = sum(len(content.splitlines()) - 1 for content in before.values())
    assert judged.document["workloads"][0]["measured"]["answers"] > answers / 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"soak": {**SOAK, "until": "duration"}, "code": 3}, "a longer soak would not decide this run"),
        ({"objective": [RATIO | {"at_least": 0.8}]}, "is decided"),
        (None, "--extend continues a finished run"),
    ],
)
def test_what_cannot_be_extended_is_refused(
    scripted: Scripted, finished: Scripted, change: dict[str, Any] | None, words: str
) -> None:
    """A soak of one fixed part, a decided run and an unfinished one are bad input; nothing is changed."""
    project = scripted() if change is None else finished(**{**OPEN, "soak": SOAK, **change})
    sums = project.path / "run" / "SHA256SUMS"
    before = sums.read_bytes() if change else b""

    refused = project.run(*CERTIFY, "--extend", "30m", code=2)

    assert words in refused.err
    assert change is None or (before, PARTS[:1]) == (sums.read_bytes(), parts(project))


# Settings of a sweep that are stopped early

SWEEP: dict[str, Any] = {"repeats": 2, "budget": 48, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}}


def larger(project: ProjectFolder) -> ProjectFolder:
    for prefix in ("easy", "hard"):
        (project.path / f"{prefix}.jsonl").write_text(canary_lines(prefix, 24))
    return project


def stops(project: ProjectFolder) -> dict[tuple[str, str], str]:
    """Return why settings were stopped early, by workload and trial, which events.jsonl and verdict.json agree on."""
    lines = (project.path / "run" / "events.jsonl").read_text().splitlines()[:-1]
    details = [event["detail"] for line in lines if (event := json.loads(line))["kind"] == "stopped"]
    reasons = {(stop["workload"], stop["trial"]): stop["because"] for stop in details}
    assert reasons == {
        (workload["name"], setting["trial"]): setting["stopped"]["because"]
        for workload in project.verdict()["workloads"]
        for setting in workload["choice"]["settings"]
        if "stopped" in setting
    }
    return reasons


def test_early_stops_are_events_and_in_the_verdict(scripted: Scripted) -> None:
    """Where drafting loses, both settings are stopped after a few canaries: no more records, and judge agrees."""
    project = larger(scripted(sweep=SWEEP, workload=BOTH))

    project.run(*CERTIFY, code=0)

    run = project.path / "run"
    measured = sum(
        path.read_text().count('"role":"measured"') for path in (*run.glob("sweep-*.jsonl"), run / "baseline.jsonl")
    )
    assert {("hard", "default"), ("hard", "num_draft_tokens-2")} <= stops(project).keys()
    assert measured < 0.7 * 2 * 24 * 2 * 3
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document


def test_a_kill_in_the_sweep_changes_no_decision(scripted: Scripted) -> None:
    """Killed after the first look and resumed, what was stopped stays stopped, and the verdict is judged again."""
    project = larger(scripted({"shares_process": False}, sweep=SWEEP))
    events = project.path / "run" / "events.jsonl"
    process = project.held("run/events.jsonl", word='"stopped"').start(*CERTIFY)
    until(lambda: events.exists() and '"stopped"' in events.read_text())
    process.kill()
    process.communicate()

    project.run(*CERTIFY, "--resume")

    assert stops(project)
    assert project.verdict() == project.run("judge", "run", "--json").document
