"""Starts: how long until the first token where a request must wait for its models to be loaded, in both arms.

A server that loads on demand, or unloads what idles, has its users wait so long; a draft is one more model to load.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.final_passes.final_pass import FinalPass, Routes
from gatekeeper.analysis.metrics.paired_answers import successful
from gatekeeper.analysis.metrics.timing import ttft
from gatekeeper.analysis.passes.soak_pass import RunAhead
from gatekeeper.analysis.passes.warm_up import ANSWER_TOKENS
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.analysis.stats.intervals import geometric_mean_ratio
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import ArmsCompared, Verdict
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.verdict import Estimate, Missing

STARTS = "starts.jsonl"
ASSUMED_S = 10.0
"""Of a start in the forecast: an 8B model of 4 bits, read from a disk of 0.5 GB/s."""
TITLES = {Role.LOADED: "first token after a start, with it", Role.FOLLOWING: "first token of the next answer"}


def start_requests(slo: Slo, workload: str, knobs: Setting, canaries: Sequence[Canary]) -> Iterator[PlannedRequest]:
    """Yield two short requests a start, the first of which waits for it; the arms take turns in being first."""
    for number in range(slo.soak.starts):
        for arm in ("plain", "candidate") if number % 2 else ("candidate", "plain"):
            for turn, role in enumerate(TITLES):
                canary = canaries[(2 * number + turn) % len(canaries)]
                most = min(canary.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
                setting = knobs if arm == "candidate" else plain_of(knobs)
                yield PlannedRequest(
                    workload,
                    canary.model_copy(update={"max_tokens": most}),
                    arm,
                    tuple((knob, value) for knob, value in setting if knob not in {"max_tokens", "concurrency"}),
                    trial=STARTS.removesuffix(".jsonl"),
                    prefix=f"start-{number}-{arm}-{role}",
                    role=role,
                    repeat=number,
                )


def _served_by(routes: Mapping[str, Setting]) -> dict[Setting, str]:
    """Return the first workload of each setting that speculates: starts do not differ between its workloads."""
    return {knobs: name for name, knobs in reversed([*routes.items()]) if speculates(knobs)}


def _forecast(run: RunAhead) -> Iterator[float]:
    slo, costs = run.costs.slo, run.costs
    for knobs, name in _served_by(run.settings).items() if slo.subject.url is None else ():
        for request in start_requests(slo, name, knobs, costs.canaries[name]):
            yield costs.assumed.seconds(request.canary, ANSWER_TOKENS) + ASSUMED_S * (request.role is Role.LOADED)


def _lacks(case: Case, _: Verdict, routes: Routes) -> list[tuple[str, Setting]]:
    """Return a workload of each setting that speculates; nothing where a server was running before the run."""
    if not case.slo.soak.starts or case.slo.subject.url is not None:
        return []
    return [(name, knobs) for knobs, name in _served_by(routes).items()]


def _judge(case: Case, verdict: Verdict, routes: Routes) -> Verdict:
    """Add the times of a start to each workload that speculates."""
    if not case.slo.soak.starts:
        return verdict
    served = _served_by(routes)
    workloads = [
        replace(workload, at_end=(*workload.at_end, *_times(case, served[routes[workload.name]])))
        if speculates(routes[workload.name])
        else workload
        for workload in verdict.workloads
    ]
    return replace(verdict, workloads=tuple(workloads))


def _times(case: Case, workload: str) -> Iterator[ArmsCompared]:
    recorded = case.recorded_at_end(STARTS)
    answers = [answer for answer in successful(recorded.records) if answer.workload == workload]
    running = case.slo.subject.url is not None
    trouble = "gatekeeper did not start the server, which was running" if running else recorded.trouble
    for role, title in TITLES.items():
        by_arm = {
            arm: {
                str(answer.repeat): seconds
                for answer in answers
                if (answer.arm, answer.role) == (arm, role) and (seconds := ttft(answer.answer)) is not None
            }
            for arm in ("plain", "candidate")
        }
        plain, drafting = by_arm["plain"], by_arm["candidate"]
        ratios = {start: drafting[start] / plain[start] for start in plain.keys() & drafting.keys()}
        figures = [_bounded(values, case.slo.confidence, trouble) for values in (plain, drafting, ratios)]
        yield ArmsCompared(title, *figures)


def _bounded(by_start: Mapping[str, float], confidence: float, trouble: str | None) -> Estimate | Missing:
    """Bound the geometric mean of a value of each start."""
    if trouble is not None:
        return Missing(trouble)
    bounded = geometric_mean_ratio({start: [value] for start, value in by_start.items()}, confidence)
    if isinstance(bounded, Missing):
        return replace(bounded, because=bounded.because.replace("canaries", "starts"))
    return bounded


PASS = FinalPass(
    name="starts",
    title="starts, each with its models loaded anew",
    about="the time of a start",
    files={STARTS: Generation},
    forecast=_forecast,
    lacks=_lacks,
    judge=_judge,
    is_planned=lambda slo, _: slo.soak.starts > 0,
)
