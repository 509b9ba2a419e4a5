"""Joules a token, from the command line: rest is measured, drafting judged by it, and a setting chosen by it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import mac_tools
from tests.builders.golden_words import lines_with, says
from tests.builders.host_samples import replace_samples, stored_samples
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import EASY, SLOW

MACMON = f"while :; do {mac_tools.prints(json.dumps(mac_tools.macmon('0.8')))}; echo; sleep 0.2; done"
REST_W = 4.0
COUNTS = r"[0-9.]+x \[[0-9., ]+\]|[0-9]{3,}"
"""What a run does not repeat: its ratios, and how many samples it has."""


def on_a_mac(project: ProjectFolder) -> ProjectFolder:
    """Let the host be a Mac whose macmon reads one power."""
    tools = mac_tools.healthy_mini(project.path / "bin", macmon=MACMON, powermetrics="exit 64")
    return project.with_environment(**tools)


def with_powers(run: Path, watts: Callable[[dict[str, Any]], float], rest: float = REST_W) -> None:
    """Rewrite the samples of a run: at *rest* in W, and during an answer *watts* of it more."""
    (run / "SHA256SUMS").unlink(missing_ok=True)
    answers = [
        (answer["answer"]["sent_ns"] / 1e9, answer["answer"]["ended_ns"] / 1e9, watts(answer))
        for file in run.glob("*.jsonl")
        if file.name not in {"host.jsonl", "events.jsonl"}
        for answer in map(json.loads, file.read_text().splitlines())
        if "answer" in answer
    ]
    samples = stored_samples(run)
    for number, sample in enumerate(samples):
        reading, flicker = sample["values"]["package_power"], 0.01 * (number % 7)
        at_s = sample["at_ns"] / 1e9
        seconds = [(max(0.0, min(at_s, ended) - max(at_s - 1, sent)), watts) for sent, ended, watts in answers]
        drawn = sum(part * watts for part, watts in seconds)
        reading.update(value=rest + flicker * bool(rest) + drawn, status="ok", age=0.0)
        sample["values"]["system_power"].update(value=None, status="absent")
    replace_samples(run, samples)


def test_joules_are_judged_above_rest(scripted: Callable[..., ProjectFolder]) -> None:
    """A stuck sensor leaves the ratio open; else drafting draws a third more for 1 / 2.7 of the time."""
    objective = {"metric": "energy_ratio", "at_most": 0.6, "why": "the machine runs on a battery"}
    soak = {"duration": "400 s", "baseline_share": 0.5}
    folder = on_a_mac(scripted(SLOW, workload=EASY, objective=[objective], soak=soak, sweep={"num_draft_tokens": [4]}))

    plan = folder.run("plan", "slo.toml").out
    first = folder.run("certify", "slo.toml", "--out", "run", code=3)
    with_powers(folder.path / "run", lambda answer: 20.0 if answer["arm"] == "candidate" else 15.0)
    verdict = folder.run("judge", "run", "--json").document

    says("run", "the plan has a rest", re.sub("[0-9.]+ (s|min)", "#", lines_with("expected rest", plan)))
    # How many readings a busy machine got decides which of two reasons is given; open it is for both.
    assert lines_with("energy_ratio", first.out).startswith("? easy: energy_ratio")
    energy = verdict["workloads"][0]["measured"]["energy"]
    assert 20 / 15 / 2.73 == pytest.approx(energy["drafting"] / energy["plain"], rel=0.03)
    page = folder.run("report", "run", "--format", "html").out
    assert "#energy" in page
    (check,) = [check for check in verdict["workloads"][0]["checks"] if check["metric"] == "energy_ratio"]
    assert "pass" == check["outcome"], check["because"]
    assert 20 / 15 / 2.73 == pytest.approx(check["center"], rel=0.03)
    assert 0.45 < check["lo"] < check["hi"] < 0.53, check
    assert "package power by macmon" in check["because"]


def test_the_setting_with_the_fewest_joules_is_chosen(scripted: Callable[..., ProjectFolder]) -> None:
    """A sweep takes the slower of two where it needs half the power; a dead sensor leaves the faster one."""
    sweep = {"num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}, "repeats": 2, "prefer": "energy"}
    folder = on_a_mac(scripted(SLOW, workload=EASY, sweep=sweep))

    folder.run("certify", "slo.toml", "--only", "sweep", "--out", "run")
    with_powers(folder.path / "run", lambda _answer: 0.0, rest=0.0)
    by_speed = folder.run("judge", "run", "--json").document["workloads"][0]["choice"]
    with_powers(
        folder.path / "run", lambda answer: 8.0 if dict(answer["setting"]).get("num_draft_tokens") == 2 else 20.0
    )
    by_energy = folder.run("judge", "run", "--json").document["workloads"][0]["choice"]

    assert (4, 2) == (by_speed["setting"]["num_draft_tokens"], by_energy["setting"]["num_draft_tokens"])
    says("run", "a dead sensor leaves the fastest", re.sub(COUNTS, "#", by_speed["because"]))
    says("run", "the fewest joules are chosen", re.sub(COUNTS, "#", by_energy["because"]))
