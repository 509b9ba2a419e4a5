"""The worker backend: programs that greet, answer and fail in every way."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gatekeeper.backends.worker_backend.running_worker import Worker
from gatekeeper.backends.worker_backend.worker_backend import WorkerBackend
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, setting
from tests.backends.conftest import DRAFTING, MODELS, PLAIN, ROOT, SharedBackend, canary, make_request
from tests.builders.golden_words import says
from tests.builders.waiting import until

HERE = Path(__file__).parents[1]
BAD, EXAMPLE = HERE / "bad_worker.py", HERE.parents[1] / "integrations" / "example_worker.py"
PLACES = ("{target}", "{draft}")


def worker(folder: Path, *words: str, **more: Any) -> WorkerBackend:
    """Open the worker backend on a Python program and its arguments."""
    backend = SharedBackend("worker", folder, command=[sys.executable, *words, *PLACES], **more).backend
    assert isinstance(backend, WorkerBackend)
    return backend


@pytest.fixture
def bad(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(mode: str, **more: Any) -> Worker:
        started.append(worker(tmp_path, str(BAD), mode, **more).start(DRAFTING))
        return started[-1]

    yield start
    for system in started:
        system.close()


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with worker(tmp_path_factory.mktemp("echo"), str(EXAMPLE)).start(DRAFTING) as system:
        yield system


def test_a_worker_answers(echo: Worker) -> None:
    """A worker's line becomes an answer: times, tokens, text, rounds; what it leaves out is None, never 0."""
    words = canary("prose").messages[-1]["content"].split()

    answer = echo.answer(make_request("prose", DRAFTING))

    rounds = -(-len(words) // 5)
    assert (None, " ".join(words), "stop") == (answer.fault, answer.text, answer.finish)
    assert [1] * len(words) == [arrival.tokens for arrival in answer.arrivals]
    assert answer.rounds is not None
    assert (rounds, rounds * 4) == (answer.rounds.rounds, answer.rounds.drafted)
    assert (None, None, None) == (answer.prompt_tokens, answer.memory_active, answer.memory_peak)
    times = [answer.sent_ns, *(arrival.at_ns for arrival in answer.arrivals), answer.ended_ns]
    assert sorted(times) == times


OUT_OF_STEP = {
    "wrong id": "out of step: answer 2 during request 1",
    "true id": "out of step: answer True during request 1",
    "begins twice": "out of step: begin 1",
    "no line of ours": "out of step: a line that is neither begin nor answer, with progress",
    "nan": "garbage on stdout (not JSON: expected value at column 29)",
    "garbage": "garbage on stdout",
    "no object": "garbage on stdout (not a JSON object)",
    "deep": "garbage on stdout",
    "half": "worker died: exit code 0, in the middle of a line",
    "long": "garbage on stdout: a line longer than 8 MiB",
    "killed": "worker died: signal 9",
    "killed unbegun": "worker died: signal 9 (it had not begun)",
    "exits": "worker died: exit code 3 (RuntimeError: out of pages)",
    "closes stdout": "worker closed its output; gatekeeper ended it",
    "half a character": "garbage on stdout (not JSON: unexpected end of hex escape",
    "401 digits tokens": "garbage on stdout (a whole number has more than 64 bits)",
    "infinite ids": "garbage on stdout (",
    "shouts": "worker died: exit code 3 ([31m::set-output name=x::y # #[command]rm)",
}


@pytest.mark.parametrize("mode", OUT_OF_STEP)
def test_a_broken_worker_is_ended(bad: Callable[..., Worker], mode: str) -> None:
    """A worker that dies or is out of step leaves a fault and no process; later requests are faults too."""
    system = bad(mode)

    first = system.answer(make_request("list", PLAIN))
    second = system.answer(make_request("list", PLAIN))

    assert first.fault is not None
    assert first.fault.startswith(OUT_OF_STEP[mode])
    assert second.fault is not None
    assert not system.alive()
    assert not psutil.pid_exists(system.pids()[0])


UNTRUE = {
    "backwards": "times out of order: arrival 2 is 0.000001 s before arrival 1",
    "before the request": "times out of order: arrival 1 is",
    "in the future": "times out of order: ended_ns is",
    "fractions": "invalid arrival",
    "nothing counted": "arrival of 0 tokens; allowed: 1 or more, null for unknown",
    "miscounted": "output_tokens is 3, but its arrivals hold 2",
    "more than drafted": "impossible rounds",
    "negative": "drafted is -1",
    "half a count": "rounds needs the counts rounds, drafted and accepted",
    "drafts plainly": "drafted 1 tokens for a plain request",
    "odd finish": "finish is 'eos'; allowed: stop, length, tool_calls",
    "odd call": "a tool call needs a function with name and arguments, both strings",
    "its own fault": "out of memory",
    "64 bits tokens": "output_tokens is 18446744073709551615",
    "64 bits ids": "arrival with token id 18446744073709551615",
}


@pytest.mark.parametrize("mode", UNTRUE)
def test_an_untrue_answer_is_a_fault(bad: Callable[..., Worker], mode: str) -> None:
    """A complete line that contradicts itself or our clock is a fault, and none of its numbers is kept."""
    system = bad(mode)

    answer = system.answer(make_request("list", PLAIN))

    assert answer.fault is not None
    assert answer.fault.startswith(UNTRUE[mode])
    assert (None, None) == (answer.rounds, answer.output_tokens)
    assert system.alive()


def test_what_is_left_out_is_unknown(bad: Callable[..., Worker]) -> None:
    """In an answer line without fields everything is unknown; it is not an answer of 0 tokens."""
    answer = bad("blind").answer(make_request("list", DRAFTING))

    assert Answer(answer.sent_ns, answer.ended_ns) == answer


@pytest.mark.parametrize(("mode", "words"), [("hangs", 0), ("deaf", 100_000)])
def test_silence_is_a_timeout(bad: Callable[..., Worker], mode: str, words: int) -> None:
    """A worker without a heartbeat, or one that does not read a long request, is ended after one time limit."""
    system = bad(mode, timeout=0.3)
    request = make_request("list", PLAIN)
    long = request.canary.model_copy(update={"messages": ({"role": "user", "content": "word " * (words or 1)},)})

    answer = system.answer(type(request)(long, PLAIN, request.sampling))

    assert answer.fault is not None
    assert answer.fault.startswith("timeout")
    assert not system.alive()


@pytest.mark.parametrize("mode", ["drips", "beats"])
def test_an_answer_that_never_ends_is_over_at_its_deadline(bad: Callable[..., Worker], mode: str) -> None:
    """A worker that writes a line without an end, or only its heartbeat, is ended at the deadline."""
    system = bad(mode, timeout=60, deadline=0.3)

    answer = system.answer(make_request("list", PLAIN))

    says("backends", "an answer that never ends is over at its deadline", answer.fault)
    assert not system.alive()


@pytest.mark.slow
def test_a_heartbeat_prolongs_the_limit(tmp_path: Path) -> None:
    """A worker that counts on its shared page may take longer than the time limit."""
    program = tmp_path / "slow.py"
    program.write_text(
        "import json, mmap, os, sys, time\n"
        "page = mmap.mmap(int(os.environ['GATEKEEPER_BEAT']), mmap.PAGESIZE)\n"
        "print(json.dumps({'gatekeeper': 1, 'name': 'slow', 'sees': ['plain']}), flush=True)\n"
        "print(json.dumps({'ready': True}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    for count in range(25):\n"
        "        time.sleep(0.1)\n"
        "        page[0] = count + 1\n"
        "    print(json.dumps({'answer': json.loads(line)['ask']}), flush=True)\n"
    )
    with worker(tmp_path, str(program), timeout=2.0).start(DRAFTING) as system:
        answer = system.answer(make_request("list", DRAFTING))

    assert answer.fault is None
    assert answer.ended_ns - answer.sent_ns > 2.4e9


REFUSED = {
    "dies at once": ("exit code 3", "no weights here"),
    "babbles": ("did not greet: garbage on stdout", "gatekeeper explain worker-protocol"),
    "old": ("uses version 2 of the worker protocol, this gatekeeper uses 1", "update the worker"),
    "nameless": ("has no name", "gatekeeper explain worker-protocol"),
    "unnumbered": ("did not greet", "gatekeeper explain worker-protocol"),
    "clairvoyant": ("unknown word 'arrival'", "did you mean 'arrivals'?"),
    "unturnable": ("unknown word 'num_draft_token'", "did you mean 'num_draft_tokens'?"),
    "shares without plain": ('but not "plain" in sees', "gatekeeper explain worker-protocol"),
    "sorry": ("no module named wonder", "pip install wonder"),
    "mute": ("did not greet within start_timeout = 0.5 s", "raise start_timeout"),
    "greets for ever": ("did not greet within start_timeout = 0.5 s", "raise start_timeout"),
}


@pytest.mark.parametrize("mode", REFUSED)
def test_one_that_does_not_greet_is_an_input_error(tmp_path: Path, mode: str) -> None:
    """A program that is not a worker is an error before anything is run, with what to do."""
    message, hint = REFUSED[mode]
    before = {child.pid for child in psutil.Process().children()}

    with pytest.raises(InputError) as caught:
        worker(tmp_path, str(BAD), mode, **({"start_timeout": 0.5} if "0.5 s" in message else {}))

    assert message in caught.value.message
    assert hint in caught.value.hint
    assert 2 == caught.value.exit_code
    assert before >= {child.pid for child in psutil.Process().children()}


@pytest.mark.parametrize(
    ("mode", "message"),
    [("cannot load", "little-target: bad cannot load this model"), ("never ready", "its ready line")],
)
def test_one_that_cannot_load_is_an_input_error(tmp_path: Path, mode: str, message: str) -> None:
    """A worker that cannot load a model after its greeting is an error that names the model; no process is left."""
    with pytest.raises(InputError, match=message):
        worker(tmp_path, str(BAD), mode).start(DRAFTING)


def test_a_worker_that_changes_is_refused(tmp_path: Path) -> None:
    """A program whose greeting has changed since the run was frozen is not measured."""
    program = tmp_path / "worker.py"
    shutil.copy(EXAMPLE, program)
    backend = worker(tmp_path, "worker.py")
    program.write_text(EXAMPLE.read_text().replace("versions={}", 'versions={"echo": "2"}'))

    with pytest.raises(InputError, match="before the run"):
        backend.start(DRAFTING)


def test_the_manifest_pins_the_program(tmp_path: Path) -> None:
    """The manifest gets the greeting's versions, the commands, and the digest of each file they name."""
    shutil.copy(EXAMPLE, tmp_path / "worker.py")

    versions = worker(tmp_path, "worker.py").versions()

    digest = hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    assert ("echo", digest) == (versions["worker"], versions["file worker.py"])
    says("backends", "the manifest pins the program", versions["command"], executable=sys.executable)


def test_plain_decoding_may_have_its_own_program(tmp_path: Path) -> None:
    """With a plain_command each arm has its process, and only what both show can be compared."""
    backend = worker(tmp_path, str(EXAMPLE), plain_command=[sys.executable, str(BAD), "blind", "{target}"])
    with backend.start(PLAIN) as plain, backend.start(DRAFTING) as drafting:
        with pytest.raises(GatekeeperError, match="little-draft"):
            plain.answer(make_request("list", DRAFTING))
        with pytest.raises(GatekeeperError, match="plain"):
            drafting.answer(make_request("list", PLAIN))

    assert not backend.shares_process
    expected = Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.ROUNDS | Sight.MEMORY | Sight.PLAIN
    assert expected == backend.sight
    assert "plain worker" in backend.versions()


def test_places_are_filled(tmp_path: Path) -> None:
    """{target} and {draft} become folders; without a draft its argument is left out."""
    program = tmp_path / "told.py"
    program.write_text(
        "import json, os, sys\n"
        "hello = {'gatekeeper': 1, 'name': 'told', 'sees': ['plain'], 'shares_process': False}\n"
        "print(json.dumps(hello), flush=True)\n"
        "print(json.dumps({'ready': True}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    text = json.dumps([os.getcwd(), *sys.argv[1:]])\n"
        "    print(json.dumps({'answer': json.loads(line)['ask'], 'text': text}), flush=True)\n"
    )
    backend = worker(tmp_path, "told.py", args=["--beam", "3"])
    argument_lists = []
    for which in (DRAFTING, PLAIN):
        with backend.start(which) as system:
            argument_lists.append(json.loads(system.answer(make_request("list", which)).text))

    folder, target, draft = str(tmp_path), str(MODELS["little-target"]), str(MODELS["little-draft"])
    assert [[folder, target, draft, "--beam", "3"], [folder, target, "--beam", "3"]] == argument_lists


def test_the_setting_reaches_the_worker(tmp_path: Path) -> None:
    """Chosen knobs are sent while drafting, conditions always; a plain request names no draft and no length."""
    program = tmp_path / "mirror.py"
    program.write_text(
        "import json, sys\n"
        "print(json.dumps({'gatekeeper': 1, 'name': 'm', 'sees': ['plain'], 'shares_process': True}), flush=True)\n"
        "print(json.dumps({'ready': True}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps({'answer': json.loads(line)['ask'], 'text': line}), flush=True)\n"
    )
    knobs = setting(draft="little-draft", block_size=8, num_draft_tokens=None, temperature=0.5, thinking=False)
    with worker(tmp_path, "mirror.py").start(DRAFTING) as system:
        drafting, plain = (json.loads(system.answer(make_request("list", which)).text) for which in (knobs, PLAIN))

    assert {"draft": "little-draft", "block_size": 8} == drafting["setting"]
    assert (0.5, False, 96) == (drafting["temperature"], drafting["thinking"], drafting["max_tokens"])
    assert {"draft": None} == plain["setting"]


def test_its_children_go_with_it(tmp_path: Path) -> None:
    """Child processes of a worker are ended with it, as behind a shell."""
    script = tmp_path / "shell.sh"
    script.write_text(f'#!/bin/sh\n"{sys.executable}" "{EXAMPLE}" "$@"\nexit 0\n')
    script.chmod(0o755)
    with SharedBackend("worker", tmp_path, command=["./shell.sh", *PLACES]).backend.start(DRAFTING) as system:
        answer = system.answer(make_request("list", DRAFTING))
        family = [psutil.Process(system.pids()[0]), *psutil.Process(system.pids()[0]).children(recursive=True)]

    assert answer.fault is None
    assert len(family) > 1
    # A process that was killed is gone when the kernel comes to it.
    until(
        lambda: all(not process.is_running() or process.status() == psutil.STATUS_ZOMBIE for process in family),
        "all have ended",
    )


@pytest.mark.parametrize("leave", ["os.setsid()", "os.setpgid(0, 0)"])
def test_what_forks_away_from_a_worker_ends_with_it(tmp_path: Path, leave: str) -> None:
    """A process that forked twice, into a session or group of its own, is ended too: it would hold memory."""
    script = tmp_path / "daemon.py"
    script.write_text(
        f"#!{sys.executable}\nimport os, sys, time\n"
        f"if os.fork() == 0:\n    {leave}\n    if os.fork() == 0:\n"
        "        open('pid', 'w').write(str(os.getpid()))\n        os.closerange(0, 99)\n        time.sleep(600)\n"
        f"    os._exit(0)\nos.wait()\nos.execv(sys.executable, [sys.executable, {str(EXAMPLE)!r}, *sys.argv[1:]])\n"
    )
    script.chmod(0o755)
    with SharedBackend("worker", tmp_path, command=["./daemon.py", *PLACES]).backend.start(DRAFTING):
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        daemon = psutil.Process(int((tmp_path / "pid").read_text()))

    until(lambda: not daemon.is_running() or daemon.status() == psutil.STATUS_ZOMBIE)


def test_our_workers_need_none_of_our_dependencies() -> None:
    """The adapters start in an environment that has their package and not ours."""
    program = (
        "import sys\n"
        "class NotInstalled:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] in {'pydantic', 'numpy', 'click', 'jsonschema'}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NotInstalled())\n"
        "import gatekeeper.backends.workers.zlab_dflash, gatekeeper.backends.workers.redrafter\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)

    assert (0, "") == (ran.returncode, ran.stderr)
