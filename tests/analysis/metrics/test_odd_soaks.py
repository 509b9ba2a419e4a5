"""Soaks whose average hides something: a drafter that gives up, plain decoding that swings, a request that lasts."""

from dataclasses import replace

from gatekeeper.analysis.metrics.order_effect import carried_over
from gatekeeper.analysis.metrics.over_time import acceptance_collapse, plain_swings
from gatekeeper.core.records import Generation
from tests.builders.slo import counted, evidence, generation, steady


def drafted(number: int, accepted: int, workload: str = "easy", canaries: int = 8) -> Generation:
    """Return the answer that is sent at second *number*, with so many of 20 drafted tokens accepted."""
    answer = steady(0.03, sent_s=number, rounds=counted(5, 20, accepted))
    return generation(answer, f"c-{number % canaries:03}", workload=workload)


def test_an_acceptance_that_collapses_for_good_is_named() -> None:
    """From the 24th of 40 answers on nothing is accepted: named with both figures, and no ratio rests on the average.
    One that comes back, or that differs from prompt to prompt, is no collapse.
    """
    for_good = [drafted(number, 14 if number < 24 else 0) for number in range(40)]
    comes_back = [drafted(number, 0 if 16 <= number < 24 else 14) for number in range(40)]
    uneven = [drafted(number, (18, 2)[number % 8 > 3]) for number in range(40)]

    (finding,) = acceptance_collapse(evidence(for_good), "work")

    assert "acceptance is 0 in the last 16 of 32 answers, and was 0.7 before" in finding.detail
    assert "throughput_ratio" in finding.voids
    assert ((), ()) == tuple(acceptance_collapse(evidence(answers), "work") for answers in (comes_back, uneven))


def test_plain_decoding_that_swings_is_named() -> None:
    """Hot answers a third slower than those around them are a finding; alternate noise of as much is none."""

    def plain(number: int, *, hot: bool) -> Generation:
        return generation(steady(0.04 if hot else 0.03, sent_s=number), f"c-{number % 8:03}", arm="plain")

    swinging = [plain(number, hot=20 <= number < 40) for number in range(60)]
    noisy = [plain(number, hot=number % 2 == 0) for number in range(60)]

    (finding,) = plain_swings(evidence([], swinging), "work")

    assert "33 % faster at times" in finding.detail
    assert not finding.voids
    assert () == plain_swings(evidence([], noisy), "work")


def test_a_gain_that_depends_on_the_request_before_is_named() -> None:
    """Answers after one of another workload accept a tenth: named; where they accept as much, none is."""
    order = [workload for round_ in range(8) for workload in (("easy", "hard", "easy", "easy")[round_ % 2 :])]

    def answers(carried: int) -> list[Generation]:
        before, records = "easy", []
        for number, workload in enumerate(order):
            accepted = carried if workload == "easy" and before == "hard" else 14
            records.append(replace(drafted(number, accepted + number % 2, workload), canary=f"c-{number % 3}"))
            before = workload
        return records

    (finding,) = carried_over(answers(2), "easy", "work")

    assert "right after a request of hard" in finding.detail
    assert () == carried_over(answers(14), "easy", "work")
