"""The forced check: the target reads answers in one pass, which shows what plain decoding would write."""

from dataclasses import replace

from gatekeeper.core.clock import stamp
from gatekeeper.core.interfaces import ForcesTokens
from gatekeeper.core.records import Forced
from gatekeeper.run.stages.tasks import PassTask


def send(task: PassTask[Forced]) -> None:
    """Make the passes that are not recorded yet, and record what each shows."""
    soak = task.soak
    done = {_identity(forced) for forced in task.recorded}
    missing = [forced for passes in task.needs.values() for forced in passes if _identity(forced) not in done]
    if not missing:
        return
    with task.open_client() as client:
        for number, planned in enumerate(missing, start=1):
            request = task.arm_request(planned.workload, planned.canary, "plain")
            client.open(request.setting, keep=True)
            subject, reading = client.subject, None
            if isinstance(subject, ForcesTokens):
                reading = subject.force(request, planned.tokens, planned.width)
            forced = replace(planned, segment=soak.segment, at=stamp(task.backend.clock.wall()))
            if reading is None:
                task.record(replace(forced, fault="the target could not read the tokens"))
            else:
                task.record(replace(forced, parted=reading.parted, ended=reading.ended))
            task.report_reading(number, len(missing))


def _identity(forced: Forced) -> tuple[object, ...]:
    return forced.workload, forced.canary, forced.tokens, forced.altered, forced.width
