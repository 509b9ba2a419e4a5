"""A rehearsal: a whole run of the real pipeline in memory, on a scripted subject and its virtual clock.

The same sweep, soak and `conclude` as `certify`; only files, the host sampler and the manifest are left out, so that
thousands of runs with a known truth are affordable.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gatekeeper.backends.script import Script
from gatekeeper.backends.scripted import ScriptedBackend
from gatekeeper.desk import Desk
from gatekeeper.stages.soak import Soak, soak
from gatekeeper.stages.sweep import sweep
from gatekeeper.terms.canary import Canary
from gatekeeper.terms.outcome import Verdict
from gatekeeper.terms.profile import Profile
from gatekeeper.terms.records import Generation
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict import plan as planning
from gatekeeper.verdict.conclude import Case, Leg, Recorded, conclude

STEADY = Profile(schema=1, name="steady")


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The records of a run, and its verdict."""

    case: Case
    verdict: Verdict

    @property
    def answers(self) -> int:
        """Return how many answers the sweep took, warm-ups included."""
        return sum(len(recorded.answers) for recorded in self.case.sweep.values())


def canaries(prefix: str, count: int, *, category: str | None = None) -> tuple[Canary, ...]:
    """Return canaries that expect nothing: the script says how long their answers are."""
    message = {"role": "user", "content": "Say a line."}
    return tuple(Canary(id=f"{prefix}-{number:03}", messages=(message,), category=category) for number in range(count))


def slo(**written: Any) -> Slo:
    """Return an SLO of a scripted subject; *written* is what a file would say beside it."""
    subject = {"backend": "scripted", "target": "t", "drafts": ["heavy"], "script": "truth.json"}
    return Slo.model_validate({"schema": 1, "name": "rehearsal", "subject": subject, **written})


def sweep_of(
    promised: Slo, prompts: Mapping[str, Sequence[Canary]], truth: Mapping[str, Any], seed: int
) -> tuple[planning.Plan, dict[str, list[Generation]]]:
    """Run the sweep alone; return its plan and its records by trial."""
    return _swept(promised, prompts, ScriptedBackend(Script.model_validate(dict(truth))), seed)


def _swept(
    promised: Slo, prompts: Mapping[str, Sequence[Canary]], backend: ScriptedBackend, seed: int
) -> tuple[planning.Plan, dict[str, list[Generation]]]:
    residence = planning.residence_by(backend.restart_knobs)
    plan = planning.sweep_plan(promised, prompts, shares_process=backend.shares_process, residence=residence, seed=seed)
    made: dict[str, list[Generation]] = defaultdict(list)
    with Desk(backend, _ignore) as desk:
        sweep(promised, plan, desk, record=lambda one: made[one.trial].append(one), before={}, observe=_ignore)
    return plan, made


def rehearse(promised: Slo, prompts: Mapping[str, Sequence[Canary]], truth: Mapping[str, Any], seed: int) -> Rehearsed:
    """Run sweep, soaks and verdict; *truth* is the content of a script."""
    backend = ScriptedBackend(Script.model_validate(dict(truth)))
    plan, made = _swept(promised, prompts, backend, seed)
    case = Case(
        slo=promised,
        canaries=prompts,
        plan=plan,
        residence=planning.residence_by(backend.restart_knobs),
        shares_process=backend.shares_process,
        manifest_sha256="",
        seed=seed,
        sweep={trial.name: Recorded(tuple(made[trial.name])) for trial in plan.trials},
        soaks={},
    )
    while needs := (concluded := conclude(case)).needs:
        soaked = {leg.name: Recorded(tuple(_soak(case, leg, backend))) for leg in needs}
        case = replace(case, soaks={**case.soaks, **soaked})
    return Rehearsed(case, concluded.verdict)


def _soak(case: Case, leg: Leg, backend: ScriptedBackend) -> list[Generation]:
    made: list[Generation] = []
    given = Soak(
        slo=case.slo,
        name=leg.name,
        settings=leg.settings,
        resident=leg.resident,
        canaries=case.canaries,
        profile=STEADY,
        woven=backend.shares_process and case.slo.soak.concurrency == 1,
        seed=case.seed,
        segment=0,
    )
    with Desk(backend, _ignore) as desk:
        soak(
            given,
            desk,
            lambda: Desk(backend, _ignore),
            backend.clock,
            record=made.append,
            phase=lambda *_: None,
            observe=_ignore,
        )
    return made


def _ignore(_kind: str, _detail: dict[str, object]) -> None:
    pass
