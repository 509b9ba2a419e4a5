"""A server's own counters: how they stand in, and that they never pass for ours."""

from dataclasses import replace

import pytest

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

HEAVY = setting(draft="heavy", num_draft_tokens=4)


def made(number: int = 0, arm: str = "candidate", **answer: object) -> Generation:
    given_ = Answer(0, 10**9, (), "t", output_tokens=20, prompt_tokens=9)
    knobs = HEAVY if arm == "candidate" else setting(draft=None)
    reply = replace(given_, **answer)  # type: ignore[arg-type]
    return Generation("t", f"{number}", "w", f"c-{number}", arm, knobs, Role.MEASURED, 0, "1", 1, reply)


@pytest.mark.parametrize(
    ("emitted", "claims", "rounds"),
    [
        # Impossible ones included: to judge them is the findings' work.
        (20, Claims(9, 50, 4), Rounds(4, 9, 50)),
        # A server that tells drafted and accepted alone emitted one more token a round.
        (20, Claims(20, 15), Rounds(5, 20, 15)),
        (6, Claims(9, 5), Rounds(1, 9, 5)),
        # More accepted than emitted, or an unknown length: no round is made up.
        (3, Claims(9, 5), Rounds(0, 9, 5)),
        (5, Claims(9, 5), Rounds(0, 9, 5)),
        (None, Claims(9, 0), Rounds(0, 9, 0)),
        (None, Claims(9, 2), Rounds(0, 9, 2)),
        # How often each position was accepted goes with how often it was tried.
        (9, Claims(9, 3, 4, tried_by_position=(4, 3), accepted_by_position=(3, 1)), Rounds(4, 9, 3, (4, 3), (3, 1))),
        (9, Claims(9, 3, 4, tried_by_position=(4,), accepted_by_position=(3, 1)), Rounds(4, 9, 3, (), (3, 1))),
        *((20, half, None) for half in (Claims(), Claims(drafted=3), Claims(accepted=3), Claims(rounds=3))),
    ],
)
def test_claims_become_rounds(emitted: int | None, claims: Claims, rounds: Rounds | None) -> None:
    """A server's counters are kept as they are; without both drafted and accepted nothing is claimed."""
    assert rounds == claimed_rounds(Answer(0, 1, output_tokens=emitted, claims=claims))


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

    interval = estimate(
        "acceptance_rate", PairedAnswers("w", {}, with_claimed_rounds(answers), (), 0.95, 1, greedy=True)
    )

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
    """A partly cached prompt has no first token and no whole time; its decoding still counts."""
    voids = kinds(made(1, claims=Claims(cached_tokens=4)), made(1, "plain", claims=Claims(cached_tokens=0)))

    timed = {"ttft", "ttft_delta", "ttft_after_pause_delta", "prefill_throughput", "answer_latency_p95"}
    assert timed == voids["warm_prompt"]
    assert "warm_prompt" not in kinds(made(1, claims=Claims(cached_tokens=0)), made(1, "plain"))
