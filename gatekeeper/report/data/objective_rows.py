"""The objectives of a run that failed or are not proven, with every setting that was tried."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.remedies import drafts_in_the_end, failed_remedy, passes_at, remedy
from gatekeeper.analysis.verdict.run_verdict import AbandonedStep, Verdict, WorkloadOutcome
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.metrics import BY_NAME, shown_as
from gatekeeper.core.records import Knobs
from gatekeeper.core.units import show, show_interval
from gatekeeper.report.data.workload_summary import best_first


@dataclass(frozen=True, slots=True)
class ObjectiveRow:
    """An objective that failed or is not proven, with the setting that decides, or all that were given up.

    The closest comes first.
    """

    about: str
    """A workload, or `host`."""
    tried: tuple[tuple[Knobs, Check], ...]
    blocking: bool
    """The exit code follows from it."""
    abandoned: bool
    """Every setting of it was given up for the next step of the fallback ladder."""
    remedy: str

    @property
    def check(self) -> Check:
        """Return the check that came closest to passing."""
        return self.tried[0][1]

    @property
    def setting(self) -> Knobs:
        """Return the setting of that check."""
        return self.tried[0][0]

    @property
    def passes_at(self) -> str | None:
        """Write the bound at which the objective would have passed: ≤ 0.16; None for one that was not measured."""
        limit = passes_at(self.check)
        if limit is None:
            return None
        return f"{'≥' if self.check.bound == 'at_least' else '≤'} {BY_NAME[self.check.metric].show(limit)}"


def objective_rows(verdict: Verdict) -> Iterable[ObjectiveRow]:
    """Return the failed objectives, those the exit code follows from first, and then those that are not proven."""
    tried: dict[tuple[str, str, str, float], list[tuple[Knobs, Check, bool, bool]]] = {}

    def note(about: str, setting: Knobs, checks: Sequence[Check], *, over: bool, blocking: bool) -> None:
        for check in checks:
            key = about, check.metric, check.bound, check.threshold
            tried.setdefault(key, []).append((setting, check, over, blocking))

    for workload in verdict.workloads:
        back = workload.outcome is WorkloadOutcome.GRADED_BACK and workload.required
        for step in best_first(workload):
            note(workload.name, step.setting, _standing(step), over=True, blocking=back)
            failed = [check for check in step.host_checks if check.outcome is Outcome.FAIL]
            note("host", step.setting, failed, over=True, blocking=back)
        bad = [check for check in workload.checks if check.outcome is not Outcome.PASS]
        note(workload.name, workload.setting, bad, over=False, blocking=True)
    bad = [check for check in verdict.host_checks if check.outcome is not Outcome.PASS]
    note("host", {}, bad, over=False, blocking=True)
    host_drafting = drafts_in_the_end(verdict)
    rows = []
    for (about, *_), attempts in tried.items():
        deciding = [attempt for attempt in attempts if not attempt[2]] or attempts
        worst = max(check.outcome for _, check, _, _ in deciding)
        closest_first = sorted(
            ((s, check) for s, check, _, _ in deciding if check.outcome is worst), key=lambda pair: -_nearness(pair[1])
        )
        rows.append(
            ObjectiveRow(
                about,
                tuple(closest_first),
                any(blocking for *_, blocking in attempts),
                all(over for _, _, over, _ in attempts),
                failed_remedy(
                    closest_first[0][1],
                    drafting=bool(closest_first[0][0].get("draft")) or (about == "host" and host_drafting),
                )
                if worst is Outcome.FAIL
                else remedy(closest_first[0][1]),
            )
        )
    return sorted(rows, key=lambda row: (not row.blocking, -row.check.outcome))


def _standing(step: AbandonedStep) -> list[Check]:
    """Return the checks that a setting was given up for."""
    failed = [check for check in step.checks if check.outcome is Outcome.FAIL]
    if failed or step.host_checks:
        return failed
    return [check for check in step.checks if check.outcome is Outcome.UNPROVEN and BY_NAME[check.metric].speed_ratio]


def _nearness(check: Check) -> float:
    """Order checks of one objective by the end of the interval that decides, the closest to passing highest."""
    end = check.lo if check.bound == "at_least" else check.hi
    if end is None:
        return float("-inf")
    return end if check.bound == "at_least" else -end


def states(check: Check) -> str:
    """Write what was measured against the bound: +13 % to +16 %, at most +8 % allowed."""
    metric = shown_as(BY_NAME[check.metric], check.against)
    limit = metric.show(check.threshold)
    rule = f"at least {limit} required" if check.bound == "at_least" else f"at most {limit} allowed"
    rule += f" against the {check.against} run" if check.against is not None else ""
    return f"{show_measurement(check)}, {rule}"


def show_measurement(check: Check) -> str:
    """Write what was measured, with its interval where it is one: 2.12x [2.08, 2.16]."""
    if check.center is None:
        return "not measured"
    ends = (check.center, check.lo, check.hi)
    if (metric := BY_NAME.get(check.metric)) is not None:
        return shown_as(metric, check.against).show_interval(*ends)
    return show_interval(*("?" if end is None else show(end, check.unit) for end in ends))
