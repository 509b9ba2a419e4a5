"""What follows a soak: near-ties read, answers from a warm cache, first tokens drawn; each in a file of its own."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from gatekeeper.analysis.plan.objectives import first_token_workloads, warm_cache_workloads
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import Case, partings_of
from gatekeeper.core.inputs import Inputs
from gatekeeper.core.interfaces import Backend
from gatekeeper.core.metrics import Sight
from gatekeeper.core.run_directory import Appender, Kind, RunDirectory
from gatekeeper.run.requests import Desk, Errand
from gatekeeper.run.stages.first_tokens import draw
from gatekeeper.run.stages.near_ties import read_ties
from gatekeeper.run.stages.warm_cache import warm


@dataclass(frozen=True, slots=True)
class Following:
    """A run whose soak is over, and what it needs to go on."""

    inputs: Inputs
    backend: Backend
    directory: RunDirectory
    segment: int
    observe: Callable[[str, dict[str, Any]], None]

    def desk(self, *, cache: bool = False) -> Desk:
        """Return a desk of its own for one pass."""
        return Desk(self.backend, self.observe, self.segment, cache=cache)


def follow(run: Following, leg: SoakPlan, case: Case) -> None:
    """Do what is still missing after the soak of *leg*; nothing here is timed, and a finished file stays as it is."""
    _read_ties(run, leg, case)
    _ask_warm(run, leg, case)
    _draw(run, leg, case)


@contextmanager
def _pass(run: Following, file: Appender[Kind], stage: str, leg: SoakPlan) -> Iterator[Appender[Kind] | None]:
    """Yield the file of a pass, None if it is finished; finish it where the pass went through."""
    with closing(file):
        if file.finished:
            yield None
            return
        run.observe("stage", {"stage": stage, "soak": leg.name})
        yield file
        file.finish()


def _read_ties(run: Following, leg: SoakPlan, case: Case) -> None:
    partings = partings_of(case, leg)
    if not partings:
        return
    with _pass(run, run.directory.ties(leg.ties), "near-ties", leg) as file:
        if file is not None:
            read_ties(
                run.inputs.slo,
                partings,
                leg.settings,
                run.inputs.canaries,
                run.desk if Sight.LOGITS in run.backend.sight else None,
                run.backend.clock,
                segment=run.segment,
                before=tuple(file.records),
                record=file,
                observe=run.observe,
            )


def _ask_warm(run: Following, leg: SoakPlan, case: Case) -> None:
    slo = run.inputs.slo
    names = warm_cache_workloads(slo, leg.settings)
    if not names:
        return
    settings = {name: leg.settings[name] for name in names}
    with _pass(run, run.directory.answers(leg.warm), "warm cache", leg) as file:
        if file is not None:
            before = tuple(file.records)
            task = Errand(slo, leg.name, settings, leg.resident, run.inputs.canaries, case.seed, before)
            warm(task, run.desk, lambda: run.desk(cache=True), record=file, observe=run.observe)


def _draw(run: Following, leg: SoakPlan, case: Case) -> None:
    slo = run.inputs.slo
    names = first_token_workloads(slo, leg.settings)
    if not names:
        return
    settings = {name: leg.settings[name] for name in names}
    with _pass(run, run.directory.answers(leg.draws), "distribution", leg) as file:
        if file is not None:
            before = tuple(file.records)
            task = Errand(slo, leg.name, settings, leg.resident, run.inputs.canaries, case.seed, before)
            draw(task, run.desk, record=file, observe=run.observe)
