"""The size of a run: how much memory its records take, while they are made and when they are judged."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.records import Answer, Event, Generation, HostSample, Reading, Role, Rounds
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.system.record_files import ANSWERS, SAMPLES, RecordWriter, read_records
from gatekeeper.run.certify import certify
from gatekeeper.run.open_run import RunRequest
from tests.builders.slo import FAST

TOKENS = 100
SLO = """\
schema = 1
name = "long"
why = "Many answers in little virtual time."
[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"
[sampling]
max_tokens = 20
[[workload]]
name = "chat"
canaries = "chat.jsonl"
[sweep]
repeats = 1
budget = 6
num_draft_tokens = [4]
[soak]
duration = "{seconds} s"
[[objective]]
metric = "error_rate"
at_most = 0
why = "It reads every answer."
"""
SCRIPT = {"prefill": "5 ms", "token": "1 ms", "draft_token": "0.2 ms", "acceptance": 0.9, "tokens": 20}


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Yield what returns the bytes that Python has allocated since, and still holds."""
    tracemalloc.start()

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    try:
        yield held
    finally:
        tracemalloc.stop()


def answer(number: int) -> Generation:
    """Return one greedy answer of a hundred tokens to one of ten canaries, at its own time."""
    sent = number * 10**9
    canary = number % 10
    arrivals = tuple(
        Arrival(sent + 10**7 * (at + 1), 1, (at + number) % 5 > 0, 7 * canary + at) for at in range(TOKENS)
    )
    reply = Answer(
        sent,
        sent + 10**9,
        arrivals,
        text=f"line {canary} " * 40,
        finish="stop",
        prompt_tokens=9,
        output_tokens=TOKENS,
        rounds=Rounds(20, 80 + number % 3, 80),
    )
    name = f"chat-{canary:03}"
    return Generation(
        "soak-1", f"0-{number}", "chat", name, "candidate", FAST, Role.MEASURED, 0, "", 1, reply, at="now"
    )


def sample(number: int) -> HostSample:
    """Return one sample with thirty readings, two of three with a number, as on a Mac."""
    numbers = {f"value_{at}": Reading(1e9 + number * at, "B", "vm_stat", "ok", 0.01) for at in range(20)}
    absent = {f"other_{at}": Reading(None, "B", "vm_stat", "absent", 0.01) for at in range(10)}
    at = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    return HostSample(at, number * 10**9, numbers | absent, "soak-1")


def write(path: Path, kind: Any, records: Iterator[Any]) -> RecordWriter[Any]:
    file = RecordWriter(path, kind)
    for record in records:
        file(record)
    file.finish()
    return file


@pytest.mark.parametrize(
    ("kind", "make", "most"),
    [
        # Four bytes for the time of a token and one for its flag, and the record itself.
        pytest.param(ANSWERS, answer, 5 * TOKENS + 1500, id="an answer of a hundred tokens"),
        # Eight bytes for each number and each age.
        pytest.param(SAMPLES, sample, 8 * (20 + 30) + 200, id="a host sample of thirty readings"),
    ],
)
def test_a_record_that_is_read_takes_little_memory(
    tmp_path: Path, kind: Any, make: Callable[[int], Any], most: int
) -> None:
    """Each further record of a file adds at most so many bytes to what judging holds of it."""
    bytes_held = {}
    for count in (100, 400):
        path = tmp_path / f"{count}.jsonl"
        write(path, kind, map(make, range(count)))
        with traced() as now:
            records = read_records(path, kind)
            bytes_held[count] = now()
            assert (count, None) == (len(records.records), records.trouble)

    assert (bytes_held[400] - bytes_held[100]) / 300 < most


@pytest.mark.parametrize(("kind", "make"), [(ANSWERS, answer), (SAMPLES, sample)], ids=["answers", "samples"])
def test_a_record_that_is_written_is_not_kept(tmp_path: Path, kind: Any, make: Callable[[int], Any]) -> None:
    """The writer of a record file holds as much after 300 records as after one."""
    file = RecordWriter(tmp_path / "records.jsonl", kind)
    file(make(0))
    with traced() as now:
        for number in range(1, 301):
            file(make(number % 10))
        grown = now()
    file.close()

    assert grown < 64_000


def soaked(folder: Path, seconds: int, script: dict[str, Any] = SCRIPT) -> tuple[int, int, int]:
    """Certify a scripted system; return the bytes held after the soak, the answers so far and the most held since."""
    folder.mkdir()
    (folder / "script.json").write_text(json.dumps(script))
    prompts = [{"id": f"c-{at}", "messages": [{"role": "user", "content": f"Say {at}."}]} for at in range(8)]
    (folder / "chat.jsonl").write_text("".join(f"{json.dumps(prompt)}\n" for prompt in prompts))
    (folder / "slo.toml").write_text(SLO.format(seconds=seconds))
    samples, answers = [], 0
    with traced() as bytes_held:

        def observe(event: Event) -> None:
            nonlocal answers
            answers += event.kind == "answer"
            if event.kind == "closing":
                samples.append((bytes_held(), answers))
                tracemalloc.reset_peak()

        certify(RunRequest(folder / "slo.toml", folder / "run", [observe]))
        return *samples[0], tracemalloc.get_traced_memory()[1]


@pytest.mark.nightly  # test_a_record_that_is_written_is_not_kept finds what grows with the answers
def test_a_longer_soak_takes_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the machine is measured, gatekeeper holds the same few megabytes, however many answers there were."""
    monkeypatch.setattr("gatekeeper.host.sampling.sampler.platform_sources", lambda *_: [])
    soaked(tmp_path / "first", 1)  # what is imported and remembered once counts for no length

    short, long = soaked(tmp_path / "short", 2), soaked(tmp_path / "long", 8)

    assert long[1] > 2 * short[1] > 100
    assert (long[0] - short[0]) / (long[1] - short[1]) < 100


@pytest.mark.nightly
def test_judging_and_the_report_take_little_memory_for_each_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further answer of a hundred tokens adds at most 4 kB to the most that is held from the end of the soak
    on.
    """
    monkeypatch.setattr("gatekeeper.host.sampling.sampler.platform_sources", lambda *_: [])
    monkeypatch.setitem(globals(), "SLO", SLO.replace("max_tokens = 20", f"max_tokens = {TOKENS}"))
    script = SCRIPT | {"tokens": TOKENS}
    soaked(tmp_path / "first", 1, script)

    short, long = soaked(tmp_path / "short", 20, script), soaked(tmp_path / "long", 80, script)

    assert long[1] - short[1] > 500
    assert (long[2] - short[2]) / (long[1] - short[1]) < 4000
