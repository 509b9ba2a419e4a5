"""Whether greedy answers are plain decoding's, and what excuses them where they part."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.exactness import (
    Comparison,
    Explanations,
    compare,
    divergences,
    same_output,
)
from gatekeeper.analysis.metrics.words.explanations import by_tie, explanations_for
from gatekeeper.analysis.metrics.words.near_tie_rule import TIE_TOLERANCE, Divergence, first_divergence
from gatekeeper.core.records import Answer, Generation, Numerics, Role, Tie, setting
from gatekeeper.core.records.arrivals import Arrival
from tests.builders.golden_words import says
from tests.builders.slo import canary, followed

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


def answer(tokens: list[int] | None = None, text: str = "", fault: str | None = None, **more: Any) -> Answer:
    arrivals = tuple(Arrival(at, 1, None, token) for at, token in enumerate(tokens or [], start=1))
    return Answer(0, 99, arrivals=arrivals, text=text, fault=fault, **more)


def made(
    arm: str, reply: Answer, canary: str = "a", pair: str = "", key: str = "k", role: Role = Role.WARM, repeat: int = 0
) -> Generation:
    knobs = setting(draft=None if arm == "plain" else "d")
    return Generation("soak-1", key, "w", canary, arm, knobs, role, repeat, pair, 1, reply)


def tie(gap: float | None, **changes: object) -> Tie:
    fields: dict[str, object] = {"position": 2, "shared": (1, 2), "plain_id": 3, "candidate_id": 4} | changes
    return Tie("w", "a", gap=gap, **fields)  # type: ignore[arg-type]


def compared_by(ties: Sequence[Tie], *candidates: list[int]) -> Comparison:
    """Compare answers of the candidate to one canary with plain decoding's, 1 2 3."""
    answers = [made("candidate", answer(tokens)) for tokens in candidates or ([1, 2, 4],)]
    return compare(answers, [made("plain", answer([1, 2, 3]))], by_tie(ties))


def agrees(*ties: Tie) -> bool:
    """Compare one canary whose arms part after two tokens: 1 2 3 is plain, 1 2 4 the candidate's."""
    compared = compared_by(ties)
    return compared.agree["a"]


@given(TOKENS, TOKENS)
def test_a_parting_is_the_first_difference(candidate: list[int], twin: list[int]) -> None:
    """Before a parting all tokens are shared, at it they differ; without one, an answer is the start of the other."""
    divergence = first_divergence("a", answer(candidate), answer(twin))

    if divergence is None:
        short = min(len(candidate), len(twin))
        assert candidate[:short] == twin[:short]
    else:
        at = len(divergence.shared)
        assert candidate[:at] == twin[:at] == list(divergence.shared)
        assert (candidate[at], twin[at]) == (divergence.candidate_id, divergence.plain_id)
        assert divergence.candidate_id != divergence.plain_id


def test_partings_come_once() -> None:
    """The same parting seen in many answers is one question; faults and shown texts ask none."""
    plain = [made("plain", answer([1, 2, 3]))] * 2
    candidates = [
        answer([1, 2, 4]),
        answer([1, 2, 4, 5]),
        answer([1, 2, 3]),
        answer([9], fault="died"),
        answer([], "x"),
    ]

    partings = divergences([made("candidate", candidate) for candidate in candidates], plain)

    assert (Divergence("a", (1, 2), 3, 4),) == partings


@pytest.mark.parametrize(
    ("gap", "expected"),
    [(0.0, True), (TIE_TOLERANCE, True), (TIE_TOLERANCE * 1.001, False), (None, False), (math.nan, False), (-1, False)],
)
def test_only_a_narrow_gap_explains(gap: float | None, expected: bool) -> None:
    """A gap at or below the tolerance explains a parting; a wider, unknown or senseless one does not."""
    assert expected is agrees(tie(gap))


@pytest.mark.parametrize(
    "changes",
    [{"shared": (1, 1)}, {"position": 1}, {"plain_id": 9}, {"candidate_id": 9}, {"canary": "b"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_tie_explains_only_what_it_was_read_for(changes: dict[str, object]) -> None:
    """A near-tie of another place, of other tokens or of another canary explains nothing."""
    fields = {"canary": "a", "position": 2, "shared": (1, 2), "plain_id": 3, "candidate_id": 4} | changes

    assert not agrees(Tie("w", gap=0.0, **fields))  # type: ignore[arg-type]


def test_what_is_not_explained_by_a_tie_differs() -> None:
    """Nothing was read; an answer that is the start of the other shows no choice; and one unexplained parting outweighs
    what is excused elsewhere. The notes say what was excused and what was not.
    """
    unread, excused = compared_by(()), compared_by([tie(0.01)])

    assert [{"a": False}] * 3 == [
        unread.agree,
        compared_by([tie(0.0)], [1, 2]).agree,
        compared_by([tie(0.01)], [1, 2, 4], [7, 2, 3]).agree,
    ]
    assert {} == compared_by([tie(0.01)], [1, 2, 4], [7, 2, 3]).excused
    says("estimates", "nothing read explains nothing", unread.notes()[0])
    says("estimates", "an excuse is noted with its tolerance", "; ".join(excused.notes()))


@pytest.mark.parametrize(
    ("alike", "flipped", "expected"),
    [
        pytest.param(56, 0, (1.0, 1.0, 1.0), id="all alike"),
        pytest.param(20, 36, (20 / 56, 20 / 21, 55 / 56), id="one flip in most: open"),
        pytest.param(1, 1, (0.5, 0.5, 0.5), id="one canary counts"),
    ],
)
def test_text_alone_cannot_tell_one_flip_in_many_answers(alike: int, flipped: int, expected: tuple[float, ...]) -> None:
    """Answers that begin alike, and alike with a draft: a single near-tie can do it, so one of them counts, and the
    share that agrees lies between that of the others and all.
    """
    plain = [made("plain", answer(text=f"Sure: {at}"), f"c-{at}") for at in range(alike + flipped)]
    drafted = [
        made("candidate", answer(text=f"Sure: {at}" if at < alike else f"Here: {at}"), f"c-{at}")
        for at in range(alike + flipped)
    ]

    share = compare(drafted, plain, explained_by_text(drafted, plain)).share()

    assert pytest.approx(expected) == (share.lo, share.center, share.hi)


def test_other_words_from_the_start_that_differ_are_the_drafts() -> None:
    """Each answer begins with other words of its own: no single near-tie does that."""
    plain = [made("plain", answer(text=f"{at} is a number"), f"c-{at}") for at in range(12)]
    drafted = [made("candidate", answer(text=f"Sorry, {at}"), f"c-{at}") for at in range(12)]

    share = compare(drafted, plain, explained_by_text(drafted, plain)).share()

    assert (0.0, 0.0) == (share.center, share.hi)


def explained_by_text(drafted: Sequence[Generation], plain: Sequence[Generation]) -> Explanations:
    evidence = PairedAnswers("w", {}, tuple(drafted), tuple(plain), 0.95, 1, greedy=True)
    return explanations_for(evidence, unread=True)


@pytest.mark.parametrize(("shift", "agrees_with_plain"), [(0.4, True), (0.2, False)])
def test_a_measured_tolerance_takes_the_place_of_the_fixed_one(shift: float, agrees_with_plain: bool) -> None:
    """Where plain answers were read at two widths, a gap is numerics up to what moved there, and a defect beyond it."""
    ties, lead = (tie(0.3),), 5.0
    numerics = tuple(
        Numerics("w", "a", 4, tuple(range(400)), (lead,) * 400, (lead - shift,) * 400, unit=0.001) for _ in range(2)
    )
    answers, plain = [made("candidate", answer([1, 2, 4]))], [made("plain", answer([1, 2, 3]))]
    paired = PairedAnswers(
        "w",
        {},
        tuple(answers),
        tuple(plain),
        0.95,
        1,
        greedy=True,
        followed=followed(near_ties=ties, numerics=numerics),
    )

    compared = compare(answers, plain, explanations_for(paired))

    assert {"a": agrees_with_plain} == compared.agree


@pytest.mark.parametrize(("tokens", "is_late"), [([1, 2, 4], True), ([7, 2, 3], False)])
def test_what_was_read_explains_nothing_under_options(tokens: list[int], *, is_late: bool) -> None:
    """A request with a penalty has other logits than were read: its answers are judged by where they differ."""
    answers, plain = [made("candidate", answer(tokens))], [made("plain", answer([1, 2, 3]))]
    canaries = {"a": canary("a", presence_penalty=0.5)}
    paired = PairedAnswers(
        "w", canaries, tuple(answers), tuple(plain), 0.95, 1, greedy=True, followed=followed(near_ties=[tie(9.0)])
    )

    compared = compare(answers, plain, explanations_for(paired))

    assert {"a": is_late} == compared.agree
    assert is_late is any("differ late" in note for note in compared.notes())


def calls(number: int, name: str = "f") -> Answer:
    return answer(tool_calls=({"id": f"call_{number}", "function": {"name": name, "arguments": "{}"}},))


@pytest.mark.parametrize(
    ("candidate", "plain", "same"),
    [
        (answer([1, 2, 3], text="ab"), answer([1, 2, 3], text="ab"), True),
        (answer([1, 2, 3], text="ab"), answer([1, 2, 4], text="ab"), False),
        (answer([1, 2, 3], text="ab"), answer(text="ab"), True),
        (answer(text="ac"), answer(text="ab"), False),
        (calls(1), calls(2), True),
        (calls(1), calls(1, "g"), False),
        (calls(1), answer(), False),
        # Answers that were cut off while they still reasoned have no text.
        (answer(reasoning="so 4"), answer(reasoning="so 4"), True),
        (answer(reasoning="so 4"), answer(reasoning="so 5"), False),
    ],
)
def test_the_same_output(candidate: Answer, plain: Answer, *, same: bool) -> None:
    """Tokens decide where both are seen; else text, reasoning and calls, whatever the ids of the calls."""
    assert same == same_output(candidate, plain)
