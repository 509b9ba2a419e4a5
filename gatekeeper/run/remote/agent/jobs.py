"""Jobs: runs that were started over a link and live on without it."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Dict, List, Optional

from gatekeeper.run.remote.agent.environments import Environments
from gatekeeper.run.remote.agent.frames import BEAT_S, CHUNK, POLL_S, Channel, Header, Items, Refusal
from gatekeeper.run.remote.agent.machine import boot_id
from gatekeeper.run.remote.agent.processes import alive, family, gatekeeper, job_environment, outputs
from gatekeeper.run.remote.agent.state import (
    State,
    held,
    locked,
    read,
    sha256,
    stamp,
    tail,
    whole_lines,
    write,
    write_bytes,
)

KILLED_S = 10.0
"""So long a killed process may take to go: wired memory is given back on the way."""
STARTING_S = 30.0
ABANDONED_S = 86400.0
"""A delivery that no start followed for a day never will have one: its next try is another run."""


class Jobs:
    """Starts, follows and ends jobs."""

    def __init__(self, state: State, channel: Channel, environments: Environments, program: bytes) -> None:
        self._state, self._channel, self._environments, self._program = state, channel, environments, program

    def do_start(
        self,
        run_id: str,
        argv: "List[str]",
        owner: str,
        slo_sha256: str,
        key: str = "",
        environment: str = "",
        env: "Optional[Dict[str, str]]" = None,
        settings: "Optional[Dict[str, str]]" = None,
        label: "Optional[Header]" = None,
        again: bool = False,
    ) -> Header:
        """Start `gatekeeper ARGV` detached in the job's folder.

        *env* goes into the job's environment and is never written down; *settings* are no secret and are. *again* goes
        on in the folder of a job that has ended.
        """
        folder = self._state.named("jobs", run_id)
        place = self._environments.place(key, environment)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(self._state.home / "jobs.lock", self._channel):
            if (folder / "job.json").exists() and not (again and self._job(folder)["state"] != "running"):
                raise Refusal("exists", "the run " + run_id + " was started here already")
            for other in self._jobs():
                if other["state"] == "running":
                    told = "a run of {owner} is under way here since {started}: {run_id}".format(**other)
                    raise Refusal("busy", told, job=other)
            self._forget_abandoned(folder)
            job = {
                "run_id": run_id, "argv": argv, "owner": owner, "slo_sha256": slo_sha256, "started": stamp(),
                "started_ns": int(time.time() * 1e9), "boot_id": boot_id(), "key": key, "environment": str(place),
                "settings": settings or {}, "named": sorted(env or {}), "label": label or {},
            }  # fmt: skip
            for name in ("exit.json", "cancel.json", "pids.json", "fetched.json"):
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).unlink()
            program = self._state.home / "agents" / (hashlib.sha256(self._program).hexdigest()[:16] + ".py")
            if not program.is_file():
                program.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(program, self._program)
            said, mine = folder / "log", folder / "supervisor.lock"
            with said.open("ab") as log, mine.open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # the supervisor inherits it: from here on the job is seen to run
                write(folder / "job.json", job)
                supervisor = subprocess.Popen(
                    [str(place / "bin" / "python"), "-I", str(program), "supervise", str(folder)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=str(folder),
                    pass_fds=[lock.fileno()],
                    env=dict(job_environment(place), **dict(settings or {}, **(env or {}))),
                )  # fmt: skip
            end = time.monotonic() + STARTING_S
            while not (folder / "pids.json").exists() and supervisor.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            if not (folder / "pids.json").exists() and supervisor.poll() is not None:
                (folder / "job.json").unlink()  # it never began: the same name may be used again
                full = self._state.free() < CHUNK
                words = tail(folder / "log").strip() or "it said nothing"
                raise Refusal("disk_full" if full else "start", "the run could not be started: " + words)
        return self._job(folder)

    def _forget_abandoned(self, begun: Path) -> None:
        for other in {path for path in begun.parent.iterdir() if path.is_dir()} - {begun}:
            # Where job.json is damaged nobody knows any more what it was; it may run all the same.
            idle = not read(other / "job.json") and not held(other / "gatekeeper.lock")
            if idle and time.time() - other.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(str(other), ignore_errors=True)

    def _jobs(self) -> "List[Header]":
        folders = sorted((self._state.home / "jobs").glob("*/job.json"))
        return [self._job(one.parent) for one in folders if read(one)]

    def _job(self, folder: Path) -> Header:
        """Say everything of a job; its state is read off the processes and files, and stored nowhere."""
        job, ended = read(folder / "job.json"), read(folder / "exit.json")
        supervised, alive = held(folder / "supervisor.lock"), held(folder / "gatekeeper.lock")
        if not job:
            raise Refusal("missing", "no run " + folder.name + " here")
        same_boot = job.get("boot_id") == boot_id()
        told_to_end = bool(ended.get("terminated")) and not (folder / "cancel.json").is_file() and not same_boot
        if ended and not told_to_end:
            state = "finished"
        elif supervised or alive:
            state = "running"
        else:
            state = "died" if same_boot else "rebooted"
        progress = folder / "progress.jsonl"
        size = progress.stat().st_size if progress.is_file() else 0
        more = {"state": state, "exit": ended or None, "orphaned": alive and not supervised, "progress_bytes": size}
        return dict(job, **more, cancelled=read(folder / "cancel.json") or None, boot_id_now=boot_id())

    def do_jobs(self) -> Header:
        """List every job that lies here."""
        return {"jobs": self._jobs()}

    def do_job(self, run_id: str) -> Header:
        """Say everything of one job, with the end of its log."""
        folder = self._state.named("jobs", run_id)
        return dict(self._job(folder), log=tail(folder / "log"))

    def do_follow(self, run_id: str, offset: int = 0) -> Items:
        """Send the whole lines of a job's progress from *offset* on until it has ended and all were sent."""
        folder = self._state.named("jobs", run_id)
        job, said = self._job(folder), time.monotonic()
        path = folder / "progress.jsonl"
        while True:
            running = job["state"] == "running"
            text = whole_lines(path, offset)
            if text:
                offset += len(text)
                said = time.monotonic()
                yield {"offset": offset, "lines": [line.decode("utf-8", "replace") for line in text.splitlines()]}, b""
            elif not running:
                break
            elif time.monotonic() - said > BEAT_S:
                said = time.monotonic()
                yield {"offset": offset, "lines": []}, b""
            if not text:
                self._channel.check(POLL_S)
            job = self._job(folder)
        yield {"offset": offset, "lines": [], "job": dict(job, log=tail(folder / "log"))}, b""

    def do_files(self, run_id: str, under: str = "run") -> Items:
        """List the files below a folder of a job with size and digest, one at a time."""
        root = self._state.named("jobs", run_id).joinpath(*self._state.at(under).relative_to(self._state.home).parts)
        for at in sorted(root.rglob("*")):
            if at.is_file() and not at.is_symlink():
                name = str(at.relative_to(root))
                yield (
                    {
                        "name": name,
                        "path": str(at.relative_to(self._state.home)),
                        "size": at.stat().st_size,
                        "sha256": sha256(at),
                    },
                    b"",
                )

    def do_cancel(self, run_id: str, grace_s: float = 60.0, who: str = "") -> Items:
        """End a job: ask gatekeeper, which ends its servers, wait, then kill what is left of it; say which happened."""
        folder = self._state.named("jobs", run_id)
        if self._job(folder)["state"] != "running":
            yield {"how": "ended", "job": self._job(folder)}, b""
            return
        root = int(read(folder / "pids.json").get("gatekeeper", 0))
        if not root:
            raise Refusal("starting", "the run is just being started; try again")
        write(folder / "cancel.json", {"at": stamp(), "who": who})
        members = family(root)
        with contextlib.suppress(ProcessLookupError):
            os.kill(root, signal.SIGTERM)
        end = time.monotonic() + grace_s
        while alive(members) and time.monotonic() < end:
            members.update(family(root))  # a server it starts while it ends
            yield {"waiting": sorted(alive(members))}, b""
            self._channel.check(POLL_S)
        left = alive(members)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + KILLED_S
        while (alive(members) or self._job(folder)["state"] == "running") and time.monotonic() < end:
            time.sleep(POLL_S)
        yield {"how": "killed" if left else "graceful", "killed": sorted(left), "job": self._job(folder)}, b""

    def do_remove(self, run_id: str) -> Header:
        """Forget a job that has ended."""
        folder = self._state.named("jobs", run_id)
        if folder.is_dir() and (folder / "job.json").is_file() and self._job(folder)["state"] == "running":
            raise Refusal("busy", "the run " + run_id + " is under way")
        existed = folder.is_dir()
        if existed:
            shutil.rmtree(str(folder))
        return {"removed": existed}

    def do_run(
        self,
        argv: "List[str]",
        key: str = "",
        environment: str = "",
        env: "Optional[Dict[str, str]]" = None,
        folder: str = "",
    ) -> Items:
        """Run `gatekeeper ARGV` here and now; send what it writes, then its exit code. It ends with the near side."""
        place = self._environments.place(key, environment)
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
