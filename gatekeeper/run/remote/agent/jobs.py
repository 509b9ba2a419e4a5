"""Jobs: runs that were started over a connection and continue without it, and the supervisor of each."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from gatekeeper.run.remote.agent.frames import CHUNK, HEARTBEAT_S, POLL_S, Channel, Header, Items, Refusal
from gatekeeper.run.remote.agent.processes import alive, boot_id, gatekeeper, job_environment, outputs, tree
from gatekeeper.run.remote.agent.state_folder import (
    State,
    is_locked,
    locked,
    read,
    replacing,
    sha256,
    stamp,
    tail,
    whole_lines,
    write,
)

KILL_WAIT_S = 10.0
"""How long a killed process may take to end: it has to release wired memory."""
START_WAIT_S = 30.0
ABANDONED_S = 86400.0
"""Inputs whose run was not started within a day are removed: the next attempt is another run."""
RESERVE = 1 << 16
"""Bytes kept so that the exit code of a job that fills the disk can be written."""


class Jobs:
    """Starts, follows and ends jobs."""

    def __init__(self, state: State, channel: Channel, program: bytes) -> None:
        self._state, self._channel, self._program = state, channel, program

    def do_start(
        self,
        run_id: str,
        environment: str,
        env: "Optional[Dict[str, str]]" = None,
        settings: "Optional[Dict[str, str]]" = None,
        again: bool = False,
        **job: Any,
    ) -> Header:
        """Start `gatekeeper ARGV` detached in the job's folder; *job* holds `argv` and what else describes the run.

        *env* goes into the job's environment and is never written to the disk; *settings* are not secret and are.
        *again* continues in the folder of a job that has ended.
        """
        folder, place = self._state.named("jobs", run_id), Path(os.path.expanduser(environment))
        folder.mkdir(parents=True, exist_ok=True)
        with locked(self._state.home / "jobs.lock", self._channel):
            if (folder / "job.json").exists() and not (again and self._job(folder)["state"] != "running"):
                raise Refusal("exists", "the run " + run_id + " was already started on this host")
            for running in self._jobs():
                if running["state"] == "running":
                    message = "{owner} has been running {run_id} on this host since {started}".format(**running)
                    raise Refusal("busy", message, job=running)
            self._forget_abandoned(folder)
            for name in ("exit.json", "cancel.json", "pids.json", "fetched.json"):
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).unlink()
            job.update(
                run_id=run_id, started=stamp(), started_ns=int(time.time() * 1e9), boot_id=boot_id(),
                environment=str(place), settings=settings or {}, named=sorted(env or {}),
            )  # fmt: skip
            self._supervise(folder, place, job, dict(settings or {}, **(env or {})))
        return self._job(folder)

    def _supervise(self, folder: Path, place: Path, job: Header, env: "Dict[str, str]") -> None:
        """Start the supervisor of a job and wait until gatekeeper runs."""
        program = self._state.home / "agents" / (hashlib.sha256(self._program).hexdigest()[:16] + ".py")
        if not program.is_file():
            program.parent.mkdir(parents=True, exist_ok=True)
            with replacing(program) as file:
                file.write(self._program)
        with (folder / "log").open("ab") as log, (folder / "supervisor.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the supervisor inherits it: from now on the job counts as running
            write(folder / "job.json", job)
            supervisor = subprocess.Popen(
                [str(place / "bin" / "python"), "-I", str(program), "supervise", str(folder)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=str(folder),
                pass_fds=[lock.fileno()], env=dict(job_environment(place), **env),
            )  # fmt: skip
        end, pids = time.monotonic() + START_WAIT_S, folder / "pids.json"
        while not pids.exists() and supervisor.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        if not pids.exists() and supervisor.poll() is not None:
            (folder / "job.json").unlink()  # it never started: the same name may be used again
            output = tail(folder / "log").strip() or "it printed nothing"
            raise Refusal("disk_full" if self._state.free() < CHUNK else "start", "cannot start the run: " + output)

    def _forget_abandoned(self, current: Path) -> None:
        for folder in {path for path in current.parent.iterdir() if path.is_dir()} - {current}:
            # Where job.json is damaged the run may still be running.
            idle = not read(folder / "job.json") and not is_locked(folder / "gatekeeper.lock")
            if idle and time.time() - folder.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(str(folder), ignore_errors=True)

    def _jobs(self) -> "List[Header]":
        records = sorted((self._state.home / "jobs").glob("*/job.json"))
        return [self._job(record.parent) for record in records if read(record)]

    def _job(self, folder: Path) -> Header:
        """Describe a job; its state is derived from processes and files, and stored nowhere."""
        job, ended, cancelled = (read(folder / name) for name in ("job.json", "exit.json", "cancel.json"))
        running = is_locked(folder / "supervisor.lock") or is_locked(folder / "gatekeeper.lock")
        if not job:
            raise Refusal("missing", "no run " + folder.name + " on this host")
        same_boot = job.get("boot_id") == boot_id()
        shut_down = ended.get("terminated") and not cancelled and not same_boot
        if ended and not shut_down:
            state = "finished"
        elif running:
            state = "running"
        else:
            state = "died" if same_boot else "rebooted"
        progress = folder / "progress.jsonl"
        size = progress.stat().st_size if progress.is_file() else 0
        fetched_by = str(read(folder / "fetched.json").get("by", ""))
        return dict(
            job, state=state, exit=ended or None, cancelled=cancelled or None, progress_bytes=size,
            fetched_by=fetched_by,
        )  # fmt: skip

    def do_jobs(self) -> Header:
        """List every job."""
        return {"jobs": self._jobs()}

    def do_follow(self, run_id: str, offset: int = 0) -> Items:
        """Send the finished lines of a job's progress from *offset* on until it has ended, then what became of it."""
        folder = self._state.named("jobs", run_id)
        sent = time.monotonic()
        while True:
            job = self._job(folder)
            text = whole_lines(folder / "progress.jsonl", offset)
            if text or time.monotonic() - sent > HEARTBEAT_S:
                offset += len(text)
                sent = time.monotonic()
                yield {"offset": offset, "lines": [line.decode("utf-8", "replace") for line in text.splitlines()]}, b""
            elif job["state"] != "running":
                break
            else:
                self._channel.check(POLL_S)
        yield {"offset": offset, "lines": [], "job": dict(job, log=tail(folder / "log"))}, b""

    def do_files(self, run_id: str) -> Items:
        """List the files of a run directory with size and digest, one at a time."""
        root = self._state.named("jobs", run_id) / "run"
        for at in sorted(root.rglob("*")):
            if at.is_file() and not at.is_symlink():
                name, path = str(at.relative_to(root)), str(at.relative_to(self._state.home))
                yield {"name": name, "path": path, "size": at.stat().st_size, "sha256": sha256(at)}, b""

    def do_cancel(self, run_id: str, grace_s: float = 60.0, who: str = "") -> Items:
        """End a job: terminate gatekeeper, which ends its servers, then kill what is left; report how it ended."""
        folder = self._state.named("jobs", run_id)
        if self._job(folder)["state"] != "running":
            yield {"how": "ended", "job": self._job(folder)}, b""
            return
        root = int(read(folder / "pids.json").get("gatekeeper", 0))
        if not root:
            raise Refusal("starting", "the run is only just starting")
        write(folder / "cancel.json", {"at": stamp(), "who": who})
        members = tree(root)
        with contextlib.suppress(ProcessLookupError):
            os.kill(root, signal.SIGTERM)
        end = time.monotonic() + grace_s
        while alive(members) and time.monotonic() < end:
            members.update(tree(root))  # a server it starts while it ends
            yield {}, b""
            self._channel.check(POLL_S)
        survivors = alive(members)
        for pid in survivors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + KILL_WAIT_S
        while (alive(members) or self._job(folder)["state"] == "running") and time.monotonic() < end:
            time.sleep(POLL_S)
        yield {"how": "killed" if survivors else "graceful", "killed": sorted(survivors), "job": self._job(folder)}, b""

    def do_remove(self, run_id: str) -> Header:
        """Remove a job that has ended."""
        folder = self._state.named("jobs", run_id)
        existed = folder.is_dir()
        if (folder / "job.json").is_file() and self._job(folder)["state"] == "running":
            raise Refusal("busy", "the run " + run_id + " is still running")
        if existed:
            shutil.rmtree(str(folder))
        return {"removed": existed}

    def do_run(
        self, argv: "List[str]", environment: str, env: "Optional[Dict[str, str]]" = None, folder: str = ""
    ) -> Items:
        """Run `gatekeeper ARGV` in the foreground; send its output, then its exit code. It ends with the client."""
        place = Path(os.path.expanduser(environment))
        child = subprocess.Popen(
            gatekeeper(place, argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=str(self._state.at(folder)) if folder else None, env=dict(job_environment(place), **(env or {})),
        )  # fmt: skip
        try:
            for name, content in outputs(child, self._channel):
                yield {"stream": name}, content
            yield {"code": child.wait()}, b""
        finally:
            if child.poll() is None:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(10)
                if child.poll() is None:
                    child.kill()


def supervise(folder: Path) -> None:
    """Run the job in *folder* to its end, without any connection, and write down how it ended."""
    job, reserve = read(folder / "job.json"), folder / "reserve"
    reserve.write_bytes(b"\0" * RESERVE)
    with (folder / "gatekeeper.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # gatekeeper inherits it, and may outlive this process
        signals: List[int] = []
        child = subprocess.Popen(
            gatekeeper(Path(job["environment"]), job["argv"]),
            stdin=subprocess.DEVNULL, cwd=str(folder), start_new_session=True, pass_fds=[lock.fileno()],
        )  # fmt: skip

        def terminate(number: int, _frame: Any) -> None:
            signals.append(number)
            child.send_signal(signal.SIGTERM)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, terminate)
        write(folder / "pids.json", {"supervisor": os.getpid(), "gatekeeper": child.pid})
        if os.access("/usr/bin/caffeinate", os.X_OK):  # it ends with the process it waits for
            subprocess.Popen(["/usr/bin/caffeinate", "-i", "-m", "-s", "-w", str(child.pid)], stdin=subprocess.DEVNULL)
        code = child.wait()
        with contextlib.suppress(OSError):
            reserve.unlink()
        ended = {"code": code if code >= 0 else None, "signal": -code if code < 0 else None, "at": stamp()}
        write(folder / "exit.json", dict(ended, boot_id=boot_id(), terminated=bool(signals)))
