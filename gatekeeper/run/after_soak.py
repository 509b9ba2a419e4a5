"""The passes after a soak, each with its own file: words, near-ties, a warm cache, first tokens …; then routing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from gatekeeper.analysis.metrics.exactness import Divergence
from gatekeeper.analysis.plan.objectives import first_token_workloads, warm_cache_workloads
from gatekeeper.analysis.plan.region_points import REGION, REGION_TIES
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.sweep.routing import ROUTING
from gatekeeper.analysis.verdict.case import Case, canaries_without_plain, forbidden_divergences, wanted_passes
from gatekeeper.analysis.verdict.conclude import lacking_for_region, lacking_for_routing
from gatekeeper.analysis.verdict.explored_region import Known, explore
from gatekeeper.analysis.verdict.warm_up import late_first_tokens
from gatekeeper.core.errors import InputError, UnresponsiveError
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Generation, Kind, Setting, StoredRecords, Tie
from gatekeeper.core.system.record_files import ANSWERS, FORCED, TIES, RecordWriter
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.requests import Client, SoakTask
from gatekeeper.run.stages.after_pauses import send_after_pauses
from gatekeeper.run.stages.first_tokens import sample_first_tokens
from gatekeeper.run.stages.forced import decode_plainly, force_answers
from gatekeeper.run.stages.near_ties import read_ties
from gatekeeper.run.stages.region_probes import send_look
from gatekeeper.run.stages.routing_pass import send_routing_requests
from gatekeeper.run.stages.warm_cache import warm


def after_soak(run: ActiveRun, soak_plan: SoakPlan) -> None:
    """Do the missing passes after the soak of *soak_plan*; a finished file stays as it is."""
    task, backend = run.task(soak_plan), run.backend
    if task.forced:
        _compare_words(run, soak_plan, task)
    divergences, late = _needed_after(run, soak_plan)
    if divergences:
        with _pass(run, run.writer(soak_plan.ties_file, TIES), "near-ties", soak_plan) as ties:
            if ties is not None:
                client = run.client if Sight.LOGITS in backend.sight else None
                before = (*run.recorded((part.ties_file for part in soak_plan.earlier), TIES), *ties.release())
                read_ties(task, divergences, client, backend.clock, before=before, record=ties, observe=run.observe)
    if names := warm_cache_workloads(run.slo, soak_plan.settings):
        with _pass(run, run.writer(soak_plan.warm_file, ANSWERS), "warm cache", soak_plan) as file:
            if file is not None:
                part = _part(task, names, file)
                warm(part, run.client, lambda: run.client(cache=True), record=file, observe=run.observe)
    if late:
        with _pass(run, run.writer(soak_plan.pauses_file, ANSWERS), "warm-up", soak_plan) as file:
            if file is not None:
                part, clock = _part(task, late, file), backend.clock
                send_after_pauses(part, run.client, clock, record=file, observe=run.observe)
    if names := first_token_workloads(run.slo, soak_plan.settings):
        with _pass(run, run.writer(soak_plan.draws_file, ANSWERS), "distribution", soak_plan) as file:
            if file is not None:
                sample_first_tokens(_part(task, names, file), run.client, record=file, observe=run.observe)


def compare_routes(run: ActiveRun, client: Client) -> None:
    """Ask what the comparison of the routes with one setting for all still lacks; it ends if a setting cannot start.

    The verdict is decided by then and does not rest on these answers.
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
            run.slo,
            run.prepared.inputs.canaries,
            lacking,
            client,
            shares_process=run.backend.shares_process,
            done={one.key for one in file.records},
            record=file,
            observe=run.observe,
        )
    except (InputError, UnresponsiveError) as error:
        run.observe("warning", {"about": "the comparison of the routes", "because": error.message})
    file.finish()
    run.stage_done("routing")


def explore_regions(run: ActiveRun, client: Client) -> None:
    """Probe the points around what was promoted, until every boundary is known; it ends if a point cannot be served.

    What each workload's verdict rests on is decided by then: these answers only say how far its route reaches.
    """
    case = run.case(live=True)
    wanted = lacking_for_region(case)
    if not wanted:
        return
    file, ties = run.writer(REGION, ANSWERS), run.writer(REGION_TIES, TIES)
    answers, gaps = list(file.release()), list(ties.release())
    run.observe("stage", {"stage": "region"})
    try:
        for name, route, longest in wanted:
            _explore(run, client, case, (name, route, longest), answers, gaps, record=file, record_tie=ties)
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
    known: Known = {}
    point: object = None

    def note(made: Generation) -> None:
        record(made)
        answers.append(made)

    def note_tie(tie: Tie) -> None:
        record_tie(tie)
        gaps.append(tie)

    while True:
        now = replace(case, region=StoredRecords(tuple(answers)), region_ties=StoredRecords(tuple(gaps)))
        need = explore(now, *promoted, known).need
        if need is None:
            return
        plan = need.plan
        if need.ties:
            task = replace(run.task(SoakPlan(plan.phase, {name: plan.knobs}, plan.knobs)), slo=plan.slo)
            task = replace(task, canaries={name: tuple(plan.canaries.values())})
            reads = run.client if Sight.LOGITS in run.backend.sight else None
            client.close()  # two copies of the models would not fit
            read_ties(
                task, {name: need.ties}, reads, run.backend.clock, before=gaps, record=note_tie, observe=run.observe
            )
            continue
        if client.gave_up:
            client.close()  # the next point deserves a system that runs
        if plan.point != point:
            run.observe("point", {"workload": name, "point": dict(plan.point)})
        run.phase(plan.phase)
        send_look(
            plan,
            plan.blocks(need.look, case.plan.seed),
            client,
            shares_process=run.backend.shares_process,
            cold=plan.point != point,
            done={one.key for one in answers if one.workload == name},
            record=note,
            observe=run.observe,
        )
        point = plan.point


def _needed_after(run: ActiveRun, soak_plan: SoakPlan) -> tuple[Mapping[str, Sequence[Divergence]], tuple[str, ...]]:
    """Return the forbidden divergences of a soak, and the workloads whose first tokens came too late."""
    case = run.case(live=True)
    return forbidden_divergences(case, soak_plan), late_first_tokens(case, soak_plan)


def _compare_words(run: ActiveRun, soak_plan: SoakPlan, task: SoakTask) -> None:
    """Let the target read the answers, then decode plainly what that leaves open."""
    if wanted := wanted_passes(run.case(live=True), soak_plan):
        with _pass(run, run.writer(soak_plan.forced_file, FORCED), "forced check", soak_plan) as file:
            if file is not None:
                before = (*run.recorded((part.forced_file for part in soak_plan.earlier), FORCED), *file.release())
                force_answers(
                    task, wanted, run.client, run.backend.clock, before=before, record=file, observe=run.observe
                )
    if lacking := canaries_without_plain(run.case(live=True), soak_plan):
        with _pass(run, run.writer(soak_plan.words_file, ANSWERS), "plain words", soak_plan) as words:
            if words is not None:
                part = replace(task, before=tuple(words.records))
                decode_plainly(part, lacking, run.client, record=words, observe=run.observe)


@contextmanager
def _pass(
    run: ActiveRun, file: RecordWriter[Kind], stage: str, soak_plan: SoakPlan
) -> Iterator[RecordWriter[Kind] | None]:
    """Yield the file of a pass, None if it is finished; finish it after the pass, unless that raised an error."""
    with closing(file):
        if file.finished:
            yield None
            return
        run.observe("stage", {"stage": stage, "soak": soak_plan.name})
        yield file
        file.finish()


def _part(task: SoakTask, names: tuple[str, ...], file: RecordWriter[Generation]) -> SoakTask:
    """Return the task for some of its workloads, with the records so far."""
    return replace(task, settings={name: task.settings[name] for name in names}, before=tuple(file.records))
