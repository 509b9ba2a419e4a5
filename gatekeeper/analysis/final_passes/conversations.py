"""Conversations: the turns of a promoted workload at the end of a run, each on the cache of the one before.

The outcome of a workload is decided by then: these answers say up to which prompt its route reaches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gatekeeper.analysis.final_passes.final_pass import FinalPass, Routes, each_workload
from gatekeeper.analysis.passes.soak_pass import RunAhead
from gatekeeper.analysis.plan.planned_conversations import CONVERSATIONS, conversations_of
from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadVerdict
from gatekeeper.core.records import Generation, Setting


def _forecast(run: RunAhead) -> Iterator[float]:
    """Count every turn in both arms, as if each prompt were read whole."""
    for name, knobs in _speculating(run.settings).items():
        for conversation in conversations_of(run.costs.canaries[name]) if run.plan.fixed is None else ():
            for canary in conversation:
                for setting in (knobs, plain_of(knobs)):
                    yield run.costs.answering(name, canary, setting)


def _lacks(case: Case, _: Verdict, routes: Routes) -> list[tuple[str, Setting]]:
    """Return the promoted workloads whose canaries are turns of conversations, each with its setting."""
    return [(name, knobs) for name, knobs in _speculating(routes).items() if conversations_of(case.canaries[name])]


def _judge(case: Case, workload: WorkloadVerdict, route: Setting) -> WorkloadVerdict:
    """Add what the conversations of a promoted workload show: its route ends where they stop gaining."""
    if not speculates(route) or not conversations_of(case.canaries[workload.name]):
        return workload
    from gatekeeper.analysis.final_passes.context_bins import grown_conversations  # noqa: PLC0415 (few runs have one)

    return replace(workload, conversations=grown_conversations(case, workload.name, route))


def _speculating(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    return {name: knobs for name, knobs in settings.items() if speculates(knobs)}


PASS = FinalPass(
    name="conversations",
    title="conversations, turn after turn",
    about="the conversations",
    files={CONVERSATIONS: Generation},
    forecast=_forecast,
    lacks=_lacks,
    judge=each_workload(_judge),
    is_planned=lambda _, canaries: any(map(conversations_of, canaries.values())),
)
