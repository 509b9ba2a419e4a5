"""Whether one distribution can have given the first tokens of both arms."""

import numpy as np
import pytest
from scipy import stats

from gatekeeper.analysis.metrics.first_tokens import (
    FALSE_ALARM,
    SAMPLES,
    FirstTokens,
    chi_square,
    detectable_change,
    distribution_test,
    first_tokens_of,
    p_value,
)
from gatekeeper.core.records import Answer, Arrival, Generation, Role, setting
from gatekeeper.core.verdict import Estimate, Missing


def drawn(rng: np.random.Generator, shares: list[float], count: int = SAMPLES) -> list[FirstTokens]:
    return [(int(one),) for one in rng.choice(len(shares), size=count, p=shares)]


def record(arm: str, token: int, canary: str = "a", fault: str | None = None) -> Generation:
    answer = Answer(0, 9, arrivals=(Arrival(1, 1, None, token),), fault=fault)
    return Generation("s", f"{arm}{token}", "w", canary, arm, setting(draft=None), Role.DRAW, 0, "", 1, answer)


@pytest.mark.parametrize("seed", range(5))
def test_the_statistic_is_scipys(seed: int) -> None:
    """
    For one position the statistic is scipy's chi-square of the contingency table, without its correction.
    """
    rng = np.random.default_rng(seed)
    mine, twin = drawn(rng, [0.5, 0.3, 0.2], 60), drawn(rng, [0.4, 0.3, 0.3], 80)
    table = [[sum(one == (kind,) for one in arm) for kind in range(3)] for arm in (mine, twin)]

    ours = chi_square(np.repeat([1.0, 0.0], [60, 80])[None, :], [*mine, *twin])[0]

    assert ours == pytest.approx(stats.chi2_contingency(table, correction=False).statistic)


@pytest.mark.parametrize("seed", range(5))
def test_the_p_value_is_near_the_asymptotic_one(seed: int) -> None:
    """
    With few tokens and many draws the permutation's p-value is scipy's, within its own error.
    """
    rng = np.random.default_rng(seed)
    mine, twin = drawn(rng, [0.5, 0.3, 0.2], 400), drawn(rng, [0.45, 0.3, 0.25], 400)
    table = [[sum(one == (kind,) for one in arm) for kind in range(3)] for arm in (mine, twin)]

    ours = p_value([(mine, twin)], seed)

    assert ours == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue, abs=0.03)


def test_alike_arms_are_seldom_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Arms of one distribution give p-values spread as chance spreads them: about five of a hundred below 0.05.
    """
    monkeypatch.setattr("gatekeeper.analysis.metrics.first_tokens.SHUFFLES", 499)  # exact for any number of them
    rng = np.random.default_rng(3)
    seen = [p_value([(drawn(rng, [0.6, 0.3, 0.1]), drawn(rng, [0.6, 0.3, 0.1]))], at) for at in range(100)]

    assert stats.kstest(seen, "uniform").pvalue > 0.001
    assert sum(one <= 0.05 for one in seen) <= stats.binom.ppf(0.999, 100, 0.05)


def test_a_shift_of_the_stated_size_is_seen() -> None:
    """
    A start whose share moves by what `detectable` says is refused at least eight times in ten.
    """
    rng = np.random.default_rng(4)
    moved = detectable_change(0.4, SAMPLES)
    shifted = [0.4 + moved, 0.6 - moved]

    seen = [p_value([(drawn(rng, shifted), drawn(rng, [0.4, 0.6]))], at) < FALSE_ALARM for at in range(60)]

    assert sum(seen) >= 48


def test_the_same_draws_differ_in_nothing() -> None:
    """
    Arms that drew the very same have the largest p-value there is.
    """
    same: list[FirstTokens] = [(1,), (2,), (2,)] * 40

    assert p_value([(same, same)], 1) == 1.0


def test_lost_draws_prove_nothing() -> None:
    """
    Nothing drawn, too many faults in one arm, or a prompt too few: no p-value.
    """
    plain = [record("plain", at % 2) for at in range(SAMPLES)]
    faulty = [record("candidate", at % 2, fault="died" if at < 10 else None) for at in range(SAMPLES)]
    whole = [record("candidate", at % 2) for at in range(SAMPLES)]

    assert isinstance(distribution_test([], 1, 1), Missing)
    assert isinstance(distribution_test([*plain, *faulty], 1, 1), Missing)
    assert isinstance(distribution_test([*plain, *whole], 2, 1), Missing)
    assert isinstance(distribution_test([*plain, *whole], 1, 1), Estimate)


def test_the_power_is_said() -> None:
    """
    The estimate says how many draws it rests on and what it would have seen.
    """
    records = [record(arm, at % 2) for arm in ("plain", "candidate") for at in range(SAMPLES)]

    seen = distribution_test(records, 1, 1)

    assert isinstance(seen, Estimate)
    assert "drawn" not in seen.notes[0]
    assert "120 samples per arm; for a first token with a share of 50 % a change of 30 %" in seen.notes[0]


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
