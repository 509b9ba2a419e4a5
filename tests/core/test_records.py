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
    st.builds(Arrival, INSTANTS, st.none() | WHOLE, st.none() | st.booleans(), st.none() | WHOLE, st.none() | WHOLE),
    max_size=30,
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
    """Columns equal the tuple of the arrivals; so do those read from a line of a record file."""
    arrivals = tuple(given_ones)

    columns = Answer(0, 1, arrivals=arrivals).columns
    written = ANSWERS.validate_json(line(json.dumps(columns.as_columns())))
    read = ANSWERS.validate_json(ANSWERS.dump_json(written))

    for stored in (columns, written.answer.arrivals, read.answer.arrivals):
        assert arrivals == tuple(stored)
        assert arrivals == stored
        assert hash(arrivals) == hash(stored)
        assert len(arrivals) == len(stored)


def test_arrivals_are_written_in_columns() -> None:
    """The first time and the gaps, one number of tokens where all have it, a letter a flag."""
    spoken = [Arrival(5, 1, True, 70), Arrival(8, 1, None, None), Arrival(9, 1, False, 71)]

    assert {"at_ns": 5, "gaps_ns": [3, 1], "tokens": 1, "drafted": "t?f", "token_ids": [70, None, 71]} == Arrivals(
        spoken
    ).as_columns()
    assert {"at_ns": 5, "gaps_ns": [3], "tokens": [2, None]} == Arrivals([(5, 2), (8, None)]).as_columns()
    assert () == Arrivals().as_columns()


@pytest.mark.parametrize(
    "arrivals",
    [
        *("{}", '""', "7", '["1"]', "[[1.5]]", '[["1"]]', "[[null]]", "[[1,true,5]]"),
        *(f"[[{2**63}]]", "[[1,1,null,null,1]]", '{"at_ns":1}', '{"gaps_ns":[1]}', '{"at_ns":null,"gaps_ns":[]}'),
        *('{"at_ns":1.5,"gaps_ns":[]}', '{"at_ns":1,"gaps_ns":["2"]}', '{"at_ns":1,"gaps_ns":"23"}'),
        *(f'{{"at_ns":{2**63 - 1},"gaps_ns":[1]}}', '{"at_ns":1,"gaps_ns":[1],"tokens":[1]}'),
        *('{"at_ns":1,"gaps_ns":[1],"drafted":"tx"}', '{"at_ns":1,"gaps_ns":[],"drafted":"\\u0001"}'),
        '{"at_ns":1,"gaps_ns":[1],"token_ids":"12"}',
    ],
)
def test_arrivals_of_other_types_are_damage(arrivals: str) -> None:
    """A line whose arrivals are not whole numbers of 64 bits and flags, as many of each, is not read as an answer."""
    with pytest.raises(ValidationError):
        ANSWERS.validate_json(line(arrivals))


def test_equal_settings_are_held_once_and_none_is_changed() -> None:
    """All answers hold the same object; 1 and true are two settings."""

    def settings(*written: str) -> list[object]:
        lines = (line("[]").replace(b'[["draft",null]]', text.encode()) for text in written)
        return [ANSWERS.validate_json(written_line).setting for written_line in lines]

    first, again, true, listed = settings('[["knob",1]]', '[["knob",1]]', '[["knob",true]]', '[["knob",[1]]]')

    assert first is again
    assert ["(('knob', 1),)", "(('knob', True),)", "(('knob', [1]),)"] == [repr(first), repr(true), repr(listed)]
