"""A rehearsal: a whole run of the real pipeline in memory, on a scripted subject and its virtual clock.

It makes the same sweep, soak and `conclude` as `certify`, without files and manifest, so that thousands of runs with a
known truth are affordable. Where the SLO has an objective on the host, the memory that the script sets is sampled once
per virtual second instead of a real host's.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from bench.simulated_mac import Host
from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.metrics.host.host_series import host_segment
from gatekeeper.analysis.plan.objectives import Terms, forced_workloads
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, sweep_plan
from gatekeeper.analysis.verdict.case import Case, compared_in_sweep, needs_after, rebuild_soak
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.backends.scripted.script import Script
from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend, readings
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, HostSample, Reading, StoredRecords
from gatekeeper.core.slo import Profile, Slo
from gatekeeper.run.follow_ups import send
from gatekeeper.run.requests import Client, Recorder
from gatekeeper.run.stages.soak import SoakTask, soak
from gatekeeper.run.stages.sweep import sweep

STEADY = Profile(schema_=1, name="steady")
SAMPLE_S = 1.0
"""Between two samples of the host, as `certify` takes them."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The records of a run, and its verdict."""

    case: Case
    verdict: Verdict
    seconds: Mapping[str, float]
    """The virtual time of each stage; the follow-ups of all soaks are one each."""

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


def _swept(
    promised: Slo, prompts: Mapping[str, Sequence[Canary]], backend: ScriptedBackend, seed: int
) -> tuple[SweepPlan, dict[str, list[Generation]]]:
    shares, knobs = backend.shares_process, backend.restart_knobs
    terms = Terms(sight=backend.sight)
    plan = sweep_plan(promised, prompts, shares_process=shares, restart_knobs=knobs, seed=seed, terms=terms)
    made: dict[str, list[Generation]] = defaultdict(list)
    with Client(promised, backend, _ignore) as client:
        sweep(promised, plan, client, Recorder(lambda one: made[one.trial].append(one), _ignore), before={})
    return plan, made


def rehearse(
    promised: Slo,
    prompts: Mapping[str, Sequence[Canary]],
    truth: Mapping[str, Any],
    seed: int,
    *,
    profile: Profile = STEADY,
    host: Host | None = None,
) -> Rehearsed:
    """Run sweep, soaks and verdict; *truth* is the content of a script, *host* what the host shows in the soak."""
    backend = ScriptedBackend(Script.model_validate(dict(truth)))
    plan, made = _swept(promised, prompts, backend, seed)
    seconds = defaultdict[str, float](float, {"sweep": backend.seconds(backend.clock.now_ns())})
    case = Case(
        slo=promised,
        canaries=prompts,
        plan=plan,
        manifest_sha256="",
        sweep={trial.name: StoredRecords(tuple(made[trial.name])) for trial in plan.trials},
        soaks={},
        interval=SAMPLE_S,
    )
    client = Client(case.slo, backend, _ignore)
    while needs := (concluded := conclude(case)).needs:
        for soak_plan in needs:
            begun_ns = backend.clock.now_ns()
            if soak_plan.part > 1 or soak_plan.name not in case.soaks:
                case = _with_soak(case, soak_plan, client, backend, profile, host)
            seconds[soak_plan.file.removesuffix(".jsonl")] += (backend.clock.now_ns() - begun_ns) / 1e9
            case = _with_follow_ups(case, soak_plan, backend, seconds)
    return Rehearsed(case, concluded.verdict, seconds)


def _with_soak(
    case: Case, soak_plan: SoakPlan, client: Client, backend: ScriptedBackend, profile: Profile, host: Host | None
) -> Case:
    answers, samples = _soak(case, soak_plan, client, backend, profile, host)
    before = case.soaks[soak_plan.name].records if soak_plan.part > 1 else ()
    ends = (*case.looks.get(soak_plan.name, (len(before),) if before else ()), len(before) + len(answers))
    soaks = {**case.soaks, soak_plan.name: StoredRecords((*before, *answers))}
    looks = {**case.looks, soak_plan.name: ends}
    return replace(case, soaks=soaks, looks=looks, host_samples=(*case.host_samples, *samples))


def _with_follow_ups(case: Case, soak_plan: SoakPlan, backend: ScriptedBackend, seconds: dict[str, float]) -> Case:
    """Return the case with what the follow-ups of a soak record, where any is due; add to their *seconds*."""

    def open_client(*, cache: bool = False) -> Client:
        return Client(case.slo, backend, _ignore, cache=cache)

    for each in FOLLOW_UPS:
        file = each.file(soak_plan.whole)
        earlier = case.after_soak.get(file, StoredRecords()).records
        needs = needs_after(case, soak_plan).get(each.file(soak_plan))
        if not needs or (earlier and not each.each_part):
            continue
        begun_ns, records = backend.clock.now_ns(), list(earlier)
        recorded = rebuild_soak(case.slo, case.plan, case.canaries, soak_plan, partial(_keep, case), soak_plan.part - 1)
        send(
            each, recorded, needs, earlier,
            record=records.append, open_client=open_client, clock=backend.clock, observe=_ignore,
        )  # fmt: skip
        case = replace(case, after_soak={**case.after_soak, file: StoredRecords(tuple(records))})
        seconds[each.name] += (backend.clock.now_ns() - begun_ns) / 1e9
    return case


def _task(case: Case, soak_plan: SoakPlan) -> SoakTask:
    before = tuple(case.soaks[soak_plan.name].records) if soak_plan.part > 1 else ()
    return SoakTask(
        case.slo,
        soak_plan,
        case.canaries,
        case.plan.seed,
        soak_plan.part - 1,
        before=before,
        compared=compared_in_sweep(case, soak_plan),
        forced=forced_workloads(case.slo, soak_plan.settings, case.plan.terms),
    )


def _soak(
    case: Case, soak_plan: SoakPlan, client: Client, backend: ScriptedBackend, profile: Profile, host: Host | None
) -> tuple[list[Generation], list[HostSample]]:
    made: list[Generation] = []
    phases: list[tuple[int, str, int]] = []

    def phase(name: str, stretch: int = 0, /) -> None:
        phases.append((backend.clock.now_ns(), name, stretch))

    task = _task(case, soak_plan)
    client.segment = task.segment
    if soak_plan.part == 1:
        client.close()
    soak(
        task,
        profile,
        client,
        Recorder(made.append, _ignore),
        plain_client=lambda: Client(case.slo, backend, _ignore),
        clock=backend.clock,
        woven=backend.shares_process and case.slo.soak.concurrency == 1,
        phase=phase,
    )
    return made, _samples(backend.script, phases, host, task.segment) if case.slo.host_objectives else []


def _samples(
    script: Script, phases: Sequence[tuple[int, str, int]], host: Host | None, segment: int
) -> list[HostSample]:
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
            values={
                name: Reading(read, "", "script", "ok", 0.0)
                for name, read in ({"subject_footprint": value} | dict(host(at) if host else {})).items()
            },
            phase=name,
            segment=host_segment(segment, stretch),
        )
        for (at_ns, name, stretch), at, value in zip(instants, since, readings(script, since, process), strict=True)
    ]


def _keep(case: Case) -> Case:
    return case


def _ignore(_kind: str, _detail: dict[str, object]) -> None:
    pass
