"""The relay of events as lines: what goes in comes out, and nothing of it decides."""

import os
from pathlib import Path

import pytest

from gatekeeper.core.records import Answer, Claims, Event, Generation, Role, Rounds, setting
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.system.environment_variables import GATEKEEPER_PROGRESS
from gatekeeper.run import events

MADE = Generation(
    trial="soak-1",
    key="candidate-0:json/json-001",
    workload="json",
    canary="json-001",
    arm="candidate",
    setting=setting(draft="small", num_draft_tokens=4, draft_p_min=0.5),
    role=Role.MEASURED,
    repeat=1,
    pair="p",
    concurrency=1,
    answer=Answer(
        10,
        20,
        (Arrival(12, 1, drafted=True, token_id=5), Arrival(13)),
        text="zwölf\n",
        tool_calls=({"function": {"name": "f", "arguments": "{}"}},),
        rounds=Rounds(1, 2, 1, (1, 1), (1, 0)),
        claims=Claims(drafted=3),
        memory_active=7,
    ),
)
EVENTS = [
    Event("2026-01-01T00:00:00.000000Z", "begin", {"segment": 0, "slo": "s", "run": "run"}),
    Event("2026-01-01T00:00:01.000000Z", "answer", {"generation": MADE, "answered": 1, "of": None}),
    Event("2026-01-01T00:00:02.000000Z", "stage", {"stage": "soak", "settings": {"json": {"draft": None}}}),
]


def test_events_come_out_as_they_went_in(tmp_path: Path) -> None:
    """
    Each event is one whole line, and a decoded answer is the record it was, to the token.
    """
    lines = events.Lines(tmp_path / "progress.jsonl")
    for event in EVENTS:
        lines(event)

    written = (tmp_path / "progress.jsonl").read_bytes().splitlines(keepends=True)

    assert EVENTS == [events.decode(line) for line in written]
    assert all(line.endswith(b"\n") for line in written)


@pytest.mark.parametrize("line", ["", "{", "[]", '{"at": 1}', '{"at":"a","kind":"answer","detail":{"generation":{}}}'])
def test_a_line_nobody_understands_is_no_event(line: str) -> None:
    """
    Another version's line is left out of the view; it never ends the run that is watched.
    """
    assert events.decode(line) is None


def test_a_disk_that_takes_no_more_ends_the_view_alone() -> None:
    """
    Where the lines cannot be written, the run continues without them.
    """
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    lines = events.Lines(Path("/dev/full"))

    for event in EVENTS:
        lines(event)

    assert lines._file is None


def test_lines_that_cannot_be_opened_end_the_view_alone(tmp_path: Path) -> None:
    """
    A file that cannot be opened costs the view, never the run.
    """
    lines = events.Lines(tmp_path / "nowhere" / "lines")

    lines(EVENTS[0])

    assert [] == list(tmp_path.iterdir())


def test_the_wish_is_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The variable is taken out of the environment, so that no subject writes into the lines of its run.
    """
    monkeypatch.setenv(GATEKEEPER_PROGRESS, str(tmp_path / "lines"))

    assert events.relay_observer() is not None
    assert GATEKEEPER_PROGRESS not in os.environ
    assert events.relay_observer() is None
