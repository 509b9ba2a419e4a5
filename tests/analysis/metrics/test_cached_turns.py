"""What turns with the prompt cache on show: times of whole turns, first tokens, faults and words."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gatekeeper.analysis.metrics.cached_turns import pair_timed_turns
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Answer, Generation, Role
from tests.builders.slo import answer, because, evidence, followed, grown, known, near, spread, steady

NAMES = [f"c-{number:03}" for number in range(20)]
SAME, OTHER = answer(text="x"), answer(text="y")
FAILED = answer(fault="empty answer: it ended without content")


def records(*, drafting: int = 0, control: int = 0, odd: Answer = OTHER) -> list[Generation]:
    """Return the pass over NAMES: the first ones are *odd* with the draft, the last ones with plain decoding."""
    turns = []
    for place, name in enumerate(NAMES):
        plain = odd if place >= len(NAMES) - control else SAME
        turns += grown(name, odd if place < drafting else SAME, plain)
    return turns


def judged(metric: str, warm: Sequence[Generation], *, flips: int = 0, frozen: bool = True) -> Estimate | Missing:
    """Estimate a metric of the pass, where *flips* canaries get other words from the draft without a cache."""
    cold = spread(len(NAMES), lambda place: OTHER if place < flips else SAME)
    plain = [replace(turn, arm="plain") for turn in spread(len(NAMES), lambda _: SAME)]
    return estimate(metric, evidence(cold, plain, followed=followed(warm_cache=warm), frozen=frozen))


@pytest.mark.parametrize(
    ("drafting", "control", "flips", "expected"),
    [
        (0, 0, 0, (1.0, 1.0)),
        (1, 0, 0, (0.95, 0.95)),  # nothing else ever changes a word: one difference is a defect
        (3, 3, 0, (1.0, 1.0)),
        (2, 5, 0, (1.0, 1.0)),
        (3, 1, 0, (0.9, 1.0)),
        (12, 1, 4, (0.45, 0.45)),
        (2, 0, 4, (0.9, 1.0)),
    ],
)
def test_only_what_the_draft_adds_counts(
    drafting: int, control: int, flips: int, expected: tuple[float, float]
) -> None:
    """A difference counts beyond plain decoding's own; what the sign test leaves open is open."""
    share = known(judged("warm_cache_agreement", records(drafting=drafting, control=control), flips=flips))

    assert expected == pytest.approx((share.lo, share.hi))
    assert bool(drafting) == any("of 60 repeated answers and" in note for note in share.notes)


@pytest.mark.parametrize("arm", ["candidate", "plain"])
@pytest.mark.parametrize("turn", range(4))
def test_a_missing_turn_proves_no_words(arm: str, turn: int) -> None:
    """Without any one turn of either arm, or without plain decoding's answer to it, nothing is estimated."""
    every = records()
    lost = next(record for record in every if (record.role, record.arm, record.repeat) == (Role.WARM, arm, turn))
    cold = [record for record in every if record.role is not Role.COLD or record.canary != lost.canary]

    for left in ([record for record in every if record is not lost], cold, []):
        assert isinstance(judged("warm_cache_agreement", left), Missing)


@pytest.mark.parametrize(
    ("drafting", "control", "share", "words"),
    [
        (0, 0, 0.0, ""),
        (1, 0, 0.025, "4 of 80 with the draft and 0 of 80 plainly failed, first candidate-0:c-000: empty answer"),
        (0, 1, 0.025, "0 of 80 with the draft and 4 of 80 plainly failed, first plain-0:c-019: empty answer"),
        (20, 20, 1.0, "80 of 80 with the draft and 80 of 80 plainly failed"),
    ],
)
def test_failed_turns_of_either_arm_count(drafting: int, control: int, share: float, words: str) -> None:
    """The share is of both arms, and the note names how many turns of each failed, and how the first of them did."""
    failed = known(judged("warm_cache_error_rate", records(drafting=drafting, control=control, odd=FAILED)))

    assert pytest.approx(share) == failed.center
    assert words in " ".join(failed.notes)


def test_plain_decoding_answers_for_itself_alone() -> None:
    """Where plain decoding is judged, the turns of its own arm count, and none where it has none."""
    turns = records(control=5, odd=FAILED)
    alone = evidence(spread(20, lambda _: SAME), followed=followed(warm_cache=turns))
    drafted = tuple(turn for turn in turns if turn.arm == "candidate")

    assert 0.25 == known(estimate("warm_cache_error_rate", alone)).center
    assert isinstance(estimate("warm_cache_error_rate", replace(alone, followed=followed(warm_cache=drafted))), Missing)


def timed(*, drafting_s: float, plain_s: float) -> list[Generation]:
    """Return turns whose first token comes after so many seconds, and eight more in half a second."""
    drafting, plain = (
        answer([first, *(first + 0.0625 * token for token in range(1, 9))]) for first in (drafting_s, plain_s)
    )
    return [turn for name in NAMES for turn in grown(name, drafting, plain)]


def test_the_turns_on_a_warm_cache_are_timed() -> None:
    """The first turn fills the cache and does not count; the ratio is of whole turns over conversations."""
    turns = timed(drafting_s=0.25, plain_s=1.0)
    turns = [replace(turn, answer=steady(9.0)) if turn.repeat == 0 else turn for turn in turns]

    ratio, first = (known(judged(name, turns)) for name in ("warm_cache_turn_ratio", "warm_cache_ttft_delta"))

    assert (20, near(2.0)) == (ratio.n, ratio.center)
    assert (20, near(-0.75)) == (first.n, first.center)


def test_too_few_conversations_and_lost_turns_have_no_ratio() -> None:
    """Four conversations have no interval, and failed turns leave the ratio open."""
    few = [turn for turn in timed(drafting_s=0.25, plain_s=1.0) if turn.pair < "c-004"]
    lost = [
        replace(turn, answer=FAILED) if turn.pair < "c-004" else turn for turn in timed(drafting_s=0.25, plain_s=1.0)
    ]

    assert "too few conversations in both arms: 4, need 5" == because(judged("warm_cache_turn_ratio", few))
    assert "12 of 60 pairs are lost to faults" in because(judged("warm_cache_turn_ratio", lost))
    assert Missing("warm_cache-1.jsonl: damaged") == pair_timed_turns(
        evidence([], followed=followed(warm_cache="warm_cache-1.jsonl: damaged"))
    )
