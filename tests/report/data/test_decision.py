"""The decision of a run: its headline, the figures of each workload, and the objectives that stand against it."""

from dataclasses import replace
from functools import cache

import pytest

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.remedies import PLAIN_REMEDY, extension
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Finding, FindingKind, Outcome
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.report.data.decision import Decision, decide
from tests.builders.case import FAILING, LOSING, WINNING, Made, bare, concluded, with_soak
from tests.builders.golden_words import says
from tests.builders.page_data import DRAFTED, VERDICT, check

POLICY = 'expires = "2026-12-22T15:00:00.000000Z"\n'


@cache
def made(**workloads: Made) -> Verdict:
    """Return the verdict of a whole run in which every soak is like its workload, and `hard` is optional."""
    case = bare(workloads, optional=("hard",))
    while needs := conclude(case).needs:
        for leg in needs:
            case = with_soak(case, leg, {name: workloads[name] for name in leg.settings})
    return conclude(case).verdict


@cache
def graded_back() -> Decision:
    """Return a run whose sweep wins and whose soaks all fail the ratio: each step is given up."""
    return decide(concluded(bare({"easy": WINNING}), FAILING).verdict, policy=POLICY)


def test_what_would_gain_is_said_where_nothing_changes() -> None:
    """A promoted workload of an unproven run is not deployed; the advice names the key that lets it go."""
    verdict = made(easy=WINNING, hard=LOSING)
    easy, hard = verdict.workloads
    optional, required = (
        decide(replace(verdict, workloads=(easy, replace(hard, outcome=WorkloadOutcome.UNPROVEN, required=required))))
        for required in (False, True)
    )

    says("reports", "what would gain is said where nothing changes", optional.headline)
    says("reports", "what is proven although another must draft", required.advice)


@pytest.mark.parametrize(
    ("metric", "center", "about", "names_programs"),
    [
        ("throughput_ratio", 1.2, "during soak-1", True),
        ("throughput_ratio", 1.2, "during the sweep", False),
        ("throughput_ratio", None, "during soak-1", False),
        ("token_agreement", 0.9, "during soak-1", False),
    ],
)
def test_a_verdict_that_is_open_because_of_a_busy_machine_names_the_programs(
    metric: str, center: float | None, about: str, *, names_programs: bool
) -> None:
    """In one sentence, where an interval of times is open and its soak was disturbed; not where too little was
    measured.
    """
    verdict = made(easy=WINNING)
    (easy,) = verdict.workloads
    is_open = replace(check(metric, "at_least", 1, Outcome.UNPROVEN), center=center, because="the interval is too wide")
    easy = replace(easy, outcome=WorkloadOutcome.UNPROVEN, checks=(is_open,))
    busy = Finding(FindingKind.BUSY_MACHINE, about, "other programs used 1.6 of 2 cores: mds 1.6")

    advice = decide(replace(verdict, workloads=(easy,), findings=(busy,))).advice

    sentence = f"{about} other programs used 1.6 of 2 cores: mds 1.6: close them, then certify again"
    assert (advice == sentence) == names_programs


def test_an_open_setting_counts_and_not_those_that_were_given_up_before_it() -> None:
    """A step that failed is history where the next one is still open: the row is of the open one."""
    verdict = graded_back().verdict
    (easy,) = verdict.workloads
    ratio = next(check for check in easy.steps[0].checks if check.metric == "throughput_ratio")
    is_open = replace(ratio, outcome=Outcome.UNPROVEN, because="not decided")

    decision = decide(replace(verdict, workloads=(replace(easy, outcome=WorkloadOutcome.UNPROVEN, checks=(is_open,)),)))

    row = next(row for row in decision.rows if row.check.metric == "throughput_ratio")
    assert (Outcome.UNPROVEN, 1, False) == (row.check.outcome, len(row.tried), row.abandoned)


def test_the_broken_objective_of_every_step_is_a_row() -> None:
    """Three settings failed a ratio: one row of it, the closest setting first, with the bound that would have
    passed.
    """
    decision = graded_back()

    row, whole = decision.rows
    assert ("answer_throughput_ratio", Outcome.FAIL) == (whole.check.metric, whole.check.outcome)
    assert ("easy", "throughput_ratio", Outcome.FAIL) == (row.about, row.check.metric, row.check.outcome)
    assert (3, True, True, "≥ 0.89x") == (len(row.tried), row.blocking, row.abandoned, row.passes_at)
    assert row.check.lo == max(tried_check.lo or 0.0 for _, tried_check in row.tried)
    says("reports", "the broken objective of every step is a row: headline", decision.headline)
    assert decision.reason is not None
    says("reports", "the broken objective of every step is a row: reason", decision.reason)


def test_the_figures_of_a_plain_route_are_those_of_the_best_setting_given_up() -> None:
    """The speed of the soak counts, not the better one of the sweep; without a soak the sweep's best is named."""
    (soaked,) = graded_back().workloads
    (_, swept) = decide(made(easy=WINNING, hard=LOSING)).workloads

    assert soaked.speed is not None
    assert ("abandoned", 0.9) == (soaked.speed.source, round(soaked.speed.center, 1))
    assert (20, 18) == (round(soaked.plain or 0), round(soaked.drafting or 0))
    assert swept.speed is not None
    assert ("sweep", None, False) == (swept.speed.source, swept.drafting, swept.on)
    assert swept.speed.where.endswith("in the sweep")


def test_a_step_that_a_promoted_workload_gave_up_does_not_block() -> None:
    """A shorter draft passes what the longer one failed: the row stays, and nothing follows from it."""
    case = bare({"easy": WINNING})
    decision = decide(concluded(with_soak(case, conclude(case).needs[0], FAILING)).verdict)

    assert [(False, True), (False, True)] == [(row.blocking, row.abandoned) for row in decision.rows]
    assert decision.reason is None


def undecided() -> Case:
    """Return a run whose soak leaves the ratio of a required workload open."""
    case = bare({"easy": WINNING}, soak={"max_duration": "600 s"})
    return with_soak(case, conclude(case).needs[0], Made(1.101, noise=0.04))


def test_an_open_interval_is_offered_the_soak_that_decides_it() -> None:
    """The offer names the minutes; a run that is decided, or that no soak decides, gets none."""
    case = undecided()
    verdict = conclude(case).verdict
    more = extension(case, verdict)

    assert "unproven" == verdict.outcome
    assert more is not None
    assert (0.0, True) == (more % 60, more > 0)
    assert f"--extend {more / 60:.0f}m --output r" in decide(verdict, extend=more).next_step("s", "r")
    assert "--extend" not in decide(verdict).next
    assert None is extension(case, made(easy=WINNING))


def test_a_workload_nobody_measured_has_a_name_only() -> None:
    """A run that was interrupted before its soak says where, and claims nothing."""
    bare_one = WorkloadVerdict("easy", WorkloadOutcome.UNPROVEN, DRAFTED, True, "no soak yet", ())
    decision = decide(
        Verdict("made", "certification", "f", (bare_one,), incomplete="unfinished"), unfinished="in the sweep"
    )

    says("reports", "a workload nobody measured has a name only: headline", decision.headline)
    assert (None, None) == (decision.workloads[0].speed, decision.reason)
    says("reports", "a workload nobody measured has a name only: next step", decision.next_step("s", "r"))


def test_a_failed_run_says_what_failed_whatever_else_is_unproven() -> None:
    """On a virtual Mac without free memory the reason of exit code 1 is the memory, and of exit code 3 the Mac."""
    workload = WorkloadVerdict("easy", WorkloadOutcome.UNPROVEN, DRAFTED, True, "this is a virtual Mac", ())
    verdict = Verdict("made", "certification", "f", (workload,), incomplete="this is a virtual Mac")
    headroom = check("memory_headroom", "at_least", 10e9, Outcome.FAIL, 3e9, 3e9, 3e9, unit="B")

    assert "this is a virtual Mac" == decide(verdict).reason
    reason = decide(replace(verdict, host_checks=(headroom,))).reason or ""
    assert "memory_headroom" in reason
    assert "virtual" not in reason


def test_plain_decoding_that_fails_gets_no_advice_about_a_draft() -> None:
    """Where the target itself misses a bound, a draft decides nothing; a failed step of drafting has the metric's
    advice.
    """
    failing = check("itl_p99", "at_most", 2.5, Outcome.FAIL, 4.0, 3.9, 4.1, unit="s")
    plain, drafting = (
        replace(VERDICT.workloads[1], outcome=WorkloadOutcome.FAILED, setting=setting, checks=(failing,))
        for setting in ({"draft": None}, DRAFTED)
    )

    remedies = [
        decide(replace(VERDICT, workloads=(workload,), host_checks=())).rows[0].remedy for workload in (plain, drafting)
    ]

    assert [PLAIN_REMEDY, BY_NAME["itl_p99"].remedy] == remedies


def test_a_headline_says_which_workload_fails_what() -> None:
    """Two workloads that fail other objectives have a clause each."""
    failed = tuple(
        replace(
            VERDICT.workloads[1],
            name=name,
            outcome=WorkloadOutcome.FAILED,
            checks=(check(metric, "at_most", 2.5, Outcome.FAIL, 4.0, 3.9, 4.1, unit="s"),),
        )
        for name, metric in (("easy", "itl_p99"), ("hard", "ttft"))
    )

    headline = decide(replace(VERDICT, workloads=failed, host_checks=())).headline

    says("reports", "a headline says which workload fails what", headline)
