"""A rehearsal: a whole run of the real pipeline in memory, on a scripted subject and its virtual clock.

The same sweep, soak and `conclude` as `certify`, without files and manifest, so that thousands of runs with a known
truth are affordable. Where the SLO has an objective on the host, the memory that the script sets is sampled once per
virtual second instead of a real host's.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, sweep_plan
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.conclude import conclude
from gatekeeper.analysis.verdict.host_checks import host_segment
from gatekeeper.backends.scripted.backend import ScriptedBackend, readings
from gatekeeper.backends.scripted.script import Script
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, HostSample, Reading, StoredRecords
from gatekeeper.core.slo import Profile, Slo
from gatekeeper.core.verdict import Verdict
from gatekeeper.run.requests import Client, SoakTask
from gatekeeper.run.stages.soak import soak
from gatekeeper.run.stages.sweep import sweep

STEADY = Profile(schema_=1, name="steady")
SAMPLE_S = 1.0
"""Between two samples of the host, as `certify` takes them."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The records of a run, and its verdict."""

    case: Case
    verdict: Verdict

    @property
    def answers(self) -> int:
        """Return how many answers the sweep took, warm-ups included."""
        return sum(len(recorded.records) for recorded in self.case.sweep.values())


def canaries(prefix: str, count: int, *, category: str | None = None) -> tuple[Canary, ...]:
    """Return canaries without expectations: the script sets the length of their answers."""
    message = {"role": "user", "content": "Say a line."}
    return tuple(Canary(id=f"{prefix}-{number:03}", messages=(message,), category=category) for number in range(count))


def slo(**written: Any) -> Slo:
    """Return an SLO of a scripted subject; *written* is what a file would say beside it."""
    subject = {"backend": "scripted", "target": "t", "drafts": ["heavy"], "script": "truth.json"}
    return Slo.model_validate({"schema": 1, "name": "rehearsal", "subject": subject, **written})


def sweep_of(
    promised: Slo, prompts: Mapping[str, Sequence[Canary]], truth: Mapping[str, Any], seed: int
) -> tuple[SweepPlan, dict[str, list[Generation]]]:
    """Run the sweep alone; return its plan and its records by trial."""
    return _swept(promised, prompts, ScriptedBackend(Script.model_validate(dict(truth))), seed)


def _swept(
    promised: Slo, prompts: Mapping[str, Sequence[Canary]], backend: ScriptedBackend, seed: int
) -> tuple[SweepPlan, dict[str, list[Generation]]]:
    shares, knobs = backend.shares_process, backend.restart_knobs
    plan = sweep_plan(promised, prompts, shares_process=shares, restart_knobs=knobs, seed=seed)
    made: dict[str, list[Generation]] = defaultdict(list)
    with Client(backend, _ignore) as client:
        sweep(promised, plan, client, record=lambda one: made[one.trial].append(one), before={}, observe=_ignore)
    return plan, made


def rehearse(
    promised: Slo,
    prompts: Mapping[str, Sequence[Canary]],
    truth: Mapping[str, Any],
    seed: int,
    *,
    profile: Profile = STEADY,
) -> Rehearsed:
    """Run sweep, soaks and verdict; *truth* is the content of a script."""
    backend = ScriptedBackend(Script.model_validate(dict(truth)))
    plan, made = _swept(promised, prompts, backend, seed)
    case = Case(
        slo=promised,
        canaries=prompts,
        plan=plan,
        manifest_sha256="",
        sweep={trial.name: StoredRecords(tuple(made[trial.name])) for trial in plan.trials},
        soaks={},
        interval=SAMPLE_S,
    )
    while needs := (concluded := conclude(case)).needs:
        for soak_plan in needs:
            answers, samples = _soak(case, soak_plan, backend, profile)
            soaks = {**case.soaks, soak_plan.name: StoredRecords(tuple(answers))}
            case = replace(case, soaks=soaks, host_samples=(*case.host_samples, *samples))
    return Rehearsed(case, concluded.verdict)


def _soak(
    case: Case, soak_plan: SoakPlan, backend: ScriptedBackend, profile: Profile
) -> tuple[list[Generation], list[HostSample]]:
    made: list[Generation] = []
    phases: list[tuple[int, str, int]] = []

    def phase(name: str, stretch: int = 0, /) -> None:
        phases.append((backend.clock.now_ns(), name, stretch))

    task = SoakTask(
        case.slo, soak_plan.name, soak_plan.settings, soak_plan.resident, case.canaries, case.plan.seed, segment=0
    )
    with Client(backend, _ignore) as client:
        soak(
            task,
            profile,
            client,
            lambda: Client(backend, _ignore),
            backend.clock,
            woven=backend.shares_process and case.slo.soak.concurrency == 1,
            record=made.append,
            phase=phase,
            observe=_ignore,
        )
    return made, _samples(backend.script, phases) if case.slo.host_objectives else []


def _samples(script: Script, phases: Sequence[tuple[int, str, int]]) -> list[HostSample]:
    """Sample the host through the phases that have a name; each entry says when one begins."""
    instants = [
        (at_ns, name, stretch)
        for (begun_ns, name, stretch), (ended_ns, *_) in pairwise(phases)
        if name
        for at_ns in range(begun_ns, ended_ns, round(SAMPLE_S * 1e9))
    ]
    since = [(at_ns - instants[0][0]) / 1e9 for at_ns, *_ in instants]
    process = instants[0][1] if instants else ""
    return [
        HostSample(
            at="",
            at_ns=at_ns,
            values={"subject_footprint": Reading(value, "B", "script", "ok", 0.0)},
            phase=name,
            segment=host_segment(0, stretch),
        )
        for (at_ns, name, stretch), value in zip(instants, readings(script, since, process), strict=True)
    ]


def _ignore(_kind: str, _detail: dict[str, object]) -> None:
    pass
