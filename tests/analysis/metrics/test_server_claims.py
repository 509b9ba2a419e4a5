"""A server's own counters: how they stand in, and that they never pass for ours."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.metrics.server_claims import (
    CLAIMS_NOTE,
    claimed_rounds,
    counted_or_claimed,
    labelled_as_claims,
    with_claimed_rounds,
)
from gatekeeper.analysis.verdict.answer_findings import examine
from gatekeeper.core.judgement import Estimate, fact
from gatekeeper.core.records import Answer, Claims, Generation, Role, Rounds, setting
from gatekeeper.core.records.arrivals import Arrival
from tests.builders.golden_words import says

HEAVY = setting(draft="heavy", num_draft_tokens=4)


def made(number: int = 0, arm: str = "candidate", **answer: object) -> Generation:
    given_ = Answer(0, 10**9, (), "t", output_tokens=20, prompt_tokens=9)
    knobs = HEAVY if arm == "candidate" else setting(draft=None)
    reply = replace(given_, **answer)  # type: ignore[arg-type]
    return Generation("t", f"{number}", "w", f"c-{number}", arm, knobs, Role.MEASURED, 0, "1", 1, reply)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 50))
def test_claimed_counters_are_kept_as_they_are(drafted: int, accepted: int, rounds: int) -> None:
    """Claims become rounds without a change, impossible ones included: judging them is the findings' work."""
    answer = Answer(0, 1, output_tokens=20, claims=Claims(drafted, accepted, rounds))

    assert Rounds(rounds, drafted, accepted) == claimed_rounds(answer)


def test_rounds_follow_from_what_was_emitted() -> None:
    """A server that tells drafted and accepted alone emitted one more token a round: 20 - 15 accepted are 5 rounds."""
    assert Rounds(5, 20, 15) == claimed_rounds(Answer(0, 1, output_tokens=20, claims=Claims(20, 15)))


@pytest.mark.parametrize(
    ("emitted", "accepted", "rounds"), [(3, 5, 0), (None, 0, 0), (None, 2, 0), (5, 5, 0), (6, 5, 1)]
)
def test_rounds_are_never_fewer_than_none(emitted: int | None, accepted: int, rounds: int) -> None:
    """More accepted than emitted, or an unknown length, leave no round, and none is made up."""
    claims = Claims(drafted=9, accepted=accepted)

    assert Rounds(rounds, 9, accepted) == claimed_rounds(Answer(0, 1, output_tokens=emitted, claims=claims))


@pytest.mark.parametrize(("tried", "positions"), [((4, 3), (4, 3)), ((4,), ())])
def test_claimed_positions_are_kept_where_they_pair_up(tried: tuple[int, ...], positions: tuple[int, ...]) -> None:
    """How often each position was accepted goes with how often it was tried; where they do not pair up, nothing was
    tried.
    """
    claims = Claims(9, 3, 4, tried_by_position=tried, accepted_by_position=(3, 1))

    assert Rounds(4, 9, 3, positions, (3, 1)) == claimed_rounds(Answer(0, 1, output_tokens=9, claims=claims))


@pytest.mark.parametrize("claims", [Claims(), Claims(drafted=3), Claims(accepted=3), Claims(rounds=3)])
def test_half_a_claim_is_none(claims: Claims) -> None:
    """Without both drafted and accepted nothing is claimed."""
    assert claimed_rounds(Answer(0, 1, output_tokens=20, claims=claims)) is None


def test_ours_come_first() -> None:
    """Claims stand in only where nothing was counted by us."""
    counted = (made(rounds=Rounds(5, 20, 10), claims=Claims(20, 19)),)
    claimed = (made(claims=Claims(20, 15)),)

    assert (counted, False) == counted_or_claimed(counted)
    assert (with_claimed_rounds(claimed), True) == counted_or_claimed(claimed)
    assert (False, None) == (counted_or_claimed((made(),))[1], counted_or_claimed((made(),))[0][0].answer.rounds)


def test_an_estimate_of_claims_says_so() -> None:
    """The acceptance rate of claims is computed as ours would be, and carries its label."""
    answers = tuple(made(number, claims=Claims(20, 15)) for number in range(30))
    evidence = PairedAnswers("w", {}, answers, (), 0.95, 1, greedy=True)

    interval = estimate("acceptance_rate", replace(evidence, answers=with_claimed_rounds(answers)))

    assert isinstance(interval, Estimate)
    assert pytest.approx(0.75) == interval.center
    assert (CLAIMS_NOTE,) == labelled_as_claims(fact(0.75, 30)).notes


def kinds(*answers: Generation) -> dict[str, frozenset[str]]:
    candidate = tuple(answer for answer in answers if answer.arm == "candidate")
    plain = tuple(answer for answer in answers if answer.arm == "plain")
    evidence = pair_answers(PairedAnswers("w", {}, candidate, plain, 0.95, 1, greedy=True))
    return {finding.kind: finding.voids for finding in examine(evidence, HEAVY, "w")}


def test_a_swapped_model_voids_the_arm() -> None:
    """Answers of one arm under two names are of two models, and no objective about either can be checked."""
    voids = kinds(made(1, claims=Claims(model="a")), made(2, claims=Claims(model="b")))
    unswapped = kinds(made(1, claims=Claims(model="a")), made(2, claims=Claims(model="a")), made(3, "plain"))

    assert {"throughput_ratio", "acceptance_rate", "task_pass_delta"} <= voids["model_swapped"]
    assert "memory_headroom" not in voids["model_swapped"]
    assert "model_swapped" not in unswapped


def test_a_cached_prompt_voids_its_first_token() -> None:
    """A prompt that was partly answered from a cache has no time to first token and none of its whole answer; its
    decoding
    still counts.
    """
    voids = kinds(made(1, claims=Claims(cached_tokens=4)), made(1, "plain", claims=Claims(cached_tokens=0)))

    timed = {"ttft", "ttft_delta", "ttft_after_pause_delta", "prefill_throughput", "answer_latency_p95"}
    assert timed == voids["warm_prompt"]
    assert "warm_prompt" not in kinds(made(1, claims=Claims(cached_tokens=0)), made(1, "plain"))


def paced(number: int, arm: str, width: int, tokens: int = 24) -> Generation:
    """An answer whose tokens come *width* at a time, 100 ms apart."""
    arrivals = tuple(Arrival(100_000_000 * (index // width + 1) + index % width, 1) for index in range(tokens))
    return made(number, arm, arrivals=arrivals, output_tokens=tokens, ended_ns=arrivals[-1].at_ns)


@pytest.mark.parametrize(
    ("candidate", "plain", "visible"),
    [(3, 1, True), (1, 1, False), (3, 3, False)],
    ids=["bursts", "one at a time", "both in bursts"],
)
def test_bursts_show_a_draft_that_nobody_counts(candidate: int, plain: int, visible: bool) -> None:
    """Without counters a draft is seen in the rounds its tokens come in, unless plain decoding comes so too."""
    answers = tuple(paced(number, "candidate", candidate) for number in range(10))
    twins = tuple(paced(number, "plain", plain) for number in range(10))
    evidence = pair_answers(PairedAnswers("w", {}, answers, twins, 0.95, 1, greedy=True))

    interval = estimate("speculation_engaged", evidence)

    assert visible == isinstance(interval, Estimate)
    if isinstance(interval, Estimate):
        assert 1.0 == interval.center
        says("estimates", "bursts show a draft that nobody counts", interval.notes[0])
