"""The example of docs/method.md: one canary, one pair, one interval, one bound of a stored run."""

from pathlib import Path

import pytest

from gatekeeper.analysis.metrics.checks import check_bound
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.readers import speeds_of
from gatekeeper.analysis.metrics.timing import output_tokens
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import soak_answers
from gatekeeper.core.judgement import Estimate, Outcome
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.system.inputs import load_manifest, stored_inputs
from gatekeeper.core.system.run_directory import MANIFEST, RunDirectory
from gatekeeper.run.stored.load import load_case

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "golden" / "runs" / "against_certified"
RATIO = "throughput_ratio"


def example() -> str:
    return " ".join((ROOT / "docs" / "method.md").read_text("utf-8").split())


@pytest.fixture(scope="module")
def answers() -> PairedAnswers:
    """Return the pairs of the run's soak."""
    directory = RunDirectory(RUN)
    text = directory.text(MANIFEST)
    manifest = load_manifest(text.encode())
    inputs, _ = stored_inputs(directory, manifest)
    knobs = (("draft", "heavy"), ("num_draft_tokens", 4))
    case = load_case(directory, inputs, manifest, text)
    return soak_answers(case, SoakPlan("soak-1", {"chat": knobs}, knobs), "chat")


def test_the_pair_of_the_example_is_that_of_the_records(answers: PairedAnswers) -> None:
    """The tokens and the seconds of the canary's pair, and the fastest and the slowest pair, are as the text says."""
    speeds, before, _ = speeds_of(RATIO, answers)
    (speed,) = (speed for speed in speeds if speed.canary == "chat-004")
    (tokens,) = {
        output_tokens(answer.answer) for pair in answers.pairs for answer in pair if answer.canary == "chat-004"
    }
    gains = sorted(speed.plain_s / speed.candidate_s for speed in speeds)

    for figure in (
        f"{tokens} tokens plainly",
        f"{speed.plain_s:.3f} s for these tokens and the draft {speed.candidate_s:.3f} s",
        f"{speed.plain_s / speed.candidate_s:.2f} times as fast",
        f"the other {len(speeds) - 1} lie between {gains[0]:.2f} and {gains[-1]:.2f}",
        f"{len(speeds)} pairs are of {len({speed.canary for speed in speeds})} canaries",
    ):
        assert figure in example()
    assert "twelve pairs of the sweep" in example()
    assert 12 == len(before)


def test_the_interval_of_the_example_decides_its_bounds(answers: PairedAnswers) -> None:
    """The interval for these canaries and for prompts like them is as the text says, and so are three outcomes."""
    interval = estimate(RATIO, answers)
    assert isinstance(interval, Estimate)
    assert interval.population is not None
    outcomes = {
        bound: check_bound(BY_NAME[RATIO], "at_least", bound, interval, why="").outcome for bound in (1.1, 2.4, 2.5)
    }

    assert f"{interval.center:.3f} times as long" in example()
    assert f"{interval.lo:.3f} to {interval.hi:.3f} for these canaries" in example()
    assert f"{interval.population.lo:.3f} to {interval.population.hi:.3f}" in example()
    assert {1.1: Outcome.PASS, 2.4: Outcome.UNPROVEN, 2.5: Outcome.FAIL} == outcomes
