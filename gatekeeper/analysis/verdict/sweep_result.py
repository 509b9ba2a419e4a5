"""The result of a sweep: the setting it chooses for each workload, and findings about the system under test."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import model_serializer

from gatekeeper.analysis.metrics.order_effect import carried_over
from gatekeeper.analysis.metrics.paired_answers import successful
from gatekeeper.analysis.plan.settings import with_conditions
from gatekeeper.analysis.sweep.choice import Choice, choose, ratios_by_streams
from gatekeeper.analysis.sweep.setting_result import setting_results
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.soak_time import clock_ran_backwards
from gatekeeper.analysis.verdict.wrong_counters import counter_lie, impossible_counts, negative_control
from gatekeeper.core.document import WriteFields
from gatekeeper.core.judgement import Finding
from gatekeeper.core.records import Role, Setting
from gatekeeper.core.text import describe_setting


def sweep_choices(case: Case) -> tuple[dict[str, Choice], list[str]]:
    """Return the choice of the sweep per workload, and which of its records are damaged."""
    if case.plan.fixed is not None:
        fixed = Choice(with_conditions(case.slo, case.plan.fixed), "setting given on the command line, no sweep")
        return {workload.name: fixed for workload in case.slo.workload}, []
    broken = [
        f"{trial.file}: {trouble}" for trial in case.plan.trials if (trouble := _trouble(case, trial.name)) is not None
    ]
    choices = {}
    for workload in case.slo.workload:
        sweep = case.sweep_answers(workload.name)
        required = workload.speculation == "required"
        choice = choose(case.slo, setting_results(sweep), workload.name, required=required)
        by_streams = ratios_by_streams(sweep) if choice.results else ()
        choices[workload.name] = replace(
            choice, setting=with_conditions(case.slo, choice.setting), by_streams=by_streams
        )
    if broken:
        # Damaged records no longer show what the sweep chose; the soak's records do.
        for name, knobs in _soaked_first(case).items():
            if name in choices:
                because = "taken from the soak's records, because the sweep's are damaged"
                choices[name] = replace(choices[name], setting=knobs, because=because)
    return choices, broken


def negative_controls(case: Case) -> tuple[Finding, ...]:
    """Return findings about the default setting of the sweep, across all workloads."""
    default = next((trial.name for trial in case.plan.candidates), None)
    if default is None or default not in case.sweep:
        return ()
    canaries = {(name, canary.id): canary for name, members in case.canaries.items() for canary in members}
    finding = negative_control(case.sweep[default].records, canaries)
    return (finding,) if finding is not None else ()


def carried_in_sweep(case: Case) -> tuple[Finding, ...]:
    """Return a finding for each workload whose acceptance in the sweep depends on the request before.

    It is named here even where the sweep chooses plain decoding because of it, so that no soak speculates.
    """
    records = [record for answers in case.sweep_records.values() for record in answers]
    names = [workload.name for workload in case.slo.workload]
    return tuple(finding for name in names for finding in carried_over(records, name, f"{name}, sweep"))


@dataclass(frozen=True, slots=True)
class SweepConclusion:
    """What a sweep alone would choose for each workload, and what is wrong with the system under test."""

    slo: str
    workloads: Mapping[str, Choice]
    findings: tuple[Finding, ...]
    run: str

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        return {"schema": 1} | write(self)


def sweep_conclusion(case: Case, run: Path) -> SweepConclusion:
    """Return what the sweep of a run chooses by itself."""
    choices, _ = sweep_choices(case)
    findings = dict.fromkeys(finding for choice in choices.values() for finding in choice.findings)
    findings |= dict.fromkeys((*sweep_lies(case).values(), *negative_controls(case), *carried_in_sweep(case)))
    return SweepConclusion(case.slo.name, choices, tuple(findings), str(run))


def sweep_lies(case: Case) -> dict[str, Finding]:
    """Return, by workload, a finding about counters of the sweep that cannot be true, at the first such setting.

    A server that lies is named even where the sweep chooses plain decoding, so that no soak speculates.
    """
    lies_by_workload: dict[str, Finding] = {}
    for workload in case.slo.workload:
        sweep = case.sweep_answers(workload.name)
        for trial in case.plan.candidates:
            if lies := impossible_counts(successful(sweep.of(trial.name)), trial.setting):
                about = f"{workload.name}, sweep with {describe_setting(dict(trial.setting))}"
                lies_by_workload[workload.name] = counter_lie(about, lies[0])
                break
    return lies_by_workload


def _trouble(case: Case, trial: str) -> str | None:
    if trial not in case.sweep:
        return "missing"
    return case.sweep[trial].trouble or clock_ran_backwards(case.sweep[trial].records)


def _soaked_first(case: Case) -> dict[str, Setting]:
    first: dict[str, Setting] = {}
    for name in sorted(case.soaks):
        if name.startswith("soak-1"):
            for generation in case.soaks[name].records:
                if generation.role is Role.MEASURED or generation.arm == "candidate":
                    first.setdefault(generation.workload, generation.setting)
    return first
