"""Records that are missing or damaged never improve an outcome, whatever is lost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.judgement import Doubt
from gatekeeper.core.records import Generation, StoredRecords
from tests.builders.case import FAILING, LOSING, WINNING, Made, bare, sample, with_soak
from tests.builders.slo import objective

GOODNESS = {"promoted": 3, "graded_back": 2, "unproven": 1, "failed": 0}


def _run(case: Case, speeds: Made, footprint: float = 0.0) -> Case:
    while needs := conclude(case).needs:
        for leg in needs:
            case = with_soak(case, leg, speeds)
            if footprint:
                samples = tuple(sample(second, footprint, phase=leg.name) for second in range(0, 601, 10))
                case = replace(case, interval=10.0, host_samples=(*case.host_samples, *samples))
    return case


HOST = (objective("throughput_ratio", at_least=1.1), objective("footprint_peak", at_most="4 GB"))
CASES: dict[str, tuple[Callable[[], Case], str]] = {
    "promoted": (lambda: _run(bare({"easy": WINNING, "hard": LOSING}, optional=("hard",)), WINNING), "promoted"),
    "graded back": (lambda: _run(bare({"easy": WINNING}), FAILING), "graded_back"),
    "failed": (
        lambda: _run(bare({"hard": LOSING}, objectives=(objective("ttft", at_most=0.001),)), LOSING),
        "failed",
    ),
    "host failed": (lambda: _run(bare({"easy": WINNING}, objectives=HOST), WINNING, 5e9), "failed"),
    "apart": (
        lambda: _run(bare({"easy": WINNING, "hard": LOSING}, shares=False, optional=("hard",)), WINNING),
        "promoted",
    ),
}


@cache
def case_of(name: str) -> Case:
    """Return the case of that name, made when it is first wanted."""
    return CASES[name][0]()


@cache
def verdict_of(name: str) -> Verdict:
    """Return what the undamaged case ends in."""
    return conclude(case_of(name)).verdict


def damaged(draw: st.DrawFn, files: Mapping[str, StoredRecords[Generation]]) -> dict[str, StoredRecords[Generation]]:
    """Lose whole files, or records of them; the store tells of both."""
    files_left: dict[str, StoredRecords[Generation]] = {}
    for name, recorded in files.items():
        fate = draw(st.sampled_from(["kept", "kept", "lost", "cut", "holed"]))
        answers: Sequence[Generation] = recorded.records
        if fate == "kept":
            files_left[name] = recorded
        elif fate == "cut":
            files_left[name] = StoredRecords(answers[: draw(st.integers(0, len(answers)))], "cut off inside a line")
        elif fate == "holed":
            start = draw(st.integers(0, len(answers)))
            stop = draw(st.integers(start, len(answers)))
            files_left[name] = StoredRecords(
                (*answers[:start], *answers[stop:]), "its closing line says another number"
            )
    return files_left


@st.composite
def losses(draw: st.DrawFn, case: Case) -> Case:
    count = draw(st.integers(0, len(case.host_samples)))
    lost_samples = bool(case.host_samples) and draw(st.booleans())
    return replace(
        case,
        sweep=damaged(draw, case.sweep),
        soaks=damaged(draw, case.soaks),
        host_samples=case.host_samples[:count] if lost_samples else case.host_samples,
        host_trouble="cut off" if lost_samples else None,
        doubts=(Doubt("host.jsonl: cut off"),) if lost_samples else (),  # as the judge of a stored run says it
    )


@pytest.mark.whole
@pytest.mark.parametrize("name", CASES)
def test_the_cases_end_as_they_should(name: str) -> None:
    """Undamaged, each case ends in the outcome it stands for."""
    assert CASES[name][1] == verdict_of(name).outcome


@pytest.mark.whole
@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_lost_records_never_improve_an_outcome(name: str, data: st.DataObject) -> None:
    """Neither the run's outcome nor any workload's gets better; a lost failure may become unproven."""
    case, before = case_of(name), verdict_of(name)

    hurt = data.draw(losses(case))
    after = conclude(hurt).verdict

    lost = hurt.sweep != case.sweep or hurt.soaks != case.soaks or bool(hurt.doubts)
    pairs = [(before.outcome, after.outcome)]
    pairs += [(workload.outcome, two.outcome) for workload, two in zip(before.workloads, after.workloads, strict=True)]
    for was, now in pairs:
        assert GOODNESS[now] <= max(GOODNESS[was], GOODNESS["unproven"])
    assert not lost or after.exit_code != 0
