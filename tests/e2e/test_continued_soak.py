"""A soak that continues while a required ratio is open, and what is stored of it."""

import json
import re
import shlex
import signal
from collections.abc import Callable
from typing import Any

import pytest

from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend, ScriptedSystem
from gatekeeper.core.records import Setting
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import EASY
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]

OPEN: dict[str, Any] = {
    "truth": {"noise": {"answer": 0.03}, "ratio": 1.3},
    "workload": EASY,
    "objective": [{"metric": "throughput_ratio", "at_least": 1.3, "why": "the truth itself"}],
    "sweep": {"repeats": 3, "num_draft_tokens": [4]},
    "confidence": 0.9999,
}
"""A truth at its bound, which no soak decides at this confidence."""
SOAK = {"duration": "100 s", "max_duration": "400 s", "until": "decided"}
FIXED = {**SOAK, "until": "duration"}
PARTS = ["soak-1.jsonl", "soak-1.part-2.jsonl", "soak-1.part-3.jsonl"]
"""100 s, as long again, and the 200 s that are left."""


def parts(project: ProjectFolder) -> list[str]:
    return sorted(path.name for path in (project.path / "run").glob("soak-1*.jsonl"))


def test_a_soak_continues_while_its_ratio_is_open(scripted: Scripted) -> None:
    """Further parts are recorded in files of their own up to max_duration; `judge` says the same of all of them."""
    project = scripted(**OPEN, soak=SOAK)

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=3)
    judged = project.run("judge", "run", "--json", code=3)

    assert parts(project) == PARTS
    assert judged.out == (project.path / "run" / "verdict.json").read_text()
    answers = sum(len((project.path / "run" / part).read_text().splitlines()) - 1 for part in PARTS)
    assert judged.document["workloads"][0]["measured"]["answers"] > answers / 3


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

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=3)

    assert [path.name for path in (project.path / "run").glob("near_ties-1*")]
    assert PARTS[1] in parts(project)
    assert started[-2:] == ["heavy", "heavy"], "one for the sweep, one for the soak"
    assert started.count("heavy") == 2


def test_a_run_killed_in_a_further_part_continues_it(scripted: Scripted) -> None:
    """Kill -9 in the second part: --resume keeps what was measured, and takes the parts that an undisturbed run
    takes.
    """
    project = scripted(**OPEN, soak=SOAK)
    second = project.path / "run" / PARTS[1]
    process = project.held(f"run/{PARTS[1]}", after=5).start("certify", "slo.toml", "--out", "run", "--quiet")
    until(lambda: second.exists() and len(second.read_text().splitlines()) > 5)

    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = second.read_text().splitlines()
    project.run("certify", "slo.toml", "--out", "run", "--resume", "--quiet", code=3)

    assert before == second.read_text().splitlines()[: len(before)]
    assert parts(project) == PARTS


def test_a_demo_stays_as_short_as_it_is(scripted: Scripted) -> None:
    """Without `until`, a soak under ten minutes, which makes a demo, does not continue."""
    project = scripted(**OPEN, soak={"duration": "100 s"})

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=3)

    assert PARTS[:1] == parts(project)


def test_a_fixed_soak_stays_as_long_as_the_slo_says(finished: Scripted) -> None:
    """With `until = "duration"` there is one part, and the ratio stays open."""
    assert PARTS[:1] == parts(finished(**OPEN, soak=FIXED, code=3))


def test_a_finished_unproven_run_is_extended(scripted: Scripted) -> None:
    """The command that the summary offers adds parts to the soak of a finished run; the verdict rests on all of
    them, and
    can be judged again.
    """
    near = [{"metric": "throughput_ratio", "at_least": 1.28, "why": "near the truth"}]
    project = scripted(**{**OPEN, "objective": near}, soak=SOAK)
    output_lines = project.run("certify", "slo.toml", "--out", "run", "--quiet", code=3).out.splitlines()
    before = {name: (project.path / "run" / name).read_bytes() for name in PARTS}
    offered = output_lines[-1].removeprefix("next: gatekeeper ")

    *extend, minutes, output, run = shlex.split(offered)
    assert (["certify", "slo.toml", "--extend"], "--output", "run") == (extend, output, run), output_lines
    assert re.fullmatch(r"\d+m", minutes)
    project.run(*extend, "5m", output, run, "--quiet", code=3)
    judged = project.run("judge", "run", "--json", code=3)

    assert parts(project) == [*PARTS, "soak-1.part-4.jsonl"]
    assert before == {name: (project.path / "run" / name).read_bytes() for name in PARTS}
    assert judged.out == (project.path / "run" / "verdict.json").read_text()


@pytest.mark.nightly  # test_a_run_killed_in_a_further_part_continues_it, and the extension above it
def test_an_extension_that_was_killed_is_resumed(scripted: Scripted) -> None:
    """Kill -9 in the added part: `--resume` finishes it as the extension would have."""
    project = scripted(**OPEN, soak=SOAK)
    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=3)
    added = project.path / "run" / "soak-1.part-4.jsonl"
    paused = project.held(f"run/{added.name}", after=5)
    process = paused.start("certify", "slo.toml", "--extend", "300 s", "--out", "run", "--quiet")
    until(lambda: added.exists() and len(added.read_text().splitlines()) > 5)

    process.send_signal(signal.SIGKILL)
    process.communicate()
    project.run("certify", "slo.toml", "--resume", "--out", "run", "--quiet", code=3)

    assert parts(project) == [*PARTS, added.name]
    project.run("judge", "run", code=3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"soak": FIXED, "code": 3}, "a longer soak would not decide this run"),
        ({"objective": [{"metric": "throughput_ratio", "at_least": 0.8, "why": "far from the truth"}]}, "is decided"),
        (None, "--extend continues a finished run"),
    ],
)
def test_what_cannot_be_extended_is_refused(
    scripted: Scripted, finished: Scripted, change: dict[str, Any] | None, words: str
) -> None:
    """A soak of one fixed part, a decided run and an unfinished one are bad input; nothing is changed."""
    project = scripted() if change is None else finished(**{**OPEN, "soak": SOAK, **change})
    if change is not None:
        before = (project.path / "run" / "SHA256SUMS").read_bytes()

    refused = project.run("certify", "slo.toml", "--extend", "30m", "--out", "run", "--quiet", code=2)

    assert words in refused.err
    assert change is None or before == (project.path / "run" / "SHA256SUMS").read_bytes()
