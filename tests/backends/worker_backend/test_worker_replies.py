"""Lines of a worker that reads tokens again: what is invalid, or contradicts the request, shows nothing."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.backends.worker_backend.worker_protocol import (
    WorkerFault,
    answer_from,
    forced_from,
    gap_from,
    replayed_from,
    widths_from,
)
from gatekeeper.core.interfaces import ReplayedRounds, TwoWidths
from gatekeeper.core.records import Parting, Rounds

TOKENS = (5, 6, 7)
REPLAY: dict[str, Any] = {"parted": [[1, 9, 0.5]], "steady": True, "nll": 2.5}
ROW = [-0.5, -0.25, -0.75, 0.5]
SAMPLED: dict[str, Any] = {"parted": [], "steady": None, "nll": 2.5, "scores": [ROW, [None, *ROW[1:]], ROW]}
WIDTHS: dict[str, Any] = {"gaps": [1, 0.5, 0], "wide_gaps": [1, -0.5, None], "unit": 0.125, "nll": 2.5}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
"""What JSON can hold, and the numbers that a loose reader of it lets through."""


def test_a_valid_line_becomes_a_reading() -> None:
    """Partings, likelihood and scores are kept; a token that the target cannot sample has the logarithm of 0."""
    first = tuple(ROW)

    assert ReplayedRounds((Parting(1, 9, 0.5),), steady=True, nll=2.5) == replayed_from(REPLAY, TOKENS, greedy=True)
    assert ReplayedRounds((), None, 2.5, (first, (-math.inf, *ROW[1:]), first)) == replayed_from(
        SAMPLED, TOKENS, greedy=False
    )
    assert TwoWidths((1.0, 0.5, 0.0), (1.0, -0.5, None), 0.125, 2.5) == widths_from(WIDTHS, TOKENS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"parted": [[3, 9, 0.5]]},
        {"parted": [[-1, 9, 0.5]]},
        {"parted": [[1, 6, 0.5]]},
        {"parted": [[1, 9, 0.5], [1, 8, 0.5]]},
        {"parted": [[True, 9, 0.5]]},
        {"parted": [[1, 2**64, 0.5]]},
        {"parted": [[1, 9]]},
        {"parted": {}},
        {"steady": 1},
        {"nll": math.nan},
        {"nll": math.inf},
        {"nll": "2"},
        {"nll": None},
        {"nll": 10**400},
    ],
)
def test_a_replay_that_cannot_be_shows_nothing(wrong: dict[str, Any]) -> None:
    """A place out of range, twice or with the token that was read, and a number that is none: the line is not used."""
    assert replayed_from({**REPLAY, **wrong}, TOKENS, greedy=True) is None


@pytest.mark.parametrize(
    "scores", [None, [], [ROW, ROW], [ROW, ROW, ROW[:3]], [ROW, ROW, [*ROW[:3], None]], [ROW, ROW, ["x", *ROW[1:]]], 7]
)
def test_scores_that_cannot_be_show_nothing(scores: object) -> None:
    """Above temperature 0 each token has its four logarithms, or nothing is known of the answer."""
    assert replayed_from({**SAMPLED, "scores": scores}, TOKENS, greedy=False) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"gaps": [1, 0.5]},
        {"gaps": [1, 0.5, -0.1]},
        {"gaps": [1, 0.5, None]},
        {"gaps": None},
        {"wide_gaps": [1, 0.5]},
        {"wide_gaps": [1, 0.5, "x"]},
        {"wide_gaps": [1, 0.5, math.inf]},
        {"unit": -1},
        {"unit": None},
        {"nll": None},
    ],
)
def test_widths_that_cannot_be_show_nothing(wrong: dict[str, Any]) -> None:
    """A lead for each token in both passes, and none below 0 for the best of them: else nothing is known."""
    assert widths_from({**WIDTHS, **wrong}, TOKENS) is None


@given(st.sampled_from([REPLAY, SAMPLED, WIDTHS, {"gap": 1.0}, {"parted": [], "ended": True}]), st.data())
def test_no_line_of_a_worker_is_an_error_of_ours(line: dict[str, Any], data: st.DataObject) -> None:
    """Whatever stands in a field, a reading is valid or it is None; nothing is raised."""
    garbled = {**line, data.draw(st.sampled_from(sorted(line))): data.draw(JSON)}

    gap_from(garbled)
    forced_from(garbled, TOKENS)
    widths_from(garbled, TOKENS)
    for greedy in (True, False):
        replayed_from(garbled, TOKENS, greedy=greedy)


def drafted(proposals: object, key: str = "proposals") -> Rounds | None:
    rounds = {"rounds": 2, "drafted": 5, "accepted": 1, key: proposals}
    return answer_from(json.loads(json.dumps({"rounds": rounds})), sent_ns=0, received_ns=9, drafting=True).rounds


@pytest.mark.parametrize("proposals", ["12 7 9;44 3", ";44", "1;;2", "", None])
def test_proposals_are_kept_as_they_are(proposals: str | None) -> None:
    """The drafted tokens of each round are recorded, a round without a draft among them."""
    assert Rounds(2, 5, 1, proposals=proposals or "") == drafted(proposals)


@pytest.mark.parametrize("proposals", ["12 7,9", "12  7", " 1", "-1", "1\n", "٣", "1" * 16, 12, ["1"], True])
@pytest.mark.parametrize("key", ["proposals", "chosen"])
def test_proposals_that_are_none_are_a_fault(proposals: object, key: str) -> None:
    """What is not a text of token ids is a fault of the answer, as any other field that cannot be."""
    with pytest.raises(WorkerFault):
        drafted(proposals, key)
