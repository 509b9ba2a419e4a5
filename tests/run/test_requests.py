"""The client of a run: what it does when the system under test dies and cannot be started again."""

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.core.errors import UnresponsiveError
from gatekeeper.run.requests import Client
from tests.backends.conftest import DRAFTING, ROOT, SharedBackend, canary
from tests.builders.slo import slo
from tests.builders.waiting import until


def broken_program(worker: Path) -> None:
    worker.write_text("import sys\nsys.exit('CUDA error: out of memory')\n")


def no_descriptor_left(_: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.mark.parametrize(
    ("cause", "error", "says"),
    [
        pytest.param(broken_program, UnresponsiveError, "CUDA error: out of memory", id="its program is broken now"),
        pytest.param(no_descriptor_left, OSError, "Too many open files", id="our own limit"),
    ],
)
def test_a_system_that_dies_and_cannot_be_started_ends_the_run(
    tmp_path: Path, cause: Callable[[Path], None], error: type[Exception], says: str
) -> None:
    """Dead between two answers, and not started again: no fault, but an end that can be continued."""
    worker = tmp_path / "my_worker.py"
    shutil.copy(ROOT / "integrations" / "example_worker.py", worker)
    command = [sys.executable, str(worker), "{target}", "{draft}"]
    backend = SharedBackend("worker", tmp_path, command=command).backend
    request = PlannedRequest("prose", canary("prose"), "candidate", DRAFTING, trial="soak-1", prefix="1")
    events: list[str] = []
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)

    with Client(slo(), backend, lambda kind, _: events.append(kind)) as client:
        client.open(DRAFTING)
        answered = client.send(request).answer
        os.kill(client.pids()[0], signal.SIGKILL)
        until(lambda: client.subject is None or not client.subject.alive())
        try:
            cause(worker)
            with pytest.raises(error) as raised:
                client.send(request)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)

    assert answered.fault is None
    assert ["subject_died"] == events
    assert says in f"{raised.value} {getattr(raised.value, 'hint', '')}"
