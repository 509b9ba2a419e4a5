"""The records: how compactly the arrivals of an answer are held, and that nothing of them is lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gatekeeper.core.records import Answer
from gatekeeper.core.records.arrivals import UNKNOWN, Arrival, Arrivals
from gatekeeper.core.system.record_files import ANSWERS

WHOLE = st.integers(UNKNOWN + 1, 2**63 - 1)
INSTANTS = st.integers(0, 2**63 - 1) | st.integers(0, 2**33)
"""What a monotonic clock may say, some of them near each other."""
ARRIVALS = st.lists(
    st.builds(Arrival, INSTANTS, st.none() | WHOLE, st.none() | st.booleans(), st.none() | WHOLE), max_size=30
)


def line(arrivals: str) -> bytes:
    """Return a line of a record file with these *arrivals*."""
    return (
        '{"trial":"soak-1","key":"k","workload":"chat","canary":"c","arm":"plain","setting":[["draft",null]],'
        '"role":"measured","repeat":0,"pair":"","concurrency":1,'
        f'"answer":{{"sent_ns":1,"ended_ns":9,"arrivals":{arrivals}}}}}'
    ).encode()


@given(ARRIVALS)
def test_no_value_of_an_arrival_is_lost(given_ones: list[Arrival]) -> None:
    """
    Columns equal the tuple of the arrivals, unknown values included; so do those read from a line of a record file.
    """
    arrivals = tuple(given_ones)
    written = json.dumps(arrivals, separators=(",", ":"))

    held = Answer(0, 1, arrivals=arrivals).arrivals
    read = ANSWERS.validate_json(line(written))

    for one in (held, read.answer.arrivals):
        assert arrivals == tuple(one)
        assert arrivals == one
        assert hash(arrivals) == hash(one)
        assert len(arrivals) == len(one)
    assert f'"arrivals":{written}'.encode() in ANSWERS.dump_json(read)


@pytest.mark.parametrize(
    "arrivals",
    ["{}", '""', "7", '["1"]', "[[1.5]]", '[["1"]]', "[[null]]", "[[1,true,5]]", f"[[{2**63}]]", "[[1,1,null,null,1]]"],
)
def test_arrivals_of_other_types_are_damage(arrivals: str) -> None:
    """
    A line whose arrivals are not lists of whole numbers of 64 bits and flags is not read as an answer.
    """
    with pytest.raises(ValidationError):
        ANSWERS.validate_json(line(arrivals))


def test_greedy_answers_share_their_tokens() -> None:
    """
    The same tokens, answered again at another time, are held once.
    """
    first, again = (Arrivals([(at + step, 1, True, 7 * step) for step in range(50)]) for at in (0, 1000))

    assert first.token_ids is again.token_ids
    assert first.tokens is again.tokens
    assert first != again
