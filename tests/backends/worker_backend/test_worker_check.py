"""`gatekeeper worker check`: real programs that speak the protocol well, in part, or not at all."""

import sys
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.backends.worker_backend import worker_process
from gatekeeper.backends.worker_backend.worker_check import WorkerCheck, check_worker
from gatekeeper.backends.worker_backend.worker_protocol import SEES
from gatekeeper.core.errors import InputError, StartError
from tests.builders.golden_words import says
from tests.builders.project_folder import ProjectFolder

HERE = Path(__file__).parents[1]
BAD, EXAMPLE = str(HERE / "bad_worker.py"), HERE.parents[1] / "integrations" / "example_worker.py"


def tried(*command: str, timeout: float = 60.0, start: float = 60.0, **models: str) -> WorkerCheck:
    """Check a Python program with its arguments."""
    models = {"target": "target", "draft": "draft"} | models
    return check_worker([sys.executable, *command], timeout=timeout, start_timeout=start, **models)


def states(check: WorkerCheck) -> dict[str, str]:
    return {part.name: part.state for part in check.parts}


def changed(folder: Path, *pairs: tuple[str, str]) -> str:
    """Write the example of the docs with some of its text replaced, and return its path."""
    source = EXAMPLE.read_text()
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    path = folder / "worker.py"
    path.write_text(source)
    return str(path)


def test_the_example_of_the_docs_has_nothing_to_repair() -> None:
    """Each part that it declares is there, and each other one is named with what is lost without it."""
    check = tried(str(EXAMPLE))

    declared = {"arrivals", "token_count", "text", "token_ids", "rounds", "plain", "cold"}
    requests = {"start", "plain request", "short request", "drafting request", "same words"}
    assert 0 == check.to_repair
    assert "" == check.log
    assert dict.fromkeys(declared | requests, "ok") | dict.fromkeys(SEES.keys() - declared, "not declared") == states(
        check
    )
    assert all(part.remedy for part in check.parts if part.state != "ok")


def test_a_worker_that_floods_its_log_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log without an end fills no disk: the worker is ended long before its time is over."""
    monkeypatch.setattr(worker_process, "MOST_LOG", 1 << 16)
    flood = "import sys, time; sys.stderr.write('x' * (1 << 18)); sys.stderr.flush(); time.sleep(60)"

    with pytest.raises(StartError, match="longer"):
        tried("-c", flood)


def test_what_is_declared_and_not_there_is_missing(tmp_path: Path) -> None:
    """Ids that were left out, rounds that were not counted and an answer without its end are each named."""
    worker = changed(
        tmp_path,
        ("zlib.crc32(word.encode())", "None"),
        (', finish="stop"', ""),
        ("rounds=rounds", "rounds=None"),
    )

    check = tried(worker)

    missing = {name for name, state in states(check).items() if state == "missing"}
    assert {"token_ids", "rounds", "plain request", "short request", "drafting request"} == missing
    assert len(missing) == check.to_repair


@pytest.mark.parametrize("mode", ["miscounted", "exits", "hangs", "garbage"])
def test_a_fault_of_an_answer_is_wrong_and_its_log_is_shown(mode: str) -> None:
    """An answer that contradicts itself costs itself; after a death or silence no part is judged."""
    check = tried(BAD, mode, timeout=1.0 if mode == "hangs" else 60.0)

    wrong = [part for part in check.parts if part.state == "wrong"]
    assert ["plain request", "short request", "second request"] == [part.name for part in wrong]
    assert check.to_repair == 3
    assert {"ok", "not declared", "wrong"} == set(states(check).values())
    assert "worker" in check.log
    assert ("out of pages" in check.log) == (mode == "exits")


@pytest.mark.parametrize("mode", ["dies at once", "mute", "nameless", "never ready", "cannot load"])
def test_a_worker_that_does_not_start_is_refused_as_certify_does(mode: str) -> None:
    """The error has the cause; it names the option of this command where the time was too short."""
    with pytest.raises(InputError) as refused:
        tried(BAD, mode, "{target}", start=0.5 if mode == "mute" else 60.0)

    assert refused.value.hint
    assert "start_timeout" not in refused.value.message + refused.value.hint
    assert ("--timeout" in refused.value.hint) == (mode == "mute")
    assert isinstance(refused.value, StartError) or mode in {"nameless", "never ready"}


def test_the_command_ends_in_0_1_or_2(tmp_path: Path) -> None:
    """A line a part on stdout; the worker's options are its own; an error of the start is one of the command."""
    project = ProjectFolder(tmp_path, {})

    good = project.run("worker", "check", sys.executable, str(EXAMPLE), "--json", code=0)
    bad = project.run("worker", "check", "--timeout", "90s", "--json", sys.executable, BAD, "blind", code=1)
    none = project.run("worker", "check", "./no-such-worker", code=2)

    says("backends", "a checked worker with nothing to repair", good.out.splitlines()[-1])
    lines = [line for line in good.out.splitlines() if line.startswith("not declared")]
    says("backends", "what a worker may declare, and does not", "\n".join(lines))
    parts: list[dict[str, Any]] = bad.document["parts"]
    assert {"name", "state", "text", "remedy"} == parts[0].keys()
    assert bad.document["to_repair"] == sum(part["state"] == "missing" for part in parts)
    assert "no-such-worker" in none.err
