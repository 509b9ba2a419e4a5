"""Downloading a run directory: every file is checked on arrival, and the whole run is judged again locally."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError, NoProofError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.reasons import Reason
from gatekeeper.core.system import run_directory
from gatekeeper.core.system.file_digests import file_sha256
from gatekeeper.core.system.files import open_folder, open_regular
from gatekeeper.core.system.run_directory import MANIFEST, POLICY, VERDICT
from gatekeeper.core.text import QUOTED
from gatekeeper.core.units import show_bytes
from gatekeeper.report import verdict_json
from gatekeeper.run.remote import replies, upload
from gatekeeper.run.remote.reconnect import ReconnectingSession, Say
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.upload import ATTEMPTS
from gatekeeper.run.stored import verify
from gatekeeper.run.stored.judge import judge, sweep_document

VERDICTS = (ExitCode.OK, ExitCode.OBJECTIVE_FAILED, ExitCode.UNPROVEN)
"""Exit codes a run that reached its verdict may end with."""
FILES_MOST, BYTES_MOST, DEPTH_MOST = 10_000, 64 << 30, 4
"""Files of a run, their bytes and the folders of a name: hundreds, one gigabyte for a day's soak, and two."""
PLAIN_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,200}")
LIST_S = 3600.0
"""Time limit of the list of files, which that host hashes meanwhile."""
LOST = {
    "died": "the remote gatekeeper ended without an error message (killed, or out of memory)",
    "rebooted": "the remote host was restarted during the run",
}


def download(session: ReconnectingSession, run_id: str, out: Path, say: Say) -> int:
    """Download the run *run_id* to *out*; return the number of its files. An earlier part of it in *out* is replaced.

    The files go to a folder next to *out*, which is moved when every digest is the one that the remote host lists;
    files of an interrupted download are not downloaded again. Nothing is written anywhere else, whatever that host
    lists or sends.
    """
    # One folder deeper than a run, so that an incomplete download is never taken for one.
    part = out.with_name(f".{out.name}.part") / "run"

    def action(connection: Connection) -> int:
        files = _listed_files(connection.stream("files", LIST_S, run_id=run_id))
        for path in [path for path in part.rglob("*") if path.is_file() or path.is_symlink()]:
            if path.relative_to(part).as_posix() not in files:
                path.unlink()
        for item in files.values():
            _download_file(connection, run_id, item, part, say)
            session.note_progress()
        return len(files)

    try:
        _make_folder(part, inside=out.parent)
        count = session.do(action)
        if count:
            _move(part, out)
        else:  # the run ended before it wrote anything
            shutil.rmtree(part.parent)
    except OSError as error:
        hint = "make room, or remove what is in its place, and repeat the command; the remote host keeps the run"
        raise GatekeeperError(f"cannot write {error.filename or part}: {error.strerror or error}", hint=hint) from error
    return count


def _listed_files(items: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the files to download by their names; refuse a list that no run has."""
    files: dict[str, Mapping[str, Any]] = {}
    size = belonging = 0
    for number, item in enumerate(items, start=1):
        name, size = str(item["name"]), size + int(item["size"])
        if number > FILES_MOST or size > BYTES_MOST:
            raise _refusal(f"more than {FILES_MOST} files or {show_bytes(BYTES_MOST)}")
        if _belongs(name):
            files[name] = item
            belonging += 1
    names = {name.casefold() for name in files}  # a Mac takes A and a for one file
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    if len(names) < belonging or not names.isdisjoint(folders):
        raise _refusal("two files under one name")
    return files


def _belongs(name: str) -> bool:
    """Leave out locks and half-written files; refuse a name that is no path of plain names below a run directory."""
    parts = name.split("/")
    if len(parts) > DEPTH_MOST or not all(PLAIN_NAME.fullmatch(part) for part in parts):
        raise _refusal(f"a file outside the run directory: {name[:QUOTED]!r}")
    return parts[-1] != run_directory.LOCK and not any(part.startswith(".") for part in parts)


def _refusal(fault: str) -> NoProofError:
    message = f"the remote host lists {fault}"
    return NoProofError(Reason.DAMAGED, message, hint="check that --on names the right host, and check that host")


def _make_folder(folder: Path, *, inside: Path) -> None:
    """Make *folder* and those between it and *inside*; a link in the place of one is refused. Raise OSError."""
    inside.mkdir(parents=True, exist_ok=True)
    for level in [*reversed(folder.relative_to(inside).parents), folder.relative_to(inside)]:
        (inside / level).mkdir(exist_ok=True)
        with open_folder(inside / level, inside=inside):
            continue


def _download_file(connection: Connection, run_id: str, item: Mapping[str, Any], part: Path, say: Say) -> None:
    name, target = str(item["name"]), part / str(item["name"])
    inside = part.parent.parent
    _make_folder(target.parent, inside=inside)
    is_whole = target.is_file() and target.stat().st_size == item["size"]
    if is_whole and file_sha256(target, inside=inside) == item["sha256"]:
        return
    for attempt in range(1, ATTEMPTS + 1):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(open_regular(target, flags, inside=inside), "wb") as into:
            digest = connection.download(f"{upload.folder(run_id)}/run/{name}", into, int(item["size"]))
        if digest == item["sha256"]:
            return
        if attempt < ATTEMPTS:
            say("download", f"{name} ({show_bytes(item['size'])}) arrived damaged; retrying")
    target.unlink(missing_ok=True)
    # Another connection would not help: the network changes what it carries.
    hint = "try another network; the remote host keeps the run: gatekeeper remote fetch"
    raise NoProofError(Reason.DAMAGED, f"{name} arrived damaged {ATTEMPTS} times", hint=hint)


def _move(part: Path, out: Path) -> None:
    """Move the run to *out*; only an earlier part of the same run is replaced."""
    manifests = [folder / MANIFEST for folder in (part, out)]
    same_run = all(path.is_file() for path in manifests) and manifests[0].read_bytes() == manifests[1].read_bytes()
    if not same_run and run_directory.is_taken(out):
        hint = f"gatekeeper remote fetch with another --output downloads it there; the files so far are in {part}"
        raise InputError(f"{out} is not empty and holds another run or other files", hint=hint)
    if out.exists():
        old = part.with_name("old")
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    part.rename(out)
    shutil.rmtree(part.parent, ignore_errors=True)


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
    document: dict[str, Any] | None = None
    """The result of a sweep or a probe, which have no verdict."""
    error: GatekeeperError | None = None
    """Why there is no valid verdict: the run did not finish, its files were changed, or the two verdicts differ."""

    @property
    def outcome(self) -> str:
        """Return the outcome as one word."""
        if self.error is not None:
            return str(getattr(self.error, "reason", Reason.UNPROVEN))
        return self.verdict.outcome if self.verdict is not None else "finished"


def judge_locally(out: Path, job: Mapping[str, Any], verb: str) -> RemoteResult:
    """Judge the downloaded run in *out* again; *job* is the remote host's record of how the run of *verb* ended."""
    error = failure_of(job)
    # A run whose supervisor was killed may have finished without it: it writes its checksums last of all.
    if str(job.get("state")) in LOST and not job.get("cancelled") and (out / run_directory.CHECKSUMS).is_file():
        error = None
    if error is None:
        try:
            if verb == "sweep":
                return RemoteResult(out, document=sweep_document(out))
            if verb == "try":
                return RemoteResult(out, document=_probe_document(out))
            return _verify(out, job.get("exit"), verb)
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
    return RemoteResult(out, verdict, verdict_json.render(verdict), error=error)


def _probe_document(out: Path) -> dict[str, Any]:
    try:
        document = json_object(run_directory.RunDirectory(out).read("probe.json"))
        return replies.checked(replies.Probe, document)
    except (ParseError, InputError) as error:
        message = error.message if isinstance(error, InputError) else f"probe.json is damaged: {error}"
        raise NoProofError(Reason.UNREADABLE, message, hint="repeat the probe") from error


def failure_of(job: Mapping[str, Any]) -> GatekeeperError | None:
    """Return why a run has no verdict of its own; None where it finished."""
    state, ended, cancelled = str(job.get("state")), job.get("exit") or {}, job.get("cancelled")
    lines = str(job.get("log") or "").strip().splitlines()[-12:]
    log = "".join(["; the end of its log:", *(f"\n  {line}" for line in lines)]) if lines else ""
    run = f"run {job.get('run_id')}"
    again = "the records so far are downloaded; continue this run with --resume, or repeat the command for a new one"
    if state in LOST and not (state == "died" and cancelled):
        message = f"{run} (started {job.get('started')}) did not finish: {LOST[state]}{log}"
        return NoProofError(Reason(state), message, hint=again)
    if cancelled:
        message = f"{run} was cancelled by {cancelled.get('who') or 'an unknown user'} at {cancelled.get('at')}"
        return NoProofError(Reason.CANCELLED, message, hint=again)
    if ended.get("signal"):
        message = f"{run}: the remote gatekeeper was killed by signal {ended['signal']}{log}"
        return NoProofError(Reason.KILLED, message, hint=again)
    code = ended.get("code")
    # A run that was refused before it wrote events ends with 3, too.
    if code in VERDICTS and (code != ExitCode.UNPROVEN or job.get("progress_bytes")):
        return None
    if code == ExitCode.INTERRUPTED:
        return NoProofError(Reason.INTERRUPTED, f"{run} was interrupted on the remote host", hint=again)
    kind = next((kind for kind in (InputError, HostLacksError) if kind.exit_code == code), GatekeeperError)
    hint = "its log above says what to do on the remote host"
    return kind(f"{run}: the remote gatekeeper ended with exit code {code}{log}", hint=hint)


def _verify(out: Path, ended: Mapping[str, Any] | None, verb: str) -> RemoteResult:
    """Check the checksums and judge again; refuse a verdict that differs in any byte from the remote host's."""
    directory = run_directory.RunDirectory(out)
    verify.check_sums(directory)
    run = verify.judge_again(directory, verify.read_manifest(directory))
    promoted = (out / POLICY).is_file()
    if promoted:
        verify.check_published(run)
    # A soak alone always ends with 0, and the exit code of a run without its supervisor is unknown.
    if verb == "certify" and ended is not None and run.verdict.exit_code != ended["code"]:
        raise NoProofError(
            Reason.DISAGREEMENT,
            f"the remote gatekeeper ended with exit code {ended['code']}, its records give {run.verdict.exit_code}",
            hint="update gatekeeper on both machines and certify again",
        )
    return RemoteResult(out, run.verdict, directory.read(VERDICT).decode(), promoted, run.exact)
