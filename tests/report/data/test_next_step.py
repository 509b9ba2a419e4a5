"""What to do after a run: one advice, from what decided it, and a command."""

import tomllib
from dataclasses import replace

import pytest

from gatekeeper.analysis.remedies import HOST_REMEDY
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Doubt, Finding, FindingKind, Outcome
from gatekeeper.report.data.decision import decide
from gatekeeper.report.data.next_step import FASTER_DRAFT, LITTLE_DEMOS
from tests.builders.project_folder import ROOT


def check(metric: str = "throughput_ratio", bound: str = "at_least", outcome: Outcome = Outcome.FAIL) -> Check:
    return Check(metric, bound, 1.16, outcome, unit="1", because="because", why="why")


HEADROOM = check("memory_headroom")
THROTTLED = check("throttle_time", "at_most")


def verdict(*checks: Check, host_checks: tuple[Check, ...] = (), **changes: object) -> Verdict:
    """Return a verdict whose one workload fails *checks*, or meets its objectives."""
    outcomes = {
        Outcome.PASS: WorkloadOutcome.PROMOTED,
        Outcome.UNPROVEN: WorkloadOutcome.UNPROVEN,
        Outcome.FAIL: WorkloadOutcome.FAILED,
    }
    outcome = outcomes[max((check.outcome for check in checks), default=Outcome.PASS)]
    workload = WorkloadVerdict("easy", outcome, {"draft": "d"}, False, "of its checks", checks)
    return replace(Verdict("made", "certification", "abc", (workload,), host_checks), **changes)  # type: ignore[arg-type]


def plainly(decided: Verdict, **changes: object) -> Verdict:
    """Return the verdict where nothing drafts."""
    workload = replace(decided.workloads[0], setting={"draft": None}, **changes)  # type: ignore[arg-type]
    return replace(decided, workloads=(workload,))


def test_advice_on_the_machine_names_no_draft_where_plain_decoding_fails_too() -> None:
    """The host's own remedies, each once; the draft is named where one ran."""
    plain = plainly(verdict(host_checks=(HEADROOM,)))

    assert f"{HOST_REMEDY}, then certify again" == decide(plain).advice
    cool = decide(plainly(verdict(host_checks=(THROTTLED,)))).advice
    assert cool.startswith("cool the host")
    assert "draft" not in cool
    assert "lighter draft" in decide(verdict(host_checks=(HEADROOM,))).advice


def test_a_sweep_without_a_faster_setting_is_advised_on_the_draft() -> None:
    """No objective failed where the sweep proved every draft slower, and the SLO requires one."""
    graded_back = plainly(verdict(), outcome=WorkloadOutcome.GRADED_BACK, required=True)

    assert f"{FASTER_DRAFT}, then certify again" == decide(graded_back).advice


@pytest.mark.parametrize("kind", [FindingKind.VIRTUAL_MAC, FindingKind.HOST_SLEPT, FindingKind.POWER_LOST])
@pytest.mark.parametrize("host_checks", [(), (HEADROOM,)])
def test_what_disqualifies_a_run_is_advised_on_first(kind: FindingKind, host_checks: tuple[Check, ...]) -> None:
    """Neither busy programs nor a failed objective come before a machine that can prove nothing as it is."""
    findings = (
        Finding(FindingKind.BUSY_MACHINE, "during soak-1", "other programs used 4 of 10 cores"),
        Finding(kind, "soak-1, host", "what happened", "mend the host"),
    )
    decision = decide(verdict(check(outcome=Outcome.UNPROVEN), findings=findings, host_checks=host_checks), extend=600)

    assert ("mend the host", "gatekeeper certify {slo}") == (decision.advice, decision.next)


def test_a_doubt_of_the_whole_run_is_advised_on_before_a_busy_machine() -> None:
    """On another host than the SLO's, or where records were changed, closing programs proves nothing."""
    busy = Finding(FindingKind.BUSY_MACHINE, "during soak-1", "other programs used 4 of 10 cores")
    doubt = Doubt("chip is 'B' on this host, the SLO is for 'A'", "certify there", "gatekeeper init")
    doubted = verdict(
        replace(check(outcome=Outcome.UNPROVEN), center=1.2), findings=(busy,), incomplete="it", doubts=(doubt,)
    )

    decision = decide(doubted)

    assert ("certify there", "gatekeeper init") == (decision.advice, decision.next)


def test_what_is_open_is_advised_on_by_its_own_remedy() -> None:
    """Without a cause of its own, a run that is not proven needs what its objective needs."""
    is_open = replace(check("ttft", "at_most", Outcome.UNPROVEN), because="this server does not report its first token")

    advice = decide(verdict(is_open)).advice

    assert "use a server that reports it; else remove the objective, then certify again" == advice


def test_a_promoted_demo_leads_on_by_whose_models_it_is_of() -> None:
    """Of the little pair to an SLO of one's own; of one's own SLO to a soak that is long enough."""
    little, own = (decide(verdict(slo=name, grade="demo")) for name in ("smoke", "made"))

    assert ("gatekeeper init", "gatekeeper certify {slo}") == (little.next, own.next)
    assert "600 s" in own.advice


def test_the_demos_of_the_little_pair_are_those_that_ship() -> None:
    """A name that is no such file, or a file that is missing here, is an error."""
    shipped = [tomllib.loads(path.read_text()) for path in (ROOT / "slos").glob("*.toml")]
    demos = {slo["name"] for slo in shipped if "little-target" in slo["subject"].get("target", "")}

    assert demos == LITTLE_DEMOS
