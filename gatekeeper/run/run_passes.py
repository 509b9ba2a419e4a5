"""The passes after a soak, each with its own file; then routing and the region."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Any

from gatekeeper.analysis.passes import PASSES
from gatekeeper.analysis.passes.definition import Pass
from gatekeeper.analysis.passes.region import REGION, REGION_TIES
from gatekeeper.analysis.passes.routing import ROUTING
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import Case, soaked
from gatekeeper.analysis.verdict.conclude import lacking_for_region, lacking_for_routing
from gatekeeper.analysis.verdict.region.explored_region import ProbeCache, explore
from gatekeeper.core.errors import InputError, UnresponsiveError
from gatekeeper.core.records import Generation, Setting, StoredRecords, Tie
from gatekeeper.core.system import record_files
from gatekeeper.core.system.record_files import ANSWERS, TIES
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.requests import Client, PassTask
from gatekeeper.run.stages import near_ties
from gatekeeper.run.stages.region import send_look
from gatekeeper.run.stages.routing import send_routing_requests


def sender_of(after: Pass[Any]) -> Callable[[PassTask[Any]], None]:
    """Return what sends the requests of a pass: `send` of the stage with its name."""
    send: Callable[[PassTask[Any]], None] = import_module(f"gatekeeper.run.stages.{after.name}").send
    return send


def after_soak(run: ActiveRun, soak_plan: SoakPlan, client: Client) -> None:
    """Do the missing passes after the soak of *soak_plan*; a finished file stays as it is.

    The process of *client* goes on, for a further part of the soak, where the passes do not need its memory.
    """
    for after in PASSES:
        _run_pass(run, soak_plan, after, client)


def _run_pass(run: ActiveRun, soak_plan: SoakPlan, after: Pass[Any], client: Client) -> None:
    def open_client(*, cache: bool = False) -> AbstractContextManager[Client]:
        if run.backend.shares_process and not (cache or after.fresh):
            return nullcontext(client)  # it decodes plainly, too, and goes on
        client.close()  # two copies of the models would not fit
        return run.client(cache=cache)

    load = cache(partial(run.case, live=True))
    needs = after.needs(soaked(run.slo, run.prepared.plan.terms, soak_plan, load))
    load.cache_clear()
    if not needs:
        return
    kind = record_files.KINDS[after.kind]
    with closing(run.writer(after.file(soak_plan), kind)) as file:
        if file.finished:
            return
        run.observe("stage", {"stage": after.stage, "soak": soak_plan.name})
        earlier = [after.file(part) for part in soak_plan.earlier if after.each_part]
        recorded = (*run.recorded(earlier, kind), *file.release())
        part = replace(soak_plan, settings={name: soak_plan.settings[name] for name in needs})
        sender_of(after)(run.pass_task(run.task(part), needs, recorded, file, open_client))
        file.finish()


def compare_routes(run: ActiveRun, client: Client) -> None:
    """Request what the comparison of the routes with one setting for all still lacks.

    It ends if a setting cannot start. The verdict is decided by then and does not rest on these answers.
    """
    lacking = lacking_for_routing(run.case(live=True))
    if not lacking:
        return
    file = run.writer(ROUTING, ANSWERS)
    if file.finished:
        return
    run.observe("stage", {"stage": "routing"})
    try:
        send_routing_requests(
            run.prepared.inputs.canaries, lacking, client, run.recorder(file),
            shares_process=run.backend.shares_process, done={answer.key for answer in file.records},
        )  # fmt: skip
    except (InputError, UnresponsiveError) as error:
        run.observe("warning", {"about": "the comparison of the routes", "because": error.message})
    file.finish()
    run.stage_done("routing")


def explore_regions(run: ActiveRun, client: Client) -> None:
    """Probe the points around what was promoted, until every boundary is known; it ends if a point cannot be served.

    What each workload's verdict rests on is decided by then: these answers only say how far its route reaches.
    """
    case = run.case(live=True)
    promoted = lacking_for_region(case)
    if not promoted:
        return
    file, ties = run.writer(REGION, ANSWERS), run.writer(REGION_TIES, TIES)
    answers, gaps = list(file.release()), list(ties.release())
    run.observe("stage", {"stage": "region"})
    try:
        for workload in promoted:
            _explore(run, client, case, workload, answers, gaps, record=file, record_tie=ties)
    except (InputError, UnresponsiveError) as error:
        run.observe("warning", {"about": "the region", "because": f"{error.message}; what is not measured stays open"})
    finally:
        run.phase("")
    ties.finish()
    file.finish()
    run.stage_done("region")


def _explore(
    run: ActiveRun,
    client: Client,
    case: Case,
    promoted: tuple[str, Setting, int | None],
    answers: list[Generation],
    gaps: list[Tie],
    *,
    record: Callable[[Generation], None],
    record_tie: Callable[[Tie], None],
) -> None:
    """Explore the region of one workload; *answers* and *gaps* are those so far, of all workloads."""
    name, *_ = promoted
    probes: ProbeCache = {}
    point: object = None

    def note(generation: Generation) -> None:
        record(generation)
        answers.append(generation)

    def note_tie(tie: Tie) -> None:
        record_tie(tie)
        gaps.append(tie)

    while True:
        now = replace(case, region=StoredRecords(tuple(answers)), region_ties=StoredRecords(tuple(gaps)))
        need = explore(now, *promoted, probes).need
        if need is None:
            return
        plan = need.plan
        if need.ties:
            task = replace(run.task(SoakPlan(plan.phase, {name: plan.knobs}, plan.knobs)), slo=plan.slo)
            task = replace(task, canaries={name: tuple(plan.canaries.values())})
            client.close()  # two copies of the models would not fit
            near_ties.send(run.pass_task(task, {name: need.ties}, gaps, note_tie, run.client))
            continue
        if client.gave_up:
            client.close()  # the next point deserves a system that runs
        if plan.point != point:
            run.observe("point", {"workload": name, "point": dict(plan.point)})
        run.phase(plan.phase)
        send_look(
            plan, plan.blocks(need.look, case.plan.seed), client, run.recorder(note),
            shares_process=run.backend.shares_process, cold=plan.point != point,
            done={answer.key for answer in answers if answer.workload == name},
        )  # fmt: skip
        point = plan.point
