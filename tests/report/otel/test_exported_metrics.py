"""The arithmetic of telemetry: buckets, rollbacks, classes of faults."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.backends.workers.rounds import count_rounds
from gatekeeper.core.records import Answer, Claims, Generation, Role, Rounds, Setting, setting
from gatekeeper.report.otel import exported_metrics
from gatekeeper.report.otel.answer_attributes import error_type, shift_ns, speculation, wall_ns
from gatekeeper.report.otel.identity import RunIdentity
from gatekeeper.report.otel.metric_names import Histogram
from tests.builders.manifest import manifest
from tests.builders.slo import slo

DRAFTING = setting(draft="d", num_draft_tokens=4)


def made(
    rounds: Rounds | None = None,
    claims: Claims | None = None,
    *,
    knobs: Setting = DRAFTING,
    at: str = "2026-01-01T00:00:01.000000Z",
) -> Generation:
    """Return an answer with these counters."""
    answer = Answer(sent_ns=5, ended_ns=1_000_005, rounds=rounds, claims=claims or Claims())
    return Generation("t", "k", "w", "c", "candidate", knobs, Role.MEASURED, 0, "p", 1, answer, 0, at)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 4))
def test_a_rollback_is_a_round_with_a_rejection(accepted: list[int], width: int) -> None:
    """However many proposals each round keeps, rollbacks are the rounds that kept fewer than were proposed."""
    runs = [min(count, width) for count in accepted]
    flags = [flag for run in runs for flag in (*[True] * run, False)]
    rounds = count_rounds(flags, draft_tokens=width, max_tokens=len(flags) + width)

    counted = speculation(made(rounds), "mlx")

    assert (sum(run < width for run in runs), width * len(runs)) == (counted["rollbacks"], counted["draft_forwards"])


@pytest.mark.parametrize(
    ("record", "backend", "expected"),
    [
        (made(Rounds(3, 9, 4)), "mlx", ("counted", None, 9)),  # positions unknown: so are rollbacks
        (made(Rounds(3, 9, 9)), "mlx", ("counted", 0, 9)),
        (made(Rounds(3, 9, 4)), "llama-server", ("counted", None, None)),
        (made(Rounds(3, 48, 4), knobs=setting(draft="d", block_size=16)), "mlx", ("counted", None, None)),
        (made(claims=Claims(drafted=9, accepted=4, rounds=3)), "openai", ("claimed", None, None)),
    ],
)
def test_what_is_not_known_is_not_told(
    record: Generation, backend: str, expected: tuple[str, int | None, int | None]
) -> None:
    """Without positions there are no rollbacks, without a draft that goes token by token no forwards; never a zero."""
    counted = speculation(record, backend)

    assert expected == (counted["source"], counted.get("rollbacks"), counted.get("draft_forwards"))


@given(st.lists(st.floats(0, 200), min_size=1))
def test_a_bucket_includes_its_upper_bound(values: list[float]) -> None:
    """Each bucket counts what is above the bound before it and at most its own, as OTLP defines it."""
    bounds = (0.01, 1.0, 81.92)
    everything = (*values, *bounds)

    point = exported_metrics._histogram_point(Histogram("made", "s", bounds), {}, (1, 2), everything)

    edges = (float("-inf"), *bounds, float("inf"))
    expected = [sum(a < value <= b for value in everything) for a, b in pairwise(edges)]
    assert expected == point.bucket_counts


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("timeout: silent for 120 s", "timeout"),
        ("cut off: the stream ended", "cut_off"),
        ("HTTP 503: {the body}", "503"),
        ("ValueError: the prompt was 'hello'", "ValueError"),
        ("The quick brown fox jumps over", "_OTHER"),
        ("'quoted' text: x", "_OTHER"),
    ],
)
def test_a_fault_is_a_class(fault: str, expected: str) -> None:
    """error.type is our word for the fault; what the subject said with it stays here."""
    assert expected == error_type(fault)


def test_each_answer_brings_its_own_clock() -> None:
    """A host that slept between two answers shifts only the later one. An answer without wall time, or that ended
    before
    it was sent, has no place in time.
    """
    early = made(at="2026-01-01T00:00:01.000000Z")
    late = made(at="2026-01-01T08:00:01.000000Z")

    shifts = shift_ns(early), shift_ns(late)

    assert None not in shifts
    assert 8 * 3600 * 10**9 == (shifts[1] or 0) - (shifts[0] or 0)
    assert shift_ns(made(at="")) is None
    assert shift_ns(replace(early, answer=Answer(sent_ns=7, ended_ns=5))) is None
    assert 1_767_225_601_000_000_000 == wall_ns("2026-01-01T00:00:01.000000Z")


def test_a_span_names_the_server_of_its_arm() -> None:
    """Plain decoding may have a server of its own; one without a port has that of its scheme, and a started one has
    none.
    """
    subject = {"backend": "openai", "target": "t", "drafts": ["d"]}
    attached = {**subject, "url": "https://fast.example/v1", "plain_url": "http://127.0.0.1:8081"}
    by_address, started = (
        RunIdentity(manifest(), "0" * 64, slo(subject=written), {})
        for written in (attached, {**subject, "command": ["s", "{port}"], "plain_command": ["s", "{port}"]})
    )

    assert {"server.address": "fast.example", "server.port": 443} == by_address.server("candidate")
    assert {"server.address": "127.0.0.1", "server.port": 8081} == by_address.server("plain")
    assert {} == started.server("plain")
