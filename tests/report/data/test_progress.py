"""The progress of a run, from its events alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from pydantic import TypeAdapter

from gatekeeper.core.clock import stamp
from gatekeeper.core.records import Answer, Event, EventKind, Generation, Reading, Role, Rounds, setting
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.report.data.progress import Gauge, Progress, Snapshot

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 10**9
DRAFTING = setting(draft="org/heavy", num_draft_tokens=4)
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def event(second: float, kind: str, **detail: Any) -> Event:
    return Event(stamp(BEGUN + timedelta(seconds=second)), EventKind(kind), detail)


def begin(second: float = 0.0, **more: Any) -> Event:
    expected = {"sweep": 100.0, "soak": 600.0, "closing": 20.0, "near_ties": 10.0, "warm_cache": 40.0}
    detail = {"segment": 0, "slo": "made", "run": "runs/1", "realtime": True, "workloads": ["json", "chat"]}
    return event(second, "begin", **detail | {"expected": expected} | more)


def generation(workload: str = "json", arm: str = "candidate", speed: float = 100.0, **more: Any) -> Generation:
    rounds = Rounds(rounds=10, drafted=40, accepted=30) if arm == "candidate" else None
    answer = Answer(0, SECOND, output_tokens=round(speed), rounds=rounds, fault=more.pop("fault", None))
    knobs = DRAFTING if arm == "candidate" else setting(draft=None)
    trial = "baseline" if arm == "plain" else "default"
    role = more.pop("role", Role.MEASURED)
    return Generation(trial, "k", workload, "c", arm, knobs, role, 0, "p", 1, answer)


def swept(count: int, each: float = 2.0, of: int = 100) -> list[Event]:
    """A sweep that begins at second 0 and has *count* answers, one in *each* seconds."""
    arms = ("plain", "candidate")
    return [
        begin(),
        event(0, "stage", stage="sweep", settings=4),
        *(
            event(each * number, "answer", generation=generation(arm=arms[number % 2]), answered=number, of=of)
            for number in range(1, count + 1)
        ),
    ]


def told(*events: Event, seconds_later: float = 0.0) -> Snapshot:
    """Return the snapshot after *events*, taken in all at once, and after more seconds of this machine."""
    now = [1000.0]
    progress = Progress(lambda: now[0])
    for progress_event in events:
        progress.update(progress_event)
    now[0] += seconds_later
    return progress.snapshot()


def test_answers_of_a_soak_are_counted_once() -> None:
    """Those of the plain block before it count in its rows and in its sum; a part with a number to reach says that."""
    block = event(0, "block", soak="soak-1", block=1, answers=2)
    plain = [event(number, "answer", generation=generation(arm="plain")) for number in (1, 2)]
    drafted = event(4, "answer", generation=generation())
    started = [begin(), event(0, "stage", stage="soak", soak="soak-1"), block, *plain]

    in_block = told(*started[:-1])
    in_soak = told(*started, event(3, "soaking", soak="soak-1", seconds=60), drafted)

    assert ("plain block 1", 1, 2) == (in_block.part, in_block.answered, in_block.of)
    assert ("", 3, None) == (in_soak.part, in_soak.answered, in_soak.of)
    assert in_soak.answered == sum(row.answered for row in in_soak.rows)


def test_the_time_that_is_left_counts_every_stage() -> None:
    """Ten answers of a hundred took 20 s, twice as long as forecast: 180 s of sweep, 600 s of soak, and twice 70 s
    beside.
    """
    snapshot = told(*swept(10))

    assert (180.0, 180 + 600 + 2 * 70) == (snapshot.left, snapshot.run_left)
    assert (10, 100, 0.1) == (snapshot.answered, snapshot.of, snapshot.share)


LATE = event(5, "sample", values={})
SOAK = [begin(), event(0, "stage", stage="soak", soak="soak-1"), event(0, "soaking", soak="soak-1", seconds=60.0)]
VIRTUAL = [begin(realtime=False), *SOAK[1:]]
RESUMED = [
    begin(segment=1),
    event(0, "stage", stage="sweep", settings=4),
    *(event(2 * n, "answer", generation=generation(), answered=50 + n, of=100) for n in range(1, 11)),
]


def forecast(seconds: float) -> list[Event]:
    """Return a soak of 60 s to 300 s, forecast to last so many *seconds*."""
    stage = event(0, "stage", stage="soak", soak="soak-1", expected={"soak": seconds})
    return [begin(), stage, event(0, "soaking", soak="soak-1", seconds=60.0, most=300.0)]


@pytest.mark.parametrize(
    ("events", "seconds_later", "left", "over", "share"),
    [
        pytest.param(swept(2), 0, None, None, 0.02, id="two answers, the slowest ones, are no pace"),
        pytest.param(RESUMED, 0, 80, None, 0.6, id="a resumed sweep is paced by what it sent itself"),
        pytest.param([*swept(10), LATE], 0, 180, None, 0.1, id="a clock that is set back takes nothing away"),
        pytest.param([*SOAK, LATE], 7, 48, None, 0.2, id="between two events the clock of this machine goes on"),
        pytest.param(VIRTUAL, 30, 60, None, 0, id="a virtual clock does not tick"),
        pytest.param(forecast(120), 60, 60, None, 0.5, id="a soak that needs more than its shortest duration"),
        pytest.param(forecast(60), 61, None, 300, 1, id="past its forecast the longest duration is shown"),
    ],
)
def test_what_is_left(
    events: list[Event], seconds_later: float, left: float | None, over: float | None, share: float
) -> None:
    """Of a sweep by the pace of its answers, of a soak by its duration; where nothing foretells it, it is not shown."""
    snapshot = told(*events, seconds_later=seconds_later)

    assert (left, over, share) == (snapshot.left, snapshot.over, snapshot.share)


def test_a_stage_begins_with_figures_of_its_own() -> None:
    """Speeds of the sweep's settings are not shown for the soak's; the setting is known before the first answer."""
    chosen = {"json": dict(DRAFTING), "chat": {"draft": None}}

    rows = told(*swept(10), event(30, "stage", stage="soak", soak="soak-1", settings=chosen)).rows

    assert [("json", "heavy, draft length 4", None, 0), ("chat", "plain decoding", None, 0)] == [
        (row.workload, row.setting, row.drafting, row.answered) for row in rows
    ]


def stream(*gaps_ns: int, first: int = 1) -> Generation:
    """Return a plain answer whose first burst comes after two seconds with *first* tokens, the others one by one."""
    places = accumulate(gaps_ns, initial=2 * SECOND)
    arrivals = [Arrival(at_ns, first if not number else 1) for number, at_ns in enumerate(places)]
    answer = Answer(0, 4 * SECOND, arrivals, output_tokens=first + len(gaps_ns))
    return replace(generation(arm="plain"), answer=answer)


@pytest.mark.parametrize(
    ("answers", "figures"),
    [
        pytest.param(
            [generation(arm="plain", speed=50), generation(), generation(speed=1, role=Role.WARMUP)],
            (50, 100, 0.75, 2, 0),
            id="each under its arm; a warm-up counts for nothing",
        ),
        pytest.param([stream(*[SECOND // 10] * 10, first=5)], (10, None, None, 1, 0), id="the speed is of decoding"),
        pytest.param(
            [stream(*[10_000_000] * 40), stream(*[1_000] * 40)],
            (pytest.approx(100), None, None, 2, 1),
            id="an answer that was read at once shows no speed, and is counted",
        ),
    ],
)
def test_the_figures_of_a_row(answers: list[Generation], figures: tuple[object, ...]) -> None:
    """Speeds and acceptance are of the answers that can show them."""
    row = told(begin(), *(event(1, "answer", generation=answer) for answer in answers)).rows[0]

    assert figures == (row.plain, row.drafting, row.acceptance, row.answered, row.read_at_once)


def test_speeds_beside_a_ratio_are_of_its_answers() -> None:
    """Long answers that only one arm has so far are in no ratio, and so in neither speed: 100 over 50 is 2x."""
    answers = [
        replace(generation(arm=arm, speed=speed), canary=f"c{number}")
        for number in range(5)
        for arm, speed in (("plain", 50), ("candidate", 100))
    ]
    answers += [replace(generation(arm="plain", speed=400), canary=f"alone{number}") for number in range(9)]

    row = told(begin(), *(event(1, "answer", generation=answer) for answer in answers)).rows[0]

    assert row.ratio is not None
    assert pytest.approx((50.0, 100.0, 2.0)) == (row.plain, row.drafting, row.ratio[0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {
                "memory_headroom": Reading(5.12e9, "B", "made", "ok"),
                "memory_pressure_level": Reading(2.0, "1", "made", "ok"),
            },
            (Gauge("5.12 GB free"), Gauge("pressure warning", alarming=True)),
        ),
        (
            {"memory_pressure_level": Reading(None, "1", "made", "denied")},
            (Gauge("memory absent"), Gauge("pressure denied")),
        ),
    ],
    ids=["read", "not read"],
)
def test_room_and_pressure_are_never_left_out(values: Mapping[str, Reading], expected: tuple[Gauge, ...]) -> None:
    """A value that cannot be read is shown as absent or denied, not as a quiet host."""
    assert expected == told(begin(), event(1, "sample", values=values)).host


def test_each_arm_of_a_pass_is_paced_alone() -> None:
    """Six slow plain answers, then four of eight quick ones: four seconds are left, and the run does not end before."""
    events = [*swept(10), event(100, "stage", stage="pauses", soak="soak-1")]
    events += [event(100 + 5 * n, "answer", generation=generation(), answered=n, of=6) for n in range(1, 7)]
    events += [event(130 + n, "answer", generation=generation(), answered=n, of=8) for n in range(1, 5)]

    snapshot = told(*events)

    assert (4, 8, 4.0, 4.0) == (snapshot.answered, snapshot.of, snapshot.left, snapshot.run_left)
