"""The size of a run: how much memory its records take, while they are made and when they are judged."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.records import Answer, Generation, HostSample, Reading, Role, Rounds
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.system.record_files import ANSWERS, SAMPLES, RecordWriter, read_records
from tests.builders.slo import FAST

TOKENS = 100


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
