"""Downloading a run: its archive is unpacked within limits, and the whole run is judged again locally."""

import os
import re
import shutil
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.document import text_of
from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.reasons import Reason
from gatekeeper.core.system import run_directory
from gatekeeper.core.system.run_directory import MANIFEST, POLICY, VERDICT
from gatekeeper.core.text import QUOTED
from gatekeeper.core.units import show_bytes
from gatekeeper.run.remote import host_scripts
from gatekeeper.run.remote.run_list import RemoteJob
from gatekeeper.run.remote.ssh import RemoteHost, RemoteScript
from gatekeeper.run.remote.ssh_errors import SILENT, SshError
from gatekeeper.run.stored import verify
from gatekeeper.run.stored.judge import judge

FILES_MOST, BYTES_MOST, DEPTH_MOST = 10_000, 8 << 30, 4
"""Files of a run, their bytes and the folders of a name: hundreds, one gigabyte for a day's soak, and two."""
PLAIN_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,200}")
SILENCE_S = 120.0
"""Time limit of each piece of the archive."""
SLOWEST = 10e3
"""Bytes a second of a download that is still waited for."""


class _PlainMember(tarfile.TarInfo):
    """A member that is a regular file or a folder; the header of any other is refused before it is followed."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parse a header."""
        member = super().frombuf(buf, encoding, errors)
        if member.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE}:
            raise _refusal(f"something that is no file: {member.name[:QUOTED]!r}")
        if member.size > BYTES_MOST:
            raise _refusal(f"more than {show_bytes(BYTES_MOST)}")
        return member


@dataclass(slots=True)
class _ArchiveStream:
    """The output of a script as a file, which may neither stop nor drip."""

    running: RemoteScript
    began_s: float
    received: int = 0

    def read(self, size: int) -> bytes:
        content = self.running.read(size, SILENCE_S)
        self.received += len(content)
        if time.monotonic() - self.began_s > SILENCE_S + self.received / SLOWEST:
            hint = f"check the connection to {self.running.host}; repeat the command to download the run again"
            raise SshError(SILENT, f"{self.running.host} sends less than {show_bytes(SLOWEST)} a second", hint=hint)
        return content


def download(host: RemoteHost, run_id: str, out: Path) -> int:
    """Download the run *run_id* to *out*; return the number of its files. An earlier part of it in *out* is replaced.

    The files go to a new folder next to *out*, which is moved when it is whole. Nothing is written anywhere else,
    whatever that host sends.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name[:80]}.", dir=out.parent) as folder:
            part = Path(folder, "run")
            part.mkdir()
            with host.open(host_scripts.PRINT_RUN, {"run": run_id}) as running:
                running.end_input()
                count = _unpack(running, part)
                running.finish()
            if count:
                _move(part, out, run_id, host)
    except OSError as error:
        hint = "make room, or remove what is in its place, and repeat the command; the remote host keeps the run"
        raise GatekeeperError(f"cannot write {error.filename or out}: {error.strerror or error}", hint=hint) from error
    return count


def _unpack(running: RemoteScript, part: Path) -> int:
    """Write the files of the archive into the new folder *part*; return their number."""
    stream = _ArchiveStream(running, time.monotonic())
    names = set[str]()
    count = size = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|gz", tarinfo=_PlainMember) as archive:  # type: ignore[call-overload]
            for member in archive:
                count, size = count + 1, size + member.size
                if count > FILES_MOST or size > BYTES_MOST:
                    raise _refusal(f"more than {FILES_MOST} files or {show_bytes(BYTES_MOST)}")
                name = _name_in_run(member)
                if name is None:
                    continue
                if name.casefold() in names:  # a Mac takes A and a for one file
                    raise _refusal("two files under one name")
                names.add(name.casefold())
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                content = archive.extractfile(member)
                assert content is not None
                with (part / name).open("xb") as file:
                    shutil.copyfileobj(content, file)
    except tarfile.ReadError as error:
        if stream.received == 0:
            return 0  # the run ended before it wrote anything
        running.finish()  # raises, where the connection was lost
        raise _refusal(f"a damaged archive: {error}") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _refusal("a file and a folder under one name") from error
    return len(names)


def _name_in_run(member: tarfile.TarInfo) -> str | None:
    """Return the path of a file below the run directory; None for a folder, a lock and a half-written file.

    A name that is no path of plain names is refused with the whole archive.
    """
    name = member.name.removeprefix("./").rstrip("/")
    if member.isdir() and name in {"", "."}:
        return None
    parts = name.split("/")
    if len(parts) > DEPTH_MOST or not all(PLAIN_NAME.fullmatch(part) for part in parts):
        raise _refusal(f"a file outside the run directory: {member.name[:QUOTED]!r}")
    if member.isdir() or parts[-1] == run_directory.LOCK or any(part.startswith(".") for part in parts):
        return None
    return str(PurePosixPath(*parts))


def _refusal(fault: str) -> NoProofError:
    message = f"the remote host sends {fault}"
    return NoProofError(Reason.DAMAGED, message, hint="check that --on names the right host, and check that host")


def _move(part: Path, out: Path, run_id: str, host: RemoteHost) -> None:
    """Move the run to *out*; only an earlier part of the same run is replaced."""
    manifests = [folder / MANIFEST for folder in (part, out)]
    same_run = all(path.is_file() for path in manifests) and manifests[0].read_bytes() == manifests[1].read_bytes()
    if not same_run and run_directory.is_taken(out):
        hint = f"download it to another place: gatekeeper remote attach {run_id} --on {host.name} --output FOLDER"
        raise InputError(f"{out} is not empty and holds another run or other files", hint=hint)
    if out.exists():
        out.rename(part.with_name("old"))  # removed with the folder of the download
    part.rename(out)
    os.utime(out)


@dataclass(frozen=True, slots=True)
class RemoteResult:
    """The result of a remote run."""

    path: Path
    verdict: Verdict | None = None
    """As judged locally; None where there is too little to judge."""
    text: str = ""
    """The content of verdict.json."""
    promoted: bool = False
    exact: bool = False
    """The two verdicts agree byte for byte; False with other versions, where only the outcomes have to."""
    error: GatekeeperError | None = None
    """Why there is no valid verdict: the run did not finish, its files were changed, or the two verdicts differ."""


def judge_locally(out: Path, job: RemoteJob, log: str) -> RemoteResult:
    """Judge the downloaded run in *out* again; *job* and *log* are how that host says that it ended."""
    error = failure_of(job, log)
    if error is None:
        try:
            return _verify(out, job)
        except NoProofError as refused:
            error = NoProofError(refused.reason, f"{out}: {refused.message}", hint=refused.next(None, out))
        except InputError as damaged:  # its files are not the user's input
            error = NoProofError(Reason.UNREADABLE, f"{out}: {damaged.message}", hint=damaged.hint)
    try:
        verdict = judge(out)
    except (GatekeeperError, ValueError):
        return RemoteResult(out, error=error)
    if verdict.exit_code == ExitCode.OK:  # records that failed a check prove nothing good
        return RemoteResult(out, error=error)
    return RemoteResult(out, verdict, text_of(verdict), error=error)


SIGNALS = 128
"""A shell reports a signal as so much more than its number."""


def failure_of(job: RemoteJob, log: str) -> GatekeeperError | None:
    """Return why a run has no verdict of its own; None where it finished."""
    if job.finished and not job.cancelled_by and (job.state == "died" or job.code in {0, 1, 3}):
        return None
    run = f"run {job.run_id}"
    log = f"; the end of its log:\n{log}" if log else ""
    reason: Reason | None = None
    if job.cancelled_by:
        reason, message, log = Reason.CANCELLED, f"{run} was cancelled by {job.cancelled_by}", ""
    elif job.code is None:
        reason, message = Reason.DIED, f"{run} did not finish: killed there, out of memory, or the host was restarted"
    elif job.code == ExitCode.INTERRUPTED:
        reason, message = Reason.INTERRUPTED, f"{run} was interrupted on the remote host"
    elif job.code > SIGNALS:
        reason, message = Reason.KILLED, f"{run}: the remote gatekeeper was killed by signal {job.code - SIGNALS}"
    if reason is not None:
        again = (
            "the records so far are downloaded; continue this run with --resume, or repeat the command for a new one"
        )
        return NoProofError(reason, f"{message}{log}", hint=again)
    message = f"{run}: the remote gatekeeper ended with exit code {job.code}{log}"
    hint = "its log above says what to do on the remote host"
    if job.code in {ExitCode.OK, ExitCode.OBJECTIVE_FAILED, ExitCode.UNPROVEN}:  # no verdict without a finished run
        return NoProofError(Reason.UNPROVEN, message, hint=hint)
    kind = InputError if job.code == ExitCode.BAD_INPUT else GatekeeperError
    return kind(message, hint=hint)


def _verify(out: Path, job: RemoteJob) -> RemoteResult:
    """Check the checksums and judge again; refuse a verdict that differs in any byte from the remote host's."""
    directory = run_directory.RunDirectory(out)
    verify.check_sums(directory)
    run = verify.judge_again(directory, verify.read_manifest(directory))
    promoted = (out / POLICY).is_file()
    if promoted:
        verify.check_published(run)
    if job.code is not None and run.verdict.exit_code != job.code:  # unknown of a run whose supervisor was killed
        raise NoProofError(
            Reason.DISAGREEMENT,
            f"the remote gatekeeper ended with exit code {job.code}, its records give {run.verdict.exit_code}",
            hint="update gatekeeper on both machines and certify again",
        )
    return RemoteResult(out, run.verdict, directory.read(VERDICT).decode(), promoted, run.exact)
