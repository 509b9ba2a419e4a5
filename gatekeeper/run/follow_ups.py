"""The follow-ups of a soak: the one sender of what each of them plans."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any, Protocol

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.follow_ups.follow_up import FollowUp, Needs, PlannedReading, RequestStep, Soaked
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import rebuild_soak
from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.records import EventKind, FollowUpRecord, Role
from gatekeeper.core.system.record_files import records_of
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.requests import Client, Observe, Recorder


class OpenClient(Protocol):
    """Opens a client of the backend."""

    def __call__(self, *, cache: bool = False) -> AbstractContextManager[Client]:
        """Return it; *cache*: its systems keep their prompt cache on."""


def follow_soak(run: ActiveRun, soak_plan: SoakPlan, client: Client) -> None:
    """Do the missing follow-ups of the soak of *soak_plan*; a finished file stays as it is.

    The process of *client* goes on, for a further part of the soak, where the follow-ups do not need its memory.
    """
    for follow_up in FOLLOW_UPS:
        _run_follow_up(run, soak_plan, follow_up, client)


def _run_follow_up(run: ActiveRun, soak_plan: SoakPlan, follow_up: FollowUp[Any], client: Client) -> None:
    def open_client(*, cache: bool = False) -> AbstractContextManager[Client]:
        if run.backend.shares_process and not (cache or follow_up.fresh):
            return nullcontext(client)  # it decodes plainly, too, and goes on
        client.close()  # two copies of the models would not fit
        return run.client(cache=cache)

    load = cache(partial(run.case, live=True))
    soak = rebuild_soak(run.slo, run.prepared.plan, run.prepared.inputs.canaries, soak_plan, load, run.segment)
    needs = follow_up.needs(soak)
    load.cache_clear()
    if not needs:
        return
    kind = records_of(follow_up.kind)
    with closing(run.writer(follow_up.file(soak_plan), kind)) as file:
        if file.finished:
            return
        run.observe(EventKind.STAGE, {"stage": follow_up.name, "soak": soak_plan.name})
        earlier = [follow_up.file(part) for part in soak_plan.earlier if follow_up.each_part]
        recorded = (*run.read_records(earlier, kind), *file.release())
        send(
            follow_up, soak, needs, recorded,
            record=file, open_client=open_client, clock=run.backend.clock, observe=run.observe,
        )  # fmt: skip
        file.finish()


def send(
    follow_up: FollowUp[FollowUpRecord],
    soak: Soaked,
    needs: Needs,
    recorded: Sequence[FollowUpRecord],
    *,
    record: Callable[[FollowUpRecord], None],
    open_client: OpenClient,
    clock: Clock,
    observe: Observe,
) -> None:
    """Send what a follow-up plans and has not *recorded*; record each answer, or reading, before the next one."""
    records = list(recorded)

    def keep(new: FollowUpRecord) -> None:
        record(new)
        records.append(new)

    with ExitStack() as stack:
        reader: Client | None = None
        for step in follow_up.steps(soak, needs, records):
            done = set(map(follow_up.identity, records))
            if isinstance(step, RequestStep):
                _send_requests(step, done, soak, keep, open_client, observe)
                continue
            missing = [reading for reading in step.readings if follow_up.identity(reading.record) not in done]
            if reader is None and any(reading.read is not None for reading in missing):
                reader = stack.enter_context(open_client())
            for number, reading in enumerate(missing, start=step.before + 1):
                record_read = _read(reading, soak, reader)
                keep(replace(record_read, segment=soak.segment, at=stamp(clock.wall())))
                observe(EventKind.READING, {"answered": number, "of": step.planned or len(missing)})


def _send_requests(
    step: RequestStep,
    done: set[object],
    soak: Soaked,
    record: Callable[[Any], None],
    open_client: OpenClient,
    observe: Observe,
) -> None:
    missing = [request for request in step.requests if request.key not in done]
    if not missing:
        return
    planned = sum(request.role is not Role.WARMUP for request in missing)
    recorder = Recorder(record, observe, {"soak": soak.plan.name}, planned)
    with open_client(cache=step.cache) as client:
        client.open(step.resident, keep=True)
        client.send_all(iter(missing), 1, recorder)


def _read(reading: PlannedReading[FollowUpRecord], soak: Soaked, client: Client | None) -> FollowUpRecord:
    """Return the record of a reading; without a way to read, or a client, it stays as it was planned."""
    if reading.read is None or client is None:
        return reading.record
    record = reading.record
    request = soak.request_to_read(record.workload, record.canary, reading.arm)
    setting = request.setting if reading.arm == "plain" else soak.settings[record.workload]
    client.open(setting, keep=True)
    return reading.read(record, client.subject, request)
