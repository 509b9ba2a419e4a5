"""Whole commands against servers that misbehave, and against limits of our own: the right code, in bounded time."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.backends.http import control_requests
from gatekeeper.backends.server_process import ServerProcess, launch
from gatekeeper.backends.worker_backend.worker_process import WorkerProcess
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.records import setting
from gatekeeper.core.system.own_limits import OwnLimitError
from gatekeeper.run.requests import start_thread
from tests.backends.conftest import MODELS, ROOT, make_request
from tests.backends.fake_server import HEAD, Act, FakeServer, Forever, Script
from tests.backends.http.test_response import chunk
from tests.backends.test_dialects import opened
from tests.builders.descriptors import few_descriptors
from tests.builders.project_folder import ProjectFolder, canary_lines
from tests.builders.servers import PROTOCOLS, Pieces, Protocol, RecordedServer
from tests.e2e.conftest import project, scripted

__all__ = ["project", "scripted"]

PLAIN, FAST = setting(draft=None), setting(draft="small")
QUICK = {"timeout": "0.3 s", "deadline": "0.3 s", "start_timeout": "0.3 s"}
TOKEN = chunk({"content": "a"})


def turning(misbehave: Callable[[], Pieces], *, after: int, until: int = 10**6) -> Protocol:
    """Return the bare OpenAI protocol, which misbehaves after its first answers, and *until* a later one."""
    numbers = count()

    def pieces(request: Mapping[str, Any], drafting: bool) -> Pieces:
        wrong = after <= next(numbers) < until
        yield from misbehave() if wrong else PROTOCOLS["openai"].pieces(request, drafting)

    return PROTOCOLS["openai"]._replace(pieces=pieces)


def drip() -> Pieces:
    while True:
        yield TOKEN
        time.sleep(0.02)


def attached(
    project: ProjectFolder, fast: str, plain: str, *, subject: Mapping[str, Any] = {}, **changes: Any
) -> ProjectFolder:
    """Write an SLO for two running servers, with six canaries and a soak of half a second."""
    where = {"backend": "openai", "target": str(MODELS["little-target"]), "drafts": [str(MODELS["little-draft"])]}
    (project.path / "easy.jsonl").write_text(canary_lines("easy", 6))
    project.write_slo(
        {
            "schema": 1,
            "name": "attached",
            "subject": {**where, "url": fast, "plain_url": plain, **QUICK, **subject},
            "workload": [{"name": "easy", "canaries": "easy.jsonl"}],
            "sweep": {"repeats": 1, "warmups": 0},
            "soak": {"duration": "0.5 s", "max_duration": "1 s"},
            "objective": [{"metric": "answer_throughput_ratio", "at_least": 0.5, "why": "it must not be slow"}],
            **changes,
        }
    )
    return project


def answers(project: ProjectFolder, names: str = "baseline.jsonl") -> list[dict[str, Any]]:
    """Return the answers in some of the run's record files, in order."""
    lines = [line for path in (project.path / "run").glob(names) for line in path.read_text().splitlines()]
    return [answer for line in lines if (answer := json.loads(line).get("answer")) is not None]


def faults(project: ProjectFolder) -> list[str]:
    """Return the faults in all records of the run."""
    return [answer["fault"] for answer in answers(project, "*.jsonl") if answer.get("fault") is not None]


def test_a_server_that_begins_to_drip_is_a_result(project: ProjectFolder) -> None:
    """Answers that never end are recorded faults and a failed objective, after a few deadlines."""
    with (
        RecordedServer(turning(drip, after=4), drafting=True) as fast,
        RecordedServer(PROTOCOLS["openai"], drafting=False) as plain,
    ):
        done = attached(project, fast.url, plain.url).run("certify", "slo.toml", "--out", "run", "--quiet")

    assert done.code in {ExitCode.OBJECTIVE_FAILED, ExitCode.UNPROVEN}, done.err
    assert any(fault.startswith("timeout: ") and fault.endswith(" after 0.3 s") for fault in faults(project))


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([Act.HANG], id="silence"),
        pytest.param([HEAD, Forever(b": ping\n\n", 0.02)], id="comments"),
        pytest.param([HEAD, Forever(TOKEN, 0.02)], id="tokens"),
        pytest.param([HEAD.removesuffix(b"\r\n"), Forever(b"X: 1\r\n", 0.02)], id="headers"),
    ],
)
def test_a_server_that_never_answered_is_unproven(
    project: ProjectFolder, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that runs and never completes its first answer ends in 3, not in 2: the SLO file is right."""
    monkeypatch.setattr(control_requests, "LIMIT_S", 0.1)
    with FakeServer(script) as server:
        url = server.url.removesuffix("/v1/chat/completions")
        slow = attached(project, url, url)
        done = slow.run("certify", "slo.toml", "--out", "run")

    assert ExitCode.UNPROVEN == done.code
    assert "cannot serve" in done.err
    assert "timeout: " in done.err
    assert "start_timeout" in done.err


def test_counters_that_never_come_cost_their_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A /metrics that never responds gives no claims, and is not requested again."""
    monkeypatch.setattr(control_requests, "LIMIT_S", 0.2)
    over, requests = threading.Event(), count(1)

    def never(_: int) -> str:
        next(requests)
        over.wait(20)
        return ""

    protocol = PROTOCOLS["vllm"]._replace(documents={"/metrics": never})
    with RecordedServer(protocol, drafting=True) as server:
        which = setting(draft="mtp")
        with opened("vllm", url=server.url).start(which) as running:
            answers_given = [running.answer(make_request("prose", which)) for _ in range(3)]
        over.set()

    assert [(None, None)] * 3 == [(answer.fault, answer.claims.rounds) for answer in answers_given]
    assert 2 == next(requests)


def test_a_server_is_measured_whose_health_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers requests is served by, whatever it does at its other paths."""
    monkeypatch.setattr(control_requests, "LIMIT_S", 0.1)
    over = threading.Event()
    protocol = PROTOCOLS["openai"]._replace(documents={"/v1/models": lambda _: over.wait(20)})
    with RecordedServer(protocol, drafting=True) as server:
        with opened("openai", url=server.url, plain_url=server.url).start(FAST) as running:
            answer = running.answer(make_request("prose", FAST))
        over.set()

    assert None is answer.fault


# The time of a run


def test_a_run_ends_after_its_max_duration_and_continues(project: ProjectFolder) -> None:
    """When its time is over a run ends with code 3, records no answer that it cut off, and continues."""
    slow = {"timeout": "60 s", "deadline": "60 s"}

    def drip_while_time_ends() -> Pieces:
        yield TOKEN
        for timer in threading.enumerate():
            if isinstance(timer, threading.Timer):
                timer.function(*timer.args)  # as if the whole time had passed, however fast this machine is
        yield from drip()

    with (
        RecordedServer(turning(drip_while_time_ends, after=5, until=6), drafting=True) as fast,
        RecordedServer(PROTOCOLS["openai"], drafting=False) as plain,
    ):
        attached_project = attached(project, fast.url, plain.url, subject=slow, max_duration="600 s")
        first = attached_project.run("certify", "slo.toml", "--out", "run")
        answers_before = answers(project)
        second = attached_project.run("certify", "slo.toml", "--out", "run", "--resume")

    assert ExitCode.UNPROVEN == first.code, first.err
    assert "max_duration of 600 s" in first.err
    assert "--resume" in first.err
    assert answers_before
    assert answers_before == answers(project)[: len(answers_before)]
    assert "max_duration" not in second.err
    assert [] == faults(project)
    assert (project.path / "run" / "verdict.json").is_file()


# Our own limits


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Return the address of a server in a process of its own, which has descriptors of its own."""
    program = (
        "from tests.builders.servers import PROTOCOLS, RecordedServer\n"
        "with RecordedServer(PROTOCOLS['openai'], drafting=True) as server:\n"
        "    print(server.url, flush=True)\n"
        "    input()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


def test_too_few_descriptors_end_a_run_that_can_be_resumed(project: ProjectFolder, elsewhere: str) -> None:
    """Descriptors for a few of 32 streams: code 4 and no fault of the server; --resume keeps all."""
    many_streams = attached(
        project,
        elsewhere,
        elsewhere,
        subject={"timeout": "20 s", "deadline": "20 s", "start_timeout": "20 s"},
        soak={"duration": "0.5 s", "max_duration": "1 s", "concurrency": 32},
    )
    with few_descriptors(14):
        short = many_streams.run("certify", "slo.toml", "--out", "run")
    answers_before = answers(project)
    wrong = faults(project)
    resumed = many_streams.run("certify", "slo.toml", "--out", "run", "--resume")

    assert ExitCode.INTERNAL_ERROR == short.code, short.err
    assert "files and connections" in short.err
    assert "ulimit -n" in short.err
    assert "bug" not in short.err
    assert [] == wrong
    assert answers_before == answers(project)[: len(answers_before)]
    assert resumed.code in {ExitCode.OK, ExitCode.OBJECTIVE_FAILED, ExitCode.UNPROVEN}, resumed.err


def test_no_further_thread_is_our_limit() -> None:
    """Where the system starts no more threads, the streams of a request are an error of ours with what to raise."""
    before = threading.stack_size(1 << 46)  # no address space has room for such a thread
    try:
        with pytest.raises(OwnLimitError) as reached:
            start_thread(threading.Thread(target=print))
    finally:
        threading.stack_size(before)

    assert "ulimit -u" in reached.value.hint


@pytest.mark.parametrize("start", ["server", "worker"])
def test_a_process_without_descriptors_is_our_limit(start: str, tmp_path: Path) -> None:
    """A server or worker that cannot be started for our own limit is an error of ours, not of the input."""
    starts: dict[str, Callable[..., object]] = {
        "server": ServerProcess,
        "worker": partial(WorkerProcess, folder=tmp_path, with_package=False),
    }

    with few_descriptors(3), pytest.raises(OwnLimitError, match="may not open more files"):
        starts[start]([sys.executable, "-V"], log=tmp_path / "log")


# The last words of a server

SHOUT = "\x1b[31m::set-output name=x::y\n\x1b]0;title\x07 ::error::z\nplain ##[add-path]/evil\r\n\x00\x9b2J last word\n"


def test_the_last_words_of_a_server_are_quoted(tmp_path: Path) -> None:
    """What a dying server printed is quoted line by line, without control characters and commands of CI."""
    program = f"import sys; sys.stderr.write({SHOUT!r}); sys.exit(3)"

    with pytest.raises(InputError) as refused:
        launch(
            [sys.executable, "-c", program], log=tmp_path / "log", ready=lambda _: False, start_timeout=20, install=""
        )

    head, *lines = refused.value.hint.split("\n")
    assert head == "last lines of log:"
    assert len(lines) == 4
    assert all(line.startswith("  | ") and line.isprintable() and "##[" not in line for line in lines)
    assert lines[-1].endswith("last word")
