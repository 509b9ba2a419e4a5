"""Values in a stored run that nobody's clock or counter writes: every command that reads it ends as documented."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.cli import main
from gatekeeper.core.system.run_directory import RunDirectory

RUN = Path(__file__).parents[1] / "golden" / "runs" / "promoted"
TIME = re.compile(rb'"at":\s*"[^"]*"')
COMMANDS = ("judge", "report --format html", "history")


def times(written: bytes) -> Callable[[bytes], bytes]:
    return lambda content: TIME.sub(b'"at":"' + written + b'"', content)


def every_other(written: bytes) -> Callable[[bytes], bytes]:
    """Change the times of every second line: those of the others are compared with them."""

    def change(content: bytes) -> bytes:
        lines = content.split(b"\n")
        return b"\n".join(times(written)(line) if number % 2 else line for number, line in enumerate(lines))

    return change


def numbers(pattern: bytes, digits: bytes, count: int = 1) -> Callable[[bytes], bytes]:
    """Replace the number behind a key, the first one alone or all (0)."""
    return lambda content: re.sub(rb'"(' + pattern + rb')":[\d.]+', rb'"\1":' + digits, content, count=count)


def deep(before: bytes) -> Callable[[bytes], bytes]:
    return lambda content: before + b"[" * 1500 + content


NESTED, BITS, LONG = b'{"schema": 1, "x": ', b"18446744073709551615", b"9" * 400
ODD: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "times without a zone": ("host.jsonl", every_other(b"2026-01-01T00:22:28.000000")),
    "times of events without a zone": ("events.jsonl", every_other(b"2026-01-01T00:22:28.000000")),
    "times in the year 9999": ("host.jsonl", every_other(b"9999-12-31T23:59:59-23:59")),
    "times of events in the year 1": ("events.jsonl", every_other(b"0001-01-01T00:00:00+23:59")),
    "times that are none": ("events.jsonl", times(b"now")),
    "an early stop without a reason": (
        "events.jsonl", lambda content: re.sub(rb'"kind":"\w+"', b'"kind":"stopped"', content, count=1)
    ),
    "times of answers that are none": ("soak-1.jsonl", times(b"[]")),
    "a monotonic time of 30 digits": ("soak-1.jsonl", numbers(b"sent_ns", b"9" * 30)),
    "a time of 400 digits when it was sent": ("soak-1.jsonl", numbers(b"sent_ns", LONG)),
    "a time of 400 digits when it ended": ("soak-1.jsonl", numbers(b"ended_ns", LONG)),
    "a count of tokens of 400 digits": ("soak-1.jsonl", numbers(b"output_tokens", LONG)),
    "times of 64 bits": ("soak-1.jsonl", numbers(b"sent_ns|ended_ns", BITS, 0)),
    "counts of 64 bits": ("soak-1.jsonl", numbers(b"output_tokens|drafted", BITS, 0)),
    "a host value of 400 digits": ("host.jsonl", numbers(b"value", LONG)),
    "a plan nested 1,500 deep": ("plan.json", deep(NESTED)),
    "a verdict nested 1,500 deep": ("verdict.json", deep(NESTED)),
    "a policy nested 1,500 deep": ("policy.toml", deep(b"x = ")),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_value_in_a_run_is_no_traceback(
    odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands on a run with an odd value and new checksums end with a documented exit code."""
    name, change = ODD[odd]
    run = tmp_path / "runs" / "odd"
    shutil.copytree(RUN, run)
    before = (run / name).read_bytes()
    (run / name).write_bytes(change(before))
    assert before != (run / name).read_bytes()
    RunDirectory(run).write_checksums()
    monkeypatch.chdir(tmp_path)

    for command in COMMANDS:
        word, *rest = command.split()
        code = main.run([word, "runs" if word == "history" else "runs/odd", *rest])

        captured = capsys.readouterr()
        assert (code in {0, 1, 2, 3}, False) == (True, "Traceback" in captured.err), (command, captured.err)
