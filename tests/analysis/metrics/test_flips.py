"""Graded answers that flip: which the pass deltas count, by what caused them."""

import pytest

from gatekeeper.analysis.metrics.checks import check_bound
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.pass_rates import Causes, pass_change
from gatekeeper.analysis.metrics.words.harm import HARMS
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Estimate, Outcome
from gatekeeper.core.metrics import BY_NAME
from tests.builders.golden_words import says

COUNT = 40


def changed(lost: int, won: int, *, numerics: int, unknown: int = 0) -> Estimate:
    """Return the change of the pass rate where the first canaries are lost and the next won, by their cause."""
    names = [f"c-{number:02}" for number in range(COUNT)]
    expect = {"equals": "x"}
    canaries = {
        name: Canary.model_validate({"id": name, "messages": [{"role": "user", "content": "?"}], "expect": expect})
        for name in names
    }
    paired = PairedAnswers("w", canaries, (), (), level=0.98, seed=1, greedy=True)
    now = {name: [number >= lost] for number, name in enumerate(names)}
    before = {name: [not lost <= number < lost + won] for number, name in enumerate(names)}
    causes = Causes(set(names[:numerics]), set(names[numerics : numerics + unknown]))
    change = pass_change(paired, None, now, before, "both arms", causes=causes)
    assert isinstance(change, Estimate)
    return change


@pytest.mark.parametrize(
    ("change", "center"),
    [
        ({"lost": 2, "won": 2, "numerics": 4}, 0.0),
        ({"lost": 2, "won": 0, "numerics": 0}, -2 / COUNT),
        ({"lost": 2, "won": 0, "numerics": 0, "unknown": 2}, -2 / COUNT),
        ({"lost": 3, "won": 0, "numerics": 1}, -2 / COUNT),
    ],
    ids=["numerics", "otherwise", "unknown", "each"],
)
def test_flips_by_numerics_are_not_the_drafts(change: dict[str, int], center: float) -> None:
    """What nothing explains counts, and what nothing shows counts too."""
    assert changed(**change).center == pytest.approx(center)


def test_numerics_that_lose_more_than_they_win_count_and_the_check_names_the_harm() -> None:
    """Twelve lost and none won are no chance: the reason begins with it."""
    harmed = changed(lost=12, won=0, numerics=12)
    check = check_bound(BY_NAME["task_pass_delta"], "at_least", 0.0, harmed, why="")

    assert harmed.center == pytest.approx(-12 / COUNT)
    assert harmed.shows == HARMS
    assert Outcome.FAIL is check.outcome
    says("estimates", "flips by numerics that harm", check.because)
