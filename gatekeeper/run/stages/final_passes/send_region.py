"""The probes of a region: both arms on the same canaries at one point, look after look, until the point is decided."""

from gatekeeper.analysis.final_passes.explored_region import PointNeed, ProbeCache, explore
from gatekeeper.analysis.passes import near_ties
from gatekeeper.analysis.plan.region_points import REGION, REGION_TIES, WARMUPS, PointPlan
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.core.records import Setting
from gatekeeper.run.stages.tasks import FinalTask, SoakTask


def send(task: FinalTask) -> None:
    """Probe the points around what was promoted, until every boundary is known."""
    case = task.load_case()
    for workload, route, longest_prompt in task.lacking:
        _explore(task, case, workload, route, longest_prompt)


def _explore(task: FinalTask, case: Case, workload: str, route: Setting, longest_prompt: int | None) -> None:
    """Probe what the region of one workload needs, look after look."""
    probes: ProbeCache = {}
    point: object = None
    while (need := explore(task.case_now(case), workload, route, longest_prompt, probes).need) is not None:
        plan = need.plan
        if need.ties:
            _read_ties(task, need)
            continue
        if task.client.gave_up:
            task.client.close()  # the next point deserves a system that runs
        if plan.point != point:
            task.observe("point", {"workload": workload, "point": dict(plan.point)})
        task.phase(plan.phase)
        _send_look(task, plan, need.look, cold=plan.point != point)
        point = plan.point


def _read_ties(task: FinalTask, need: PointNeed) -> None:
    """Read the logits of answers at a point, as after a soak."""
    plan = need.plan
    soak = SoakPlan(plan.phase, {plan.workload: plan.knobs}, plan.knobs)
    canaries = {plan.workload: tuple(plan.canaries.values())}
    task.client.close()  # two copies of the models would not fit
    soak_task = SoakTask(plan.slo, soak, canaries, task.seed, task.client.segment)
    task.send_pass(near_ties.PASS, soak_task, {plan.workload: need.ties}, task.files[REGION_TIES])


def _send_look(task: FinalTask, plan: PointPlan, look: int, *, cold: bool) -> None:
    """Send what is not recorded of a look; a *cold* point, or a process that was started for it, is warmed up first."""
    recorder = task.recorder(REGION)
    missing = [task.missing(REGION, block) for block in plan.blocks(look, task.seed)]
    recorder.planned = sum(map(len, missing))
    for block in filter(None, missing):
        arms = dict.fromkeys(request.arm for request in block)
        by_arm = {arm: [request for request in block if request.arm == arm] for arm in arms}
        drafting = task.shares_process or "candidate" in by_arm
        started = task.client.open(plan.knobs if drafting else plan.plain)
        if cold or started:
            warmups = [request.as_warmup() for requests in by_arm.values() for request in requests[:WARMUPS]]
            task.client.send_all(iter(warmups), 1, recorder)
        for group in [block] if plan.interleaved else by_arm.values():
            task.client.send_all(iter(group), plan.streams, recorder)
