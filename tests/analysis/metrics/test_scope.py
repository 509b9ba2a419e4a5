"""What an interval is about: these canaries, or prompts like them, and the one beside it."""

import math
from dataclasses import replace
from typing import Any

import pytest

from bench import rehearsal
from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.remedies import remedy
from gatekeeper.core.records import Role, StoredRecords
from gatekeeper.core.verdict import Estimate, Outcome
from tests.builders.golden_words import says
from tests.builders.slo import Twins, answer, evidence, known, objective, slo, steady, twins

COUNT = 12
FROZEN = ("throughput_ratio", "answer_throughput_ratio", "ttft_delta", "decode_throughput", "tpot_p95", "itl_p50")


def unlike(repeats: int, role: Role = Role.SENTINEL, count: int = COUNT) -> Twins:
    """Canaries whose ratios differ up to twofold, each pair 2 % faster or slower than its canary in turn."""
    ours, theirs = [], []
    for repeat in range(repeats):
        slower = [(1 + at / count) * (1 + 0.02 * (-1) ** (at + repeat)) for at in range(count)]
        made = [steady(0.05 * factor, first_s=0.2 * factor) for factor in slower]
        mine, plain = twins(count, made.__getitem__, lambda _: steady(0.1, first_s=0.2), role=role)
        ours += [replace(one, pair=f"{repeat}.{one.pair}") for one in mine]
        theirs += [replace(one, pair=f"{repeat}.{one.pair}") for one in plain]
    return ours, theirs


def width(found: Estimate) -> float:
    return found.hi - found.lo


@pytest.mark.parametrize("metric", FROZEN)
def test_a_frozen_set_holds_its_canaries_fixed(metric: str) -> None:
    """
    Canaries a factor of two apart whose answers vary by 2 %: the interval for these is narrow, the one for prompts like
    them stands beside it and is what an objective on the population gets.
    """
    seen = evidence(*unlike(8, count=60))

    these, others = (known(estimate(metric, replace(seen, frozen=frozen))) for frozen in (True, False))

    assert ("frozen", "population") == (these.scope, others.scope)
    assert these.population is not None
    assert (others.lo, others.hi, None) == (these.population.lo, these.population.hi, others.population)
    assert width(these) < 0.4 * width(others)


@pytest.mark.parametrize("change", [{"interleaved": False}, {"frozen": False}])
def test_pairs_that_ran_apart_are_bounded_for_prompts_like_them(change: dict[str, Any]) -> None:
    """
    Noise that lasts hits all pairs of a plain block alike, which repeats of a canary do not show.
    """
    found = known(estimate("throughput_ratio", evidence(*unlike(3), **change)))

    assert ("population", None) == (found.scope, found.population)


def test_one_pair_each_takes_the_noise_from_the_sweep() -> None:
    """
    With one pair a canary the noise is that between soak and sweep, at whatever speed the sweep ran; without the
    sweep's pairs the wider interval for all prompts is given.
    """
    once = evidence(*unlike(1))
    ours, theirs = unlike(2)
    swept = evidence(
        [replace(one, answer=steady(0.07)) for one in ours[COUNT:]], theirs[COUNT:], known=tuple(once.canaries.values())
    )
    again = evidence(ours[COUNT:], theirs[COUNT:])

    alone = known(estimate("throughput_ratio", once))
    beside = known(estimate("throughput_ratio", replace(once, before=again.pairs)))
    unalike = known(estimate("throughput_ratio", replace(once, before=swept.pairs)))

    assert ("population", "frozen", "frozen") == (alone.scope, beside.scope, unalike.scope)
    assert pytest.approx(beside.center) == alone.center
    assert width(beside) < 0.2 * width(alone) < width(unalike)


def test_canaries_without_a_pair_keep_the_spread_in() -> None:
    """
    Where a quarter of the set was paired, the interval for these canaries knows that most of them were not.
    """
    ours, theirs = unlike(3)
    whole = evidence(ours, theirs)
    part = evidence(ours, theirs, known=tuple(evidence(*unlike(1, count=48)).canaries.values()))

    narrow, wide = (known(estimate("throughput_ratio", one)) for one in (whole, part))

    assert pytest.approx(narrow.center) == wide.center
    assert width(wide) > 2 * width(narrow)


@pytest.mark.parametrize(("count", "level", "scope"), [(64, 0.99, "frozen"), (64, 0.95, "frozen"), (56, 0.95, None)])
def test_a_look_may_be_surer_than_the_canaries_show_of_others(count: int, level: float, scope: str | None) -> None:
    """
    A p95 of prompts like them takes 59 canaries at 95 % and 90 at 99 %; for these canaries their repeats bound it, as
    long as there are those 59.
    """
    found = estimate("tpot_p95", evidence(*unlike(8, count=count), level=level))

    others = found.population if isinstance(found, Estimate) else None
    assert scope == (found.scope if isinstance(found, Estimate) else None)
    assert (others is not None) is (level == 0.95 and count == 64)


def test_ttft_delta_is_paired_by_canary() -> None:
    """
    Prompts from 0.1 s to 0.7 s: a change of 4 % in each is 4 %, however far apart they are.
    """
    ours, theirs = twins(24, lambda at: answer([1.04 * (0.1 + at / 40)]), lambda at: answer([0.1 + at / 40]))

    found = known(estimate("ttft_delta", evidence(ours, theirs)))

    assert pytest.approx((0.04, 0.04, 0.04), abs=1e-6) == (found.lo, found.center, found.hi)


def judged(seen: PairedAnswers, **written: Any) -> Any:
    one = slo(objective("throughput_ratio", **written)).objective[0]
    found = estimate("throughput_ratio", replace(seen, frozen=one.scope == "frozen"))
    return check(one, found)


def test_a_check_names_the_scope_in_words_and_in_its_document() -> None:
    """
    The sentence that terminal, page and files print names these canaries or prompts like them; the document holds both.
    """
    seen = evidence(*unlike(4))

    these, others = judged(seen, at_least=1.3), judged(seen, at_least=1.3, scope="population")

    assert (Outcome.PASS, Outcome.UNPROVEN) == (these.outcome, others.outcome)
    says("estimates", "a check names the scope in words and in its document (1)", these.because)
    says("estimates", "a check names the scope in words and in its document (2)", others.because)
    assert ("frozen", {"lo": others.lo, "hi": others.hi}) == (
        these.document()["scope"],
        these.document()["population"],
    )
    assert ("population", False) == (others.document()["scope"], "population" in others.document())


def test_what_would_decide_it_is_a_longer_soak_or_more_canaries() -> None:
    """
    Repeats narrow an interval for these canaries, and only other canaries the one for prompts like them.
    """
    seen = evidence(*unlike(4))
    close = math.exp(math.log(known(estimate("throughput_ratio", seen)).center) - 0.002)

    these, others = judged(seen, at_least=close), judged(seen, at_least=close, scope="population")

    says("estimates", "what would decide it is a longer soak or more canaries (1)", these.because)
    says("estimates", "what would decide it is a longer soak or more canaries (2)", others.because)
    assert "times as long" in remedy(these)
    assert "canaries instead of 12" in remedy(judged(seen, at_least=1.3, scope="population"))


@pytest.mark.whole
def test_a_bound_for_prompts_like_them_rests_on_canaries_the_choice_has_not_seen() -> None:
    """
    Of 24 canaries the sweep sends 12 and the objective on the population rests on the other 12, the one on the frozen
    set on all; where the sweep has sent them all, nothing is proven for other prompts.
    """
    ratio = {"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}
    written = rehearsal.slo(
        workload=[{"name": "work", "canaries": "work.jsonl"}],
        sweep={"stop": "never", "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}},
        soak={"duration": 60.0, "sentinel_share": 0.5},
        objective=[ratio, {**ratio, "scope": "population"}],
    )
    truth = {"ratio": {"2": 1.3, "4": 1.6}, "tokens": 41, "noise": {"answer": 0.03}}
    ran = rehearsal.rehearse(written, {"work": rehearsal.canaries("work", 24)}, truth, 1)
    baseline = ran.case.sweep["baseline"].records
    others = tuple(replace(one, canary=f"work-{int(one.canary[5:]) + 1:03}") for one in baseline)
    everywhere = replace(ran.case, sweep={**ran.case.sweep, "baseline": StoredRecords((*baseline, *others))})

    checks = {one.scope: one for one in ran.verdict.workloads[0].checks if one.metric == "throughput_ratio"}
    seen = {one.scope: one for one in conclude(everywhere).verdict.workloads[0].checks if one.threshold == 1.1}

    assert (24, 12) == (checks["frozen"].n, checks["population"].n)
    assert {Outcome.PASS} == {one.outcome for one in checks.values()}
    says("estimates", "a bound for prompts like them rests on canaries the choice has not seen", seen[None].because)
    assert Outcome.UNPROVEN is seen[None].outcome
