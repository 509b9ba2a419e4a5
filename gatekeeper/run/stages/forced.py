"""Teacher forcing after the soak: the target reads answers in one pass; what that leaves open is decoded plainly."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.plan.settings import plain_of, sampling_for
from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.interfaces import DecodeRequest, ForcesTokens
from gatekeeper.core.records import Forced, Generation, Role
from gatekeeper.run.requests import Client, Observe, SoakTask, build_request, send_missing


def force_answers(
    task: SoakTask,
    wanted: Sequence[Forced],
    open_client: Callable[[], Client],
    clock: Clock,
    *,
    before: Sequence[Forced],
    record: Callable[[Forced], None],
    observe: Observe,
) -> None:
    """Make the passes of *wanted* that *before* lacks, and record what each shows."""
    done = {(one.workload, one.canary, one.tokens, one.altered) for one in before}
    missing = [one for one in wanted if (one.workload, one.canary, one.tokens, one.altered) not in done]
    if not missing:
        return
    by_id = {(name, canary.id): canary for name, some in task.canaries.items() for canary in some}
    with open_client() as client:
        for number, one in enumerate(missing, start=1):
            knobs = plain_of(task.settings[one.workload])
            client.open(knobs)
            canary, subject = by_id[one.workload, one.canary], client.subject
            request = DecodeRequest(canary, knobs, sampling_for(task.slo, canary, knobs, 1))
            seen = subject.force(request, one.tokens) if isinstance(subject, ForcesTokens) else None
            made = replace(one, segment=task.segment, at=stamp(clock.wall()))
            if seen is None:
                record(replace(made, fault="the target could not read the tokens"))
            else:
                record(replace(made, parted=seen.parted, ended=seen.ended))
            observe("forced", {"answered": number, "of": len(missing)})


def decode_plainly(
    task: SoakTask,
    lacking: Mapping[str, Sequence[str]],
    open_client: Callable[[], Client],
    *,
    record: Callable[[Generation], None],
    observe: Observe,
) -> None:
    """Send the canaries of *lacking*, by workload, to plain decoding, for the words of its answers."""
    requests = [
        build_request(task.slo, task.name, "words", name, canary, "plain", plain_of(task.settings[name]), Role.CLOSING)
        for name, some in lacking.items()
        for canary in task.canaries[name]
        if canary.id in set(some)
    ]
    send_missing(task, open_client, plain_of(task.resident), requests, record=record, observe=observe)
