"""The probes of a capacity: answers of one arm while a number of streams is kept busy, from before them to after."""

from collections.abc import Iterator, Sequence
from itertools import islice

from gatekeeper.analysis.final_passes.explored_capacity import LevelCache, LevelNeed, explore
from gatekeeper.analysis.plan.capacity_levels import CAPACITY, StreamLevel
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.run.requests import Recorder
from gatekeeper.run.stages.tasks import FinalTask


def send(task: FinalTask) -> None:
    """Probe both arms of each settled workload with more streams, until its capacity is known."""
    case, cache = task.load_case(), LevelCache()
    for workload, route in task.lacking:
        while isinstance(need := explore(task.case_now(case), workload, route, cache), LevelNeed):
            if task.client.gave_up:
                task.client.close()  # the next number of streams deserves a system that runs
            point = {"concurrency": need.level.streams}
            task.observe("point", {"workload": workload, "arm": need.level.arm, "point": point})
            _send_level(task, need)


def _send_level(task: FinalTask, need: LevelNeed) -> None:
    """Send what is not recorded of the answers that a level needs."""
    level, recorder = need.level, task.recorder(CAPACITY)
    missing = task.missing(CAPACITY, level.requests(need.answers))
    recorder.planned = len(missing)
    task.client.open(level.drafting if task.shares_process else level.knobs)
    task.client.send_all(_under_load(level, missing, recorder), level.streams, recorder)


def _under_load(level: StreamLevel, missing: Sequence[PlannedRequest], recorder: Recorder) -> Iterator[PlannedRequest]:
    """Yield one unmeasured request a stream, the measured ones, and more unmeasured ones until these have ended."""
    load = level.load()
    yield from islice(load, level.streams)
    yield from missing
    while recorder.answered < len(missing):
        yield next(load)
