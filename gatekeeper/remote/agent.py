"""The agent: the far end of a link. It is sent through ssh's stdin, so it is one file and needs Python alone.

It answers `hello` on any Python from 3.6 on, so that an old one is told and not met as a syntax error. Everything it
is told (paths, names, words of commands) arrives as JSON in frames of known length; it starts programs with lists of
words, never a shell. The same text, kept as a file, is the supervisor of a detached job: `agent.py supervise FOLDER`.

A frame is two big-endian 32-bit lengths, then that many bytes of JSON, then that many bytes of content.
"""

import contextlib
import errno
import fcntl
import getpass
import glob
import hashlib
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

VERSION = 1
OLDEST_PYTHON = (3, 11)
CHUNK = 1 << 18
HEADER_MOST = 1 << 26
BEAT_S = 5.0
"""A stream with nothing to say says so this often, so that a lost reader is noticed by both sides."""
POLL_S = 0.1
PYTHONS = ("python3", "python3.13", "python3.12", "python3.11", "python3.14", "python")
"""The order in which a Python is looked for; the first that is new enough is taken."""
PLACES = ("/opt/homebrew/bin", "/usr/local/bin", "~/.local/bin")
ELSEWHERE = (
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "/Library/Frameworks/Python.framework/Versions/*/bin",
)
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
"""What a run id and an environment key look like; anything else would be a path."""
PROBE = """
import sys
print(".".join(map(str, sys.version_info[:3])))
import venv, ensurepip
print("venv")
"""

Header = Dict[str, Any]
Items = Iterator[Tuple[Header, bytes]]


class Refusal(Exception):  # noqa: N818 (it is no error of the agent's)
    """What the agent will not or can not do; `kind` is one word the near side may rely on."""

    def __init__(self, kind: str, message: str, hint: str = "", **more: Any) -> None:
        super().__init__(message)
        self.kind, self.message, self.hint, self.more = kind, message, hint, more


class Gone(Exception):  # noqa: N818 (the usual end)
    """The near side went away."""


class Channel:
    """Frames in and out."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink

    def receive(self) -> "Tuple[Header, bytes]":
        """Return the next frame; Gone at the end."""
        header_size, content_size = struct.unpack("!II", self._exactly(8))
        if header_size > HEADER_MOST or content_size > HEADER_MOST:
            raise Gone
        return json.loads(self._exactly(header_size).decode()), self._exactly(content_size)

    def _exactly(self, size: int) -> bytes:
        got = self._source.read(size)
        if len(got) != size:
            raise Gone
        return got

    def send(self, header: Header, content: bytes = b"") -> None:
        """Send one frame."""
        text = json.dumps(header).encode()
        try:
            self._sink.write(struct.pack("!II", len(text), len(content)) + text + content)
            self._sink.flush()
        except (OSError, ValueError):
            raise Gone from None

    def check(self, wait_s: float = 0.0) -> None:
        """Wait so long; Gone as soon as the near side has closed its end, for it says nothing during a reply."""
        if select.select([self._source], [], [], wait_s)[0]:
            raise Gone


class Agent:
    """Answers one near side; its state lies in one folder."""

    def __init__(self, channel: Channel, program: bytes) -> None:
        self._channel, self._program = channel, program
        self.home = Path()
        self._python = None  # type: Optional[str]

    def serve(self) -> None:
        """Answer until the near side goes away."""
        with contextlib.suppress(Gone):
            while True:
                asked, _ = self._channel.receive()
                self._answer(str(asked.get("verb")), asked.get("arguments") or {})

    def _answer(self, verb: str, arguments: Header) -> None:
        try:
            reply = getattr(self, "do_" + verb, self._unknown)(**arguments)
            if isinstance(reply, dict):
                self._channel.send({"reply": reply})
                return
            for header, content in reply:
                self._channel.send({"item": header}, content)
            self._channel.send({"end": True})
        except Refusal as refusal:
            self._fault(refusal.kind, refusal.message, refusal.hint, refusal.more)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            self._fault("disk_full" if full else "denied" if denied else "os", str(error), "", {"errno": error.errno})
        except (TypeError, ValueError, KeyError) as error:
            self._fault("bug", type(error).__name__ + ": " + str(error), "", {})

    def _unknown(self, **_: Any) -> Header:
        raise Refusal("verb", "the agent does not know how to do that")

    def _fault(self, kind: str, message: str, hint: str, more: Header) -> None:
        self._channel.send({"fault": dict(more, kind=kind, message=message, hint=hint)})

    # ── who and where ──

    def do_hello(self, home: "Optional[str]" = None, python: "Optional[str]" = None) -> Header:
        """Say what this machine is; *home* is where everything is kept, *python* what environments are made with."""
        self.home = Path(os.path.expanduser(home or "~/.gatekeeper"))
        if not self.home.is_absolute():
            self.home = Path.home() / self.home
        tried = {}  # type: Dict[str, str]
        capable = None
        lacking = []
        for path in [os.path.expanduser(python)] if python else _pythons():
            version, has_venv = _probe(path)
            if version is None:
                continue
            tried[path] = version
            if tuple(int(part) for part in version.split(".")) >= OLDEST_PYTHON:
                if has_venv:
                    capable = path
                    break
                lacking.append(path)
        self._python = capable
        return {
            "agent": VERSION,
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "executable": sys.executable,
            "platform": "darwin"
            if sys.platform == "darwin"
            else "linux"
            if sys.platform.startswith("linux")
            else sys.platform,
            "machine": platform.machine(),
            "user": getpass.getuser(),
            "hostname": socket.gethostname(),
            "home": str(self.home),
            "boot_id": boot_id(),
            "free_bytes": _free(self.home),
            "capable_python": capable,
            "pythons": tried,
            "without_venv": lacking,
        }

    def do_clock(self) -> Header:
        """Say what time it is here."""
        return {"time_ns": int(time.time() * 1e9)}

    # ── files ──

    def _at(self, path: str) -> Path:
        parts = Path(path).parts
        if not parts or Path(path).is_absolute() or ".." in parts or "\0" in path:
            raise Refusal("path", "not a path below the state folder: " + repr(path))
        return self.home.joinpath(*parts)

    def do_put(self, path: str, sha256: str, mode: int = 0o644) -> Header:
        """Take a file from the frames that follow; it appears whole or not at all."""
        part = None
        try:
            try:
                target = self._at(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(target.name[:80] + ".part-" + str(os.getpid()))
                sink = part.open("wb")
            except (OSError, Refusal):
                self._drain()
                raise
            with sink:
                got = self._take(sink)
            if got != sha256:
                raise Refusal("damaged", path + " arrived damaged", got=got)  # noqa: TRY301
            part.chmod(mode)
            os.replace(str(part), str(target))
        except (OSError, Refusal):
            if part is not None:
                with contextlib.suppress(OSError):
                    part.unlink()
            raise
        return {"sha256": sha256}

    def _take(self, sink: "BinaryIO") -> str:
        """Write the frames that follow to *sink*, safely on the disk; return their digest."""
        digest = hashlib.sha256()
        while True:
            more, content = self._channel.receive()
            if not more.get("more"):
                break
            digest.update(content)
            try:
                sink.write(content)
            except OSError:
                self._drain()
                raise
        sink.flush()
        os.fsync(sink.fileno())
        return digest.hexdigest()

    def _drain(self) -> None:
        """Read what was still to come, or the next frame of a file would be taken for a question."""
        while self._channel.receive()[0].get("more"):
            pass

    def do_held(self, path: str) -> Header:
        """Say what a file holds; nothing where there is none."""
        at = self._at(path)
        return {"size": at.stat().st_size, "sha256": _sha256(at)} if at.is_file() else {}

    def do_link(self, path: str, to: str) -> Header:
        """Lay a link at *path* to what is here already: a whole path of this machine, or one below the state folder."""
        at, target = self._at(path), Path(os.path.expanduser(to))
        target = target if target.is_absolute() else self._at(to)
        if not target.exists():
            raise Refusal("missing", "there is no " + str(target))
        at.parent.mkdir(parents=True, exist_ok=True)
        part = at.with_name(at.name[:80] + ".part-" + str(os.getpid()))
        os.symlink(str(target), str(part))
        os.replace(str(part), str(at))
        return {"to": str(target)}

    def do_get(self, path: str, offset: int = 0) -> Items:
        """Send a file from *offset* on, then the digest of what was sent."""
        at, digest = self._at(path), hashlib.sha256()
        if not at.is_file():
            raise Refusal("missing", "no file " + str(at))
        with at.open("rb") as source:
            source.seek(offset)
            for content in iter(lambda: source.read(CHUNK), b""):
                digest.update(content)
                yield {}, content
        yield {"sha256": digest.hexdigest()}, b""

    # ── environments ──

    def do_install(self, key: str, wheel: str, lock: str) -> Items:
        """Make the environment *key* of a wheel and pinned requirements that were put here, or find it ready."""
        folder = self._named("envs", key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / (key + ".lock"), self._channel):
            ready = folder / "ready"
            if ready.is_file():
                yield dict(_json(ready), ready=True, fresh=False), b""
                return
            if self._python is None:
                raise Refusal("python", "no Python " + _dotted(OLDEST_PYTHON) + " or newer with venv here")
            if folder.exists():
                shutil.rmtree(str(folder))
            for words in (
                [self._python, "-I", "-m", "venv", str(folder)],
                [*_pip(folder), "install", "--require-hashes", "--no-deps", "-r", str(self._at(lock))],
                [*_pip(folder), "install", "--no-deps", "--no-index", str(self._at(wheel))],
            ):
                for item in self._step(words):
                    yield item, b""
            frozen = subprocess.run(
                [*_pip(folder), "freeze", "--all"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                check=True,
                env=_clean(),
            ).stdout.decode()
            (folder / "installed.txt").write_text(frozen)
            made = {"key": key, "python": _probe(str(folder / "bin" / "python"))[0], "installed": frozen.splitlines()}
            _write(ready, made)
        yield dict(made, ready=True, fresh=True), b""

    def _step(self, words: "List[str]") -> "Iterator[Header]":
        """Run one step of an installation; tell what it says, and refuse to go on where it fails."""
        said = []  # type: List[str]
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_clean()
        )
        try:
            for line in _lines(child, self._channel):
                if line:
                    said = [*said[-40:], line]
                yield {"line": line}
        finally:
            if child.poll() is None:
                child.kill()
            code = child.wait()
        if code != 0:
            full = any("No space left" in line or "Disk quota" in line for line in said)
            told = "\n".join(said[-12:])
            raise Refusal("disk_full" if full else "install", "{} failed: {}".format(" ".join(words[1:5]), told))

    def do_verify(self, environment: str, package: "Dict[str, str]") -> Header:
        """Compare an environment somebody else made with the *package* of the near side: digests by path."""
        python = Path(os.path.expanduser(environment)) / "bin" / "python"
        version, _ = _probe(str(python))
        if version is None:
            raise Refusal("environment", "no Python at " + str(python))
        found = subprocess.run(
            [str(python), "-I", "-c", "import importlib.util as u; print(u.find_spec('gatekeeper').origin)"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, env=_clean(),
        )  # fmt: skip
        origin = found.stdout.decode().strip()
        if found.returncode != 0 or not origin:
            raise Refusal("environment", "no gatekeeper in " + environment)
        root = Path(origin).parent
        differing = [
            name
            for name, digest in sorted(package.items())
            if not (root / name).is_file() or _sha256(root / name) != digest
        ]
        return {"python": version, "root": str(root), "differing": differing}

    def _environment(self, key: str, environment: str) -> Path:
        if environment:
            return Path(os.path.expanduser(environment))
        folder = self._named("envs", key)
        if not (folder / "ready").is_file():
            raise Refusal("environment", "the environment " + key + " is not installed")
        return folder

    def _named(self, shelf: str, name: str) -> Path:
        if not PLAIN.fullmatch(name):
            raise Refusal("path", "not a plain name: " + repr(name))
        return self.home / shelf / name

    # ── jobs ──

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
        folder = self._named("jobs", run_id)
        place = self._environment(key, environment)
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.home / "jobs.lock", self._channel):
            if (folder / "job.json").exists() and not (again and self._job(folder)["state"] != "running"):
                raise Refusal("exists", "the run " + run_id + " was started here already")
            for other in self._jobs():
                if other["state"] == "running":
                    told = "a run of {owner} is under way here since {started}: {run_id}".format(**other)
                    raise Refusal("busy", told, job=other)
            job = {
                "run_id": run_id, "argv": argv, "owner": owner, "slo_sha256": slo_sha256, "started": _stamp(),
                "started_ns": int(time.time() * 1e9), "boot_id": boot_id(), "key": key, "environment": str(place),
                "settings": settings or {}, "named": sorted(env or {}), "label": label or {},
            }  # fmt: skip
            program = self.home / "agents" / (hashlib.sha256(self._program).hexdigest()[:16] + ".py")
            if not program.is_file():
                program.parent.mkdir(parents=True, exist_ok=True)
                _write_bytes(program, self._program)
            with (folder / "log").open("ab") as log, (folder / "supervisor.lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # the supervisor inherits it: from here on the job is seen to run
                _write(folder / "job.json", job)
                supervisor = subprocess.Popen(
                    [str(place / "bin" / "python"), "-I", str(program), "supervise", str(folder)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=str(folder),
                    pass_fds=[lock.fileno()],
                    env=dict(_job_environment(place), **dict(settings or {}, **(env or {}))),
                )  # fmt: skip
            end = time.monotonic() + 30
            while not (folder / "pids.json").exists() and supervisor.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
        return self._job(folder)

    def _jobs(self) -> "List[Header]":
        folders = sorted((self.home / "jobs").glob("*/job.json"))
        return [self._job(one.parent) for one in folders]

    def _job(self, folder: Path) -> Header:
        """Say everything of a job; its state is read off the processes and files, and stored nowhere."""
        job, ended = _json(folder / "job.json"), _json(folder / "exit.json")
        supervised, alive = _held(folder / "supervisor.lock"), _held(folder / "gatekeeper.lock")
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
        return dict(job, **more, cancelled=_json(folder / "cancel.json") or None, boot_id_now=boot_id())

    def do_jobs(self) -> Header:
        """List every job that lies here."""
        return {"jobs": self._jobs()}

    def do_job(self, run_id: str) -> Header:
        """Say everything of one job, with the end of its log."""
        folder = self._named("jobs", run_id)
        return dict(self._job(folder), log=_tail(folder / "log"))

    def do_follow(self, run_id: str, offset: int = 0) -> Items:
        """Send the whole lines of a job's progress from *offset* on until it has ended and all were sent."""
        folder = self._named("jobs", run_id)
        job, said = self._job(folder), time.monotonic()
        path = folder / "progress.jsonl"
        while True:
            running = job["state"] == "running"
            text = _whole_lines(path, offset)
            if text:
                offset += len(text)
                said = time.monotonic()
                yield {"offset": offset, "lines": text.decode("utf-8", "replace").splitlines()}, b""
            elif not running:
                break
            elif time.monotonic() - said > BEAT_S:
                said = time.monotonic()
                yield {"offset": offset, "lines": []}, b""
            if not text:
                self._channel.check(POLL_S)
            job = self._job(folder)
        yield {"offset": offset, "lines": [], "job": dict(job, log=_tail(folder / "log"))}, b""

    def do_files(self, run_id: str, under: str = "run") -> Items:
        """List the files below a folder of a job with size and digest, one at a time."""
        root = self._named("jobs", run_id).joinpath(*self._at(under).relative_to(self.home).parts)
        for at in sorted(root.rglob("*")):
            if at.is_file() and not at.is_symlink():
                name = str(at.relative_to(root))
                yield (
                    {
                        "name": name,
                        "path": str(at.relative_to(self.home)),
                        "size": at.stat().st_size,
                        "sha256": _sha256(at),
                    },
                    b"",
                )

    def do_cancel(self, run_id: str, grace_s: float = 60.0, who: str = "") -> Items:
        """End a job: ask gatekeeper, which ends its servers, wait, then kill what is left of it; say which happened."""
        folder = self._named("jobs", run_id)
        if self._job(folder)["state"] != "running":
            yield {"how": "ended", "job": self._job(folder)}, b""
            return
        gatekeeper = int(_json(folder / "pids.json").get("gatekeeper", 0))
        if not gatekeeper:
            raise Refusal("starting", "the run is just being started; try again")
        _write(folder / "cancel.json", {"at": _stamp(), "who": who})
        family = _family(gatekeeper)
        with contextlib.suppress(ProcessLookupError):
            os.kill(gatekeeper, signal.SIGTERM)
        end = time.monotonic() + grace_s
        while _alive(family) and time.monotonic() < end:
            family.update(_family(gatekeeper))
            yield {"waiting": sorted(_alive(family))}, b""
            self._channel.check(POLL_S)
        left = _alive(family)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 10
        while (_alive(family) or self._job(folder)["state"] == "running") and time.monotonic() < end:
            time.sleep(POLL_S)
        yield {"how": "killed" if left else "graceful", "killed": sorted(left), "job": self._job(folder)}, b""

    def do_remove(self, run_id: str) -> Header:
        """Forget a job that has ended."""
        folder = self._named("jobs", run_id)
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
        place = self._environment(key, environment)
        child = subprocess.Popen(
            _gatekeeper(place, argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=str(self._at(folder)) if folder else None, env=dict(_job_environment(place), **(env or {})),
        )  # fmt: skip
        try:
            for name, content in _outputs(child, self._channel):
                yield {"stream": name}, content
            yield {"code": child.wait()}, b""
        finally:
            if child.poll() is None:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(10)
                if child.poll() is None:
                    child.kill()


# ── the supervisor ──


def supervise(folder: Path) -> None:
    """Run the job in *folder* to its end and write down how it ended; nobody is connected to this process."""
    job = _json(folder / "job.json")
    with (folder / "gatekeeper.lock").open("ab") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)  # gatekeeper inherits it, and may outlive this process
        told = []  # type: List[int]
        child = subprocess.Popen(
            _gatekeeper(Path(job["environment"]), job["argv"]),
            stdin=subprocess.DEVNULL, cwd=str(folder), start_new_session=True, pass_fds=[theirs.fileno()],
        )  # fmt: skip

        def pass_on(number: int, _frame: Any) -> None:
            told.append(number)
            child.send_signal(signal.SIGTERM)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, pass_on)
        _write(folder / "pids.json", {"supervisor": os.getpid(), "gatekeeper": child.pid})
        awake = None
        if os.access("/usr/bin/caffeinate", os.X_OK):
            awake = subprocess.Popen(
                ["/usr/bin/caffeinate", "-i", "-m", "-s", "-w", str(child.pid)], stdin=subprocess.DEVNULL
            )
        code = child.wait()
        if awake is not None:
            awake.terminate()
        ended = {"code": code if code >= 0 else None, "signal": -code if code < 0 else None, "at": _stamp()}
        _write(folder / "exit.json", dict(ended, boot_id=boot_id(), terminated=bool(told)))


# ── what this machine is ──


def boot_id() -> str:
    """Return what changes with every start of this machine; nothing where it can not be told."""
    named = os.environ.get("GATEKEEPER_BOOT_ID_FILE")
    with contextlib.suppress(OSError):
        return Path(named or "/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(asked, stdout=subprocess.PIPE, check=True, timeout=10).stdout.decode().strip()
    return ""


def _pythons() -> "List[str]":
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *PLACES]
    for pattern in ELSEWHERE:
        folders += sorted(glob.glob(os.path.expanduser(pattern)), reverse=True)
    found = {}  # type: Dict[str, str]
    for name in PYTHONS:
        for folder in folders:
            path = os.path.join(os.path.expanduser(folder), name)
            if folder and os.access(path, os.X_OK) and not _is_stub(path):
                found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _is_stub(path: str) -> bool:
    """Tell whether *path* is what macOS keeps in a Python's place: it opens a window that asks to install one."""
    if path != "/usr/bin/python3" or sys.platform != "darwin":
        return False
    asked = ["/usr/bin/xcode-select", "-p"]
    return subprocess.call(asked, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0


def _probe(path: str) -> "Tuple[Optional[str], bool]":
    """Return the version of a Python, if it is one, and whether it can make environments that have pip."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        ran = subprocess.run(
            [path, "-I", "-c", PROBE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            check=False, timeout=20, env=_clean(),
        )  # fmt: skip
        said = ran.stdout.decode(errors="replace").split()
        if said and re.fullmatch(r"\d+\.\d+\.\d+", said[0]):
            return said[0], said[1:] == ["venv"]
    return None, False


def _free(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(str(folder)).free


def _family(root: int) -> "Dict[int, str]":
    """Return *root*, what it started and what shares a session with them, each with the moment it was started.

    A number alone may belong to another process by the time it is killed.
    """
    table = _processes()
    family = {root}
    grown = True
    while grown:
        grown = False
        for pid, (parent, session, _) in table.items():
            if pid not in family and (parent in family or session in family):
                family.add(pid)
                grown = True
    return {pid: table[pid][2] for pid in family if pid in table}


def _alive(family: "Dict[int, str]") -> "List[int]":
    table = _processes()
    return [pid for pid, started in family.items() if pid in table and table[pid][2] == started]


def _processes() -> "Dict[int, Tuple[int, int, str]]":
    """Return parent, session and start of every process that is no zombie."""
    table = {}  # type: Dict[int, Tuple[int, int, str]]
    if Path("/proc/self/stat").exists():
        for at in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = at.read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    table[int(at.parent.name)] = (int(fields[1]), int(fields[3]), fields[19])
        return table
    asked = ["/bin/ps", "-A", "-o", "pid=,ppid=,stat=,lstart="]
    listed = subprocess.run(asked, stdout=subprocess.PIPE, check=True, env=dict(os.environ, LC_ALL="C")).stdout
    for line in listed.decode(errors="replace").splitlines():
        pid, parent, state, started = line.split(None, 3)
        with contextlib.suppress(OSError):
            if not state.startswith("Z"):
                table[int(pid)] = (int(parent), os.getsid(int(pid)), started)
    return table


# ── processes ──


def _clean() -> "Dict[str, str]":
    """Return this environment without what bends a Python."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON") and key != "VIRTUAL_ENV"}


def _job_environment(place: Path) -> "Dict[str, str]":
    """Return the environment of a job: servers installed beside it are found, and what a short ssh PATH leaves out."""
    path = [str(place / "bin"), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    path += [os.path.expanduser(one) for one in (*PLACES, "/usr/sbin", "/sbin") if os.path.expanduser(one) not in path]
    return dict(_clean(), PATH=os.pathsep.join(path), PYTHONUNBUFFERED="1")


def _gatekeeper(place: Path, argv: "List[str]") -> "List[str]":
    return [str(place / "bin" / "python"), "-P", "-m", "gatekeeper", *argv]


def _pip(folder: Path) -> "List[str]":
    return [str(folder / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]


def _outputs(child: "subprocess.Popen[bytes]", channel: Channel) -> "Iterator[Tuple[str, bytes]]":
    """Yield what a child writes as it comes; an empty piece now and then while it is silent."""
    pipes = {pipe: name for name, pipe in (("stdout", child.stdout), ("stderr", child.stderr)) if pipe is not None}
    said = time.monotonic()
    while pipes:
        channel.check()
        for pipe in select.select(list(pipes), [], [], 0.2)[0]:
            content = os.read(pipe.fileno(), 1 << 16)
            if content:
                said = time.monotonic()
                yield pipes[pipe], content
            else:
                del pipes[pipe]
        if time.monotonic() - said > BEAT_S:
            said = time.monotonic()
            yield "stdout", b""


def _lines(child: "subprocess.Popen[bytes]", channel: Channel) -> "Iterator[str]":
    rest = b""
    for _, content in _outputs(child, channel):
        *whole, rest = (rest + content).split(b"\n")
        if not content:
            yield ""
        for line in whole:
            yield line.decode(errors="replace").rstrip()
    if rest:
        yield rest.decode(errors="replace").rstrip()


# ── files ──


@contextlib.contextmanager
def _locked(path: Path, channel: Channel) -> "Iterator[None]":
    """Hold a lock; wait for it as long as the near side does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                channel.check(POLL_S)
        yield


def _held(path: Path) -> bool:
    """Tell whether a living process holds the lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _write(path: Path, document: Header) -> None:
    _write_bytes(path, json.dumps(document, indent=1, sort_keys=True).encode())


def _write_bytes(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part-" + str(os.getpid()))
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(str(part), str(path))


def _json(path: Path) -> Header:
    try:
        read = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _tail(path: Path, most: int = 8192) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode(errors="replace")
    return ""


def _whole_lines(path: Path, offset: int) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(offset)
        read = file.read(CHUNK)
        return read[: read.rfind(b"\n") + 1]
    return b""


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for content in iter(lambda: file.read(1 << 20), b""):
            digest.update(content)
    return digest.hexdigest()


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _dotted(version: "Tuple[int, ...]") -> str:
    return ".".join(str(part) for part in version)


def main(program: bytes, nonce: str) -> None:
    """Speak frames on stdin and stdout; what anything else prints goes to stderr."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    out.write(("\ngatekeeper-agent " + nonce + "\n").encode())
    out.flush()
    Agent(Channel(sys.stdin.buffer, out), program).serve()


if __name__ == "__main__":
    if sys.argv[1:2] == ["supervise"]:
        supervise(Path(sys.argv[2]))
    else:
        main(globals()["program"], globals()["nonce"])
