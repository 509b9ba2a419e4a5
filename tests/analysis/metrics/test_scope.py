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
from gatekeeper.core.document import document_of
from gatekeeper.core.judgement import Estimate, Outcome
from gatekeeper.core.records import Role, StoredRecords
from tests.builders.golden_words import says
from tests.builders.slo import Twins, evidence, known, objective, slo, steady, twins

COUNT = 12
FROZEN = ("throughput_ratio", "ttft_delta", "tpot_p95", "itl_p50")


def unlike(repeats: int, role: Role = Role.BASELINE, count: int = COUNT) -> Twins:
    """Canaries whose ratios differ up to twofold, each pair 2 % faster or slower than its canary in turn."""
    candidates, baselines = [], []
    for repeat in range(repeats):
        slower = [(1 + at / count) * (1 + 0.02 * (-1) ** (at + repeat)) for at in range(count)]
        replies = [steady(0.05 * factor, first_s=0.2 * factor) for factor in slower]
        candidate, plain = twins(count, replies.__getitem__, lambda _: steady(0.1, first_s=0.2), role=role)
        candidates += [replace(record, pair=f"{repeat}.{record.pair}") for record in candidate]
        baselines += [replace(record, pair=f"{repeat}.{record.pair}") for record in plain]
    return candidates, baselines


def width(interval: Estimate) -> float:
    return interval.hi - interval.lo


@pytest.mark.parametrize("metric", FROZEN)
def test_a_frozen_set_holds_its_canaries_fixed(metric: str) -> None:
    """Answers vary by 2 %, canaries twofold: narrow for these, and beside it wide for prompts like them."""
    paired = evidence(*unlike(8, count=60))

    these, wide = (known(estimate(metric, replace(paired, frozen=frozen))) for frozen in (True, False))

    assert ("frozen", "population") == (these.scope, wide.scope)
    assert these.population is not None
    assert (wide.lo, wide.hi, None) == (these.population.lo, these.population.hi, wide.population)
    assert width(these) < 0.4 * width(wide)


@pytest.mark.parametrize("change", [{"interleaved": False}, {"frozen": False}])
def test_pairs_that_ran_apart_are_bounded_for_prompts_like_them(change: dict[str, Any]) -> None:
    """Noise that lasts hits all pairs of a plain block alike, which repeats of a canary do not show."""
    interval = known(estimate("throughput_ratio", evidence(*unlike(3), **change)))

    assert ("population", None) == (interval.scope, interval.population)


def test_one_pair_each_takes_the_noise_from_the_sweep() -> None:
    """With one pair a canary the sweep's pairs show the noise; without them the interval is the wider one."""
    once = evidence(*unlike(1))
    candidate, plain = unlike(2)
    swept = evidence(
        [replace(record, answer=steady(0.07)) for record in candidate[COUNT:]],
        plain[COUNT:],
        known=tuple(once.canaries.values()),
    )
    again = evidence(candidate[COUNT:], plain[COUNT:])

    alone = known(estimate("throughput_ratio", once))
    beside = known(estimate("throughput_ratio", replace(once, before=again.pairs)))
    unalike = known(estimate("throughput_ratio", replace(once, before=swept.pairs)))

    assert ("population", "frozen", "frozen") == (alone.scope, beside.scope, unalike.scope)
    assert pytest.approx(beside.center) == alone.center
    assert width(beside) < 0.2 * width(alone) < width(unalike)


def test_canaries_without_a_pair_keep_the_spread_in() -> None:
    """Where a quarter of the set was paired, the interval for these canaries knows that most of them were not."""
    candidate, plain = unlike(3)
    full = evidence(candidate, plain)
    part = evidence(candidate, plain, known=tuple(evidence(*unlike(1, count=48)).canaries.values()))

    narrow, wide = (known(estimate("throughput_ratio", paired)) for paired in (full, part))

    assert pytest.approx(narrow.center) == wide.center
    assert width(wide) > 2 * width(narrow)


@pytest.mark.parametrize(("count", "level", "scope"), [(64, 0.99, "frozen"), (64, 0.95, "frozen"), (56, 0.95, None)])
def test_a_look_may_be_surer_than_the_canaries_show_of_others(count: int, level: float, scope: str | None) -> None:
    """A p95 of others takes 90 canaries at 99 %; for these alone their repeats bound it from 59 on."""
    interval = estimate("tpot_p95", evidence(*unlike(8, count=count), level=level))

    population = interval.population if isinstance(interval, Estimate) else None
    assert scope == (interval.scope if isinstance(interval, Estimate) else None)
    assert (population is not None) is (level == 0.95 and count == 64)


def judged(paired: PairedAnswers, **written: Any) -> Any:
    promise = slo(objective("throughput_ratio", **written)).objective[0]
    interval = estimate("throughput_ratio", replace(paired, frozen=promise.scope == "frozen"))
    return check(promise, interval)


def test_a_check_names_its_scope_and_what_would_decide_it() -> None:
    """Sentence and document name these canaries or prompts like them; repeats narrow the first interval, and only other
    canaries the second.
    """
    paired = evidence(*unlike(4))
    close = math.exp(math.log(known(estimate("throughput_ratio", paired)).center) - 0.002)

    these, wide, undecided = (
        judged(paired, at_least=1.3),
        judged(paired, at_least=1.3, scope="population"),
        judged(paired, at_least=close),
    )

    assert (Outcome.PASS, Outcome.UNPROVEN) == (these.outcome, wide.outcome)
    says("estimates", "a check names the scope in words and in its document (1)", these.because)
    says("estimates", "a check names the scope in words and in its document (2)", wide.because)
    says("estimates", "what would decide it is a longer soak or more canaries (1)", undecided.because)
    document, wide_document = document_of(these), document_of(wide)
    assert ("frozen", {"lo": wide.lo, "hi": wide.hi}) == (document["scope"], document["population"])
    assert ("population", False) == (wide_document["scope"], "population" in wide_document)
    assert "times as long" in remedy(undecided)
    assert "canaries instead of 12" in remedy(wide)


@pytest.mark.whole
def test_a_bound_for_prompts_like_them_rests_on_canaries_the_choice_has_not_seen() -> None:
    """Of 24 canaries the sweep sends 12 and the objective on the population rests on the other 12, the one on the
    frozen set on all; where the sweep has sent them all, nothing is proven for other prompts.
    """
    ratio = {"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}
    written = rehearsal.slo(
        workload=[{"name": "work", "canaries": "work.jsonl"}],
        sweep={"stop": "never", "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}},
        soak={"duration": 60.0, "baseline_share": 0.5},
        objective=[ratio, {**ratio, "scope": "population"}],
    )
    truth = {"ratio": {"2": 1.3, "4": 1.6}, "tokens": 41, "noise": {"answer": 0.03}}
    ran = rehearsal.rehearse(written, {"work": rehearsal.canaries("work", 24)}, truth, 1)
    baseline = ran.case.sweep["baseline"].records
    renamed = tuple(replace(record, canary=f"work-{int(record.canary[5:]) + 1:03}") for record in baseline)
    everywhere = replace(ran.case, sweep={**ran.case.sweep, "baseline": StoredRecords((*baseline, *renamed))})

    checks = {result.scope: result for result in ran.verdict.workloads[0].checks if result.metric == "throughput_ratio"}
    checks_everywhere = {
        result.scope: result for result in conclude(everywhere).verdict.workloads[0].checks if result.threshold == 1.1
    }

    assert (24, 12) == (checks["frozen"].n, checks["population"].n)
    assert {Outcome.PASS} == {result.outcome for result in checks.values()}
    says(
        "estimates",
        "a bound for prompts like them rests on canaries the choice has not seen",
        checks_everywhere[None].because,
    )
    assert Outcome.UNPROVEN is checks_everywhere[None].outcome
