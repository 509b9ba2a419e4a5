"""What is done for one cell: `remote certify`, which attaches to a run that exists. Dask may repeat it at any time."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.records import Event
from gatekeeper.core.system.run_directory import MANIFEST, VERDICT
from gatekeeper.report.data.progress import Progress
from gatekeeper.run.remote import hosts_file
from gatekeeper.run.remote.checks_before_run import OccupiedError
from gatekeeper.run.remote.reconnect import ReconnectingSession
from gatekeeper.run.remote.remote_run import NewRun, RemoteCommand, RemoteHost, RemoteRunner, pack_command
from gatekeeper.run.remote.run_registry import CLOSED, FollowedError, RunRegistry
from gatekeeper.run.remote.ssh_errors import SshError
from gatekeeper.run.stored.judge import judge

PROGRESS_EVERY_S = 2.0
"""Of the events of a run, which come with every answer and host sample, so many reach the controller."""
FOLLOWED_S = 5.0
"""Between two looks whether another process still follows the run."""
Tell = Callable[[str, dict[str, Any]], None]
"""Takes the kind and the detail of an event."""


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """How every cell of a fleet is certified."""

    patience_s: float = 600.0
    ship_models: bool = False
    send_env: tuple[str, ...] = ()
    baseline: str | None = None
    """The certified run to compare with: a run, a folder of runs, or `none`; None: the newest in the folder of runs."""


@dataclass(frozen=True, slots=True)
class Task:
    """One cell, as a worker needs it."""

    cell: str
    slo: str
    host: str
    hosts: str
    """The hosts file."""
    runs: str
    """Where the runs are downloaded to."""
    since: str
    """When the fleet started: a run of this cell that started later and was downloaded is its answer."""
    options: FleetOptions = FleetOptions()
    pause_s: float = 0.0
    """Wait so long before the try."""
    mark: str = ""
    """A file of the controller in the folder of runs: a worker that does not see it shares no folder with it."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a cell ended."""

    cell: str
    exit_code: int
    outcome: str = ""
    """Of the verdict; empty where there is none."""
    run: str = ""
    """The local run directory, where one was downloaded."""
    error: str = ""
    hint: str = ""
    again: bool = False
    """The connection failed or the host was occupied: nothing was said about the system under test."""

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


def certify_cell(task: Task, tell: Tell = lambda _kind, _detail: None) -> Done:
    """Certify the cell on its host, or attach to its run; whatever fails is in the answer.

    Dask starts a task again when it loses a worker. If that worker still follows the run, this waits for its end.
    """
    time.sleep(task.pause_s)
    while True:
        try:
            return _certify(task, tell)
        except FollowedError as error:
            tell("warning", {"about": "run", "because": f"waiting: {error.message}"})
            time.sleep(FOLLOWED_S)


def _certify(task: Task, tell: Tell) -> Done:
    try:
        address, settings = hosts_file.find(task.host, Path(task.hosts))
        remote = RemoteHost(task.host, address, settings)
        command = _command(task)
        if (earlier := _earlier_run(task, command, remote)) is not None:
            ended = (earlier / VERDICT).is_file()
            with suppress(GatekeeperError, ValueError):  # a damaged one is measured again
                if ended:
                    verdict = judge(earlier)
                    return Done(task.cell, int(verdict.exit_code), verdict.outcome, str(earlier))
            command = replace(command, resume=not ended and (earlier / MANIFEST).is_file())
        with ReconnectingSession(remote.connect, patience_s=task.options.patience_s) as session:
            runner = RemoteRunner(remote, session, [_Relay(tell)])
            session.say = runner.say
            try:
                result = NewRun(runner, command, before=task.since).run()
            except InputError:
                if not command.resume:
                    raise
                result = NewRun(runner, replace(command, resume=False), before=task.since).run()  # it is there no more
    except FollowedError:
        raise
    except (SshError, OccupiedError) as error:
        return Done(task.cell, int(error.exit_code), error=error.message, hint=error.hint, again=True)
    except GatekeeperError as error:
        return Done(task.cell, int(error.exit_code), error=error.message, hint=error.hint)
    except Exception as error:  # noqa: BLE001 (one cell's bug does not end the others)
        message = f"{type(error).__name__}: {error}"
        return Done(task.cell, int(ExitCode.INTERNAL_ERROR), error=message, hint="this is a bug: please report it")
    if result.verdict is None or result.error is not None:  # what a run left that died is no answer
        failed = result.error or HostLacksError("it ended without a verdict", hint=f"look into {result.path}")
        return Done(task.cell, int(failed.exit_code), "", str(result.path), failed.message, failed.hint)
    return Done(task.cell, int(result.verdict.exit_code), result.verdict.outcome, str(result.path))


def _command(task: Task) -> RemoteCommand:
    return RemoteCommand(
        ("certify",), Path(task.slo), runs=Path(task.runs), ship_models=task.options.ship_models,
        send_env=task.options.send_env, baseline=task.options.baseline,
    )  # fmt: skip


class _Relay:
    """An observer that tells the stage of a run and the time it still takes, and passes its warnings on."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._progress, self._sent_s = tell, Progress(), 0.0

    def __call__(self, event: Event) -> None:
        if event.kind == "warning":
            self._tell("warning", dict(event.detail))
            return
        self._progress.update(event)
        now = time.monotonic()
        if event.kind == "stage" or now - self._sent_s >= PROGRESS_EVERY_S:
            self._sent_s = now
            snapshot = self._progress.snapshot()
            self._tell("progress", {"stage": snapshot.stage, "left": snapshot.run_left})


def _earlier_run(task: Task, command: RemoteCommand, remote: RemoteHost) -> Path | None:
    """Return the newest run of this cell in this fleet that was downloaded: it ended, or its gatekeeper died."""
    command, bundle = pack_command(command, remote, before=task.since)
    for entry in reversed(RunRegistry(Path(task.runs)).entries()):
        is_same = entry.matches(task.host, command.words, bundle.sha256, None)
        if entry.state == CLOSED and entry.started >= task.since and is_same:
            return Path(entry.out)
    return None
