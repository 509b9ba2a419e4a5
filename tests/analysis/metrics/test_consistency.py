"""Answers that contradict themselves, or each other, are no evidence: for no verdict, good or bad."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.metrics.consistency import bundled_first_pieces, contradictions
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.harm import harm
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.records import Answer, Claims, Generation, Rounds, StoredRecords
from gatekeeper.core.records.arrivals import Arrival
from tests.builders.case import FAILING, WINNING, Made, bare, with_soak
from tests.builders.slo import SECOND, counted, evidence, generation, steady, twins

Change = Callable[[Answer], Answer]


def fields(**changes: Any) -> Change:
    return lambda answer: replace(answer, **changes)


def held_back(answer: Answer) -> Answer:
    """End an answer half as late again after its last piece."""
    return replace(answer, ended_ns=answer.ended_ns + round(0.15 * SECOND))


def judged(change: Change, arms: Sequence[str], script: Made = WINNING) -> Verdict:
    """Judge a run that would be promoted, or not, the answers of some *arms* of its soak changed."""
    case = bare({"easy": WINNING})
    (leg,) = conclude(case).needs
    complete = with_soak(case, leg, script)
    records = tuple(
        replace(record, answer=change(record.answer)) if record.arm in arms else record
        for record in complete.soaks[leg.name].records
    )
    return conclude(replace(complete, soaks={leg.name: StoredRecords(records)})).verdict


DRAFT, BOTH = ("candidate",), ("candidate", "plain")
CONTRADICTIONS: dict[str, tuple[Change, Sequence[str], tuple[str, str]]] = {
    "usage above the server's timings": (
        fields(output_tokens=13, claims=Claims(decode_tokens=10)), BOTH, ("13 tokens", "timings 10"),
    ),
    "usage above the pieces": (fields(output_tokens=20), BOTH, ("20 tokens", "the answer 10")),
    "more tokens for the same text": (fields(output_tokens=12), DRAFT, ("has 4 bytes", "4.8, on 8")),
    "faster than its rounds": (fields(rounds=Rounds(10, 40, 0)), DRAFT, ("is 1.50x", "yields 1 tokens")),
    "faster by its pieces than as a whole": (held_back, DRAFT, ("1.50x", "1.00x")),
}  # fmt: skip
SLOWER_IS_POSSIBLE = {"faster than its rounds", "faster by its pieces than as a whole"}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_evidence_that_contradicts_itself_proves_nothing(name: str) -> None:
    """A ratio that would pass, and one that would fail, are unproven by both figures of the contradiction."""
    change, arms, figures = CONTRADICTIONS[name]

    good, bad = (judged(change, arms, script) for script in (WINNING, FAILING))

    (ratio,) = (check for check in good.workloads[0].checks if check.metric == "throughput_ratio")
    (detail,) = (finding.detail for finding in good.findings if finding.kind == "contradiction")
    assert ("unproven", 3, None) == (good.outcome, good.exit_code, ratio.center)
    assert all(figure in detail for figure in figures), detail
    if name not in SLOWER_IS_POSSIBLE:
        assert not bad.transitions


def test_tokens_that_no_text_carries_are_a_contradiction() -> None:
    """Sixty tokens in eight bytes, alike in both arms: a token has a byte at least."""
    said: dict[str, Any] = {"text": "8 bytes.", "output_tokens": 60}
    drafted, plain = twins(8, lambda _: steady(0.03, 10, **said), lambda _: steady(0.05, 10, **said))

    (finding,) = contradictions(evidence(drafted, plain), "work")

    assert all(figure in finding.detail for figure in ("60 tokens", "8 bytes"))
    assert {"throughput_ratio", "answer_throughput_ratio", "decode_throughput"} <= finding.voids


def test_reasoning_that_is_not_shown_is_named_as_the_likely_reason() -> None:
    """Two words after three hundred tokens, which came late: the sentence says what counts so, and the advice what to
    do. The same tokens in an answer that began at once were dropped, and no reasoning is blamed. Where the server
    counts its reasoning apart, nothing contradicts.
    """

    def arms(first_s: float) -> PairedAnswers:
        said: dict[str, Any] = {"text": "It is 42.", "output_tokens": 300, "first_s": first_s}
        return evidence(*twins(8, lambda _: steady(0.03, 3, **said), lambda _: steady(0.05, 3, **said)))

    (hidden,), (dropped,) = (contradictions(arms(first_s), "work") for first_s in (6.0, 0.01))

    assert "likely reason" in hidden.detail
    assert "thinking = false" in hidden.advice
    assert "throughput_ratio" in hidden.voids
    assert "reason" not in dropped.detail
    told: dict[str, Any] = {"text": "It is 42.", "claims": Claims(completion_tokens=300, decode_tokens=300)}
    apart = twins(8, lambda _: steady(0.03, 3, **told), lambda _: steady(0.05, 3, **told))
    assert () == contradictions(evidence(*apart), "work")


@pytest.mark.parametrize("greedy", [True, False])
def test_repetition_of_one_arm_is_no_miscount(greedy: bool) -> None:
    """A draft that turns to "!!!!" has shorter tokens: the test for degenerate answers names it."""
    begun = "eight words as both arms begin "
    stuck, sound = (
        begun + "!" * 24,
        begun + "and twenty-four more tokens of such words as plain decoding goes on to say",
    )
    drafted, plain = twins(
        24, lambda _: steady(0.02, 32, text=stuck, finish="length"), lambda _: steady(0.05, 32, text=sound)
    )

    assert () == contradictions(evidence(drafted, plain, greedy=greedy), "work")
    assert harm(evidence(drafted, plain, greedy=greedy)).center < 0.001  # type: ignore[union-attr]  # 24 signs


SOUND: dict[str, Change] = {
    "as it is": fields(),
    "a stop token in the usage": fields(output_tokens=11, claims=Claims(decode_tokens=10)),
    "tokens around a tool call": fields(output_tokens=13),
}


@pytest.mark.parametrize("name", SOUND)
def test_counts_that_differ_by_what_a_server_may_leave_out_are_believed(name: str) -> None:
    """Whether a stop token is counted, and the tokens that no reader sees, contradict nothing."""
    assert "promoted" == judged(SOUND[name], BOTH).outcome


def test_one_odd_answer_is_an_accident() -> None:
    """One answer of twenty whose counts differ voids nothing."""
    drafted, plain = twins(20, lambda _: steady(0.03, 10, rounds=counted(4, 16, 6)), lambda _: steady(0.05, 10))
    drafted[0] = replace(drafted[0], answer=replace(drafted[0].answer, claims=Claims(decode_tokens=3)))

    assert () == contradictions(evidence(drafted, plain), "work")


def bundled(first: int, at: int = 0) -> Generation:
    """Return an answer of 32 tokens without counts, whose first piece holds the text of *first* of them."""
    pieces = [4 * first, *[4] * (32 - first)]
    arrivals = tuple(
        Arrival(round((1 + 0.01 * number) * SECOND), characters=size) for number, size in enumerate(pieces)
    )
    answer = Answer(0, 2 * SECOND, arrivals, text="word" * 32, finish="stop", output_tokens=32)
    return generation(answer, f"c-{at:03}")


def test_a_bundle_is_named() -> None:
    """A first piece with the text of twenty others, in each answer, is a finding; one of one token is none."""
    named, sound = (
        bundled_first_pieces(evidence([bundled(first, at) for at in range(8)]), "work") for first in (20, 1)
    )

    assert ["bundled_first_piece"] == [finding.kind for finding in named]
    assert "20 times" in named[0].detail
    assert not named[0].voids
    assert () == sound


def test_a_bundle_in_one_arm_voids_decode_speed() -> None:
    """How many tokens came at once is a guess by their text: where that is most of an answer, and of one arm alone, no
    speed rests on it, but that of whole answers.
    """
    plain = [replace(bundled(1, at), arm="plain", pair=f"p{at}") for at in range(8)]
    drafted = [replace(bundled(20, at), pair=f"p{at}") for at in range(8)]

    (finding,) = bundled_first_pieces(evidence(drafted, plain), "work")

    assert {"throughput_ratio", "decode_throughput"} == finding.voids
