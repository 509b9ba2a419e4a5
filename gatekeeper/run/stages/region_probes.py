"""The probes of a region: both arms on the same canaries at one point, look after look, until the point is decided."""

from collections.abc import Callable, Collection, Iterator, Sequence

from gatekeeper.analysis.plan.region_points import WARMUPS, PointPlan, PointRequest
from gatekeeper.core.records import Generation, Role
from gatekeeper.run.requests import Client, Observe, Request, build_request


def send_look(
    plan: PointPlan,
    blocks: Sequence[Sequence[PointRequest]],
    client: Client,
    *,
    shares_process: bool,
    cold: bool,
    done: Collection[str],
    record: Callable[[Generation], None],
    observe: Observe,
) -> None:
    """Send what *done* lacks of one look; a *cold* point, or a process that was started for it, is warmed up first."""
    missing = [[one for one in block if one.key not in done] for block in blocks]
    total, answered = sum(map(len, missing)), 0

    def note(made: Generation) -> None:
        nonlocal answered
        record(made)
        answered += made.role is not Role.WARMUP
        observe("answer", {"generation": made, "answered": answered, "of": total})

    for block in filter(None, missing):
        arms = list(dict.fromkeys(one.arm for one in block))
        drafting = shares_process or "candidate" in arms
        started = client.open(plan.knobs if drafting else plan.plain)
        if cold or started:
            first = (one for arm in arms for one in [each for each in block if each.arm == arm][:WARMUPS])
            client.send_all(_requests(plan, first, Role.WARMUP), 1, note)
        for group in [block] if plan.interleaved else [[one for one in block if one.arm == arm] for arm in arms]:
            client.send_all(_requests(plan, group, Role.MEASURED), plan.streams, note)


def _requests(
    plan: PointPlan, some: "Sequence[PointRequest] | Iterator[PointRequest]", role: Role
) -> Iterator[Request]:
    for one in some:
        yield build_request(
            plan.slo,
            plan.name,
            f"warmup:{one.prefix}" if role is Role.WARMUP else one.prefix,
            plan.workload,
            one.unit.canary,
            one.arm,
            plan.knobs if one.arm == "candidate" else plan.plain,
            role,
            pair=one.pair,
            concurrency=1 if role is Role.WARMUP else plan.streams,
        )
