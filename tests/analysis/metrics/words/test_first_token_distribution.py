"""Whether one distribution can have given the first tokens of both arms."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from gatekeeper.analysis.metrics.words.first_token_distribution import (
    FALSE_ALARM,
    SAMPLES,
    SCOUT,
    SCOUTED,
    SCOUTS,
    FirstTokens,
    chi_square,
    chosen_prompts,
    detectable_change,
    distribution_test,
    first_tokens_of,
    p_value,
    scouted_prompts,
)
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Role, setting
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.verdict import Estimate, Missing
from tests.builders.golden_words import says


def drawn(rng: np.random.Generator, shares: list[float], count: int = SAMPLES) -> list[FirstTokens]:
    return [(int(token),) for token in rng.choice(len(shares), size=count, p=shares)]


def record(arm: str, token: int, canary: str = "a", fault: str | None = None) -> Generation:
    answer = Answer(0, 9, arrivals=(Arrival(1, 1, None, token),), fault=fault)
    return Generation("s", f"{arm}{token}", "w", canary, arm, setting(draft=None), Role.DRAW, 0, "", 1, answer)


@pytest.mark.parametrize("seed", range(5))
def test_the_statistic_is_scipys(seed: int) -> None:
    """
    For one position the statistic is scipy's chi-square of the contingency table, without its correction.
    """
    rng = np.random.default_rng(seed)
    candidate, twin = drawn(rng, [0.5, 0.3, 0.2], 60), drawn(rng, [0.4, 0.3, 0.3], 80)
    table = [[sum(start == (kind,) for start in arm) for kind in range(3)] for arm in (candidate, twin)]

    statistic = chi_square(np.repeat([1.0, 0.0], [60, 80])[None, :], [*candidate, *twin])[0]

    assert statistic == pytest.approx(stats.chi2_contingency(table, correction=False).statistic)


@pytest.mark.parametrize("seed", range(5))
def test_the_p_value_is_near_the_asymptotic_one(seed: int) -> None:
    """
    With few tokens and many draws the permutation's p-value is scipy's, within its own error.
    """
    rng = np.random.default_rng(seed)
    candidate, twin = drawn(rng, [0.5, 0.3, 0.2], 400), drawn(rng, [0.45, 0.3, 0.25], 400)
    table = [[sum(start == (kind,) for start in arm) for kind in range(3)] for arm in (candidate, twin)]

    permuted = p_value([(candidate, twin)], seed)

    assert permuted == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue, abs=0.03)


@pytest.mark.whole
def test_alike_arms_are_seldom_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Arms of one distribution give p-values spread as chance spreads them: about five of a hundred below 0.05.
    """
    monkeypatch.setattr(
        "gatekeeper.analysis.metrics.words.first_token_distribution.SHUFFLES", 499
    )  # exact for any number of them
    rng = np.random.default_rng(3)
    p_values = [p_value([(drawn(rng, [0.6, 0.3, 0.1]), drawn(rng, [0.6, 0.3, 0.1]))], at) for at in range(100)]

    assert stats.kstest(p_values, "uniform").pvalue > 0.001
    assert sum(value <= 0.05 for value in p_values) <= stats.binom.ppf(0.999, 100, 0.05)


@pytest.mark.whole
def test_a_shift_of_the_stated_size_is_seen() -> None:
    """
    A start whose share moves by what `detectable` says is refused at least eight times in ten.
    """
    rng = np.random.default_rng(4)
    shift = detectable_change(0.4, SAMPLES)
    shifted = [0.4 + shift, 0.6 - shift]

    refusals = [p_value([(drawn(rng, shifted), drawn(rng, [0.4, 0.6]))], at) < FALSE_ALARM for at in range(60)]

    assert sum(refusals) >= 48


def test_the_same_draws_differ_in_nothing() -> None:
    """
    Arms that drew the very same have the largest p-value there is.
    """
    draws: list[FirstTokens] = [(1,), (2,), (2,)] * 40

    assert p_value([(draws, draws)], 1) == 1.0


def test_lost_draws_prove_nothing() -> None:
    """
    Nothing drawn, too many faults in one arm, or a prompt too few: no p-value.
    """
    plain = [record("plain", at % 2) for at in range(SAMPLES)]
    faulty = [record("candidate", at % 2, fault="died" if at < 10 else None) for at in range(SAMPLES)]
    sound = [record("candidate", at % 2) for at in range(SAMPLES)]

    assert isinstance(distribution_test([], 1, 1), Missing)
    assert isinstance(distribution_test([*plain, *faulty], 1, 1), Missing)
    assert isinstance(distribution_test([*plain, *sound], 2, 1), Missing)
    assert isinstance(distribution_test([*plain, *sound], 1, 1), Estimate)


def starts(share: float, of: str = "a", arm: str = "plain") -> list[Generation]:
    """Samples of which this share begins with the token 0, the others with 1."""
    return [record(arm, int(at >= share * SAMPLES), of) for at in range(SAMPLES)]


@pytest.mark.parametrize(("share", "proves"), [(1.0, False), (0.8, False), (0.6, True)])
def test_starts_without_entropy_prove_nothing(share: float, proves: bool) -> None:
    """
    Where plain decoding starts alike, equal arms are unproven: a draft that always takes that start would be unseen.
    """
    result = distribution_test([*starts(share), *starts(share, arm="candidate")], 1, 1)

    assert proves == isinstance(result, Estimate)
    assert proves or "always takes it" in getattr(result, "because", "")


def test_one_prompt_with_entropy_is_enough() -> None:
    """
    Two prompts that start alike take nothing from a third that does not.
    """
    groups = [
        starts(share, of, arm) for share, of in ((1.0, "a"), (1.0, "b"), (0.5, "c")) for arm in ("plain", "candidate")
    ]

    assert isinstance(distribution_test([draw for group in groups for draw in group], 3, 1), Estimate)


def test_a_difference_counts_without_entropy() -> None:
    """
    A draft that samples where plain decoding does not is refused.
    """
    result = distribution_test([*starts(1.0), *starts(0.5, arm="candidate")], 1, 1)

    assert isinstance(result, Estimate)
    assert result.hi < FALSE_ALARM


def test_prompts_are_chosen_for_entropy() -> None:
    """
    Of the shortest prompts those are taken whose answers start in the most ways; scouts are no samples of the test.
    """
    canaries = [Canary(id=f"c-{at:02}", messages=({"role": "user", "content": "?" * (at + 1)},)) for at in range(20)]
    kinds = {3: 8, 7: 4, 11: 2}
    scouts = [
        replace(record("plain", at % kinds.get(number, 1), f"c-{number:02}"), pair=SCOUT)
        for number in range(SCOUTED)
        for at in range(SCOUTS)
    ]

    assert [f"c-{number:02}" for number in range(12)] == [
        scouted_prompt.id for scouted_prompt in scouted_prompts(canaries)
    ]
    assert ["c-03", "c-07", "c-11"] == [chosen_prompt.id for chosen_prompt in chosen_prompts(canaries, scouts)]
    assert ["c-00", "c-01", "c-02"] == [chosen_prompt.id for chosen_prompt in chosen_prompts(canaries, ())]
    assert [] == scouted_prompts(canaries[:3])
    assert isinstance(distribution_test(scouts, 3, 1), Missing)


def test_the_power_is_said() -> None:
    """
    The estimate says how many draws it rests on and what it would have seen.
    """
    records = [record(arm, at % 2) for arm in ("plain", "candidate") for at in range(SAMPLES)]

    result = distribution_test(records, 1, 1)

    assert isinstance(result, Estimate)
    assert "drawn" not in result.notes[0]
    says("estimates", "the power is said", result.notes[0])


def test_tokens_are_the_first_three() -> None:
    """
    Three tokens are compared; an early end is a token of its own; without ids what was said stands for them.
    """
    ids = Answer(0, 9, arrivals=tuple(Arrival(at, 1, None, at) for at in range(5)))
    brief = Answer(0, 9, arrivals=(Arrival(1, 1, None, 7),))

    assert ((0, 1, 2), (7, "end", "end"), ("hi",), ("hm",)) == (
        first_tokens_of(ids),
        first_tokens_of(brief),
        first_tokens_of(Answer(0, 9, text="hi")),
        first_tokens_of(Answer(0, 9, reasoning="hm")),
    )
