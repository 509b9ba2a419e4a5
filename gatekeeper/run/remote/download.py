"""Fetching a run directory: every file checked on arrival, asked for again where it is damaged, whole or not at all."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gatekeeper.core import run_directory
from gatekeeper.core.errors import ExitCode, GatekeeperError, HostLacksError, InputError, NoProofError, Reason
from gatekeeper.core.files import file_sha256
from gatekeeper.core.units import show_bytes
from gatekeeper.core.verdict import Verdict
from gatekeeper.report import verdict_json
from gatekeeper.run import load, verify
from gatekeeper.run.remote.reconnect import Say, Tether
from gatekeeper.run.remote.ssh import Link
from gatekeeper.run.remote.ssh_errors import LinkError
from gatekeeper.run.stages.promote import POLICY

ATTEMPTS = 4
"""How often one file is asked for: a line that damages the same file so often will not bring it."""


def fetch(tether: Tether, run_id: str, out: Path, say: Say) -> int:
    """Bring the run *run_id* to *out*; return how many files came. An earlier part of it there is replaced.

    It is gathered beside *out* and moved when every digest is what the far side says; what is gathered already is not
    asked for again.
    """
    # One folder deeper than a run lies, so that nobody takes what is gathered for one.
    part = out.with_name(f".{out.name}.part") / "run"

    def act(link: Link) -> int:
        listed = {str(one["name"]): one for one in link.stream("files", run_id=run_id)}
        kept = {name: one for name, one in listed.items() if _belongs(name)}
        for stale in [path for path in _files(part) if path.relative_to(part).as_posix() not in kept]:
            stale.unlink()
        for one in kept.values():
            _bring(link, one, part, say)
            tether.alive()
        return len(kept)

    try:
        part.mkdir(parents=True, exist_ok=True)
        count = tether.hold(act)
        if count:
            _move(part, out)
        else:  # it ended before it wrote anything
            shutil.rmtree(part.parent)
    except OSError as error:
        raise GatekeeperError(
            f"cannot write {error.filename or part}: {error.strerror or error}",
            hint="free some space; the run is kept there, and the same command brings it",
        ) from error
    return count


def _belongs(name: str) -> bool:
    """Leave out locks and half-written files; refuse a name that leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise NoProofError(
            Reason.DAMAGED, f"the far side lists a file {name!r}", hint="is that host what it should be?"
        )
    return path.name != "lock" and not path.name.startswith(".")


def _bring(link: Link, one: Mapping[str, Any], part: Path, say: Say) -> None:
    target = part / str(one["name"])
    if target.is_file() and target.stat().st_size == one["size"] and file_sha256(target) == one["sha256"]:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with target.open("wb") as into:
                link.get(str(one["path"]), into)
        except LinkError as error:
            if error.reason != "damaged":
                raise
        if target.is_file() and file_sha256(target) == one["sha256"]:
            return
        if attempt < ATTEMPTS:
            say("transfer", f"{one['name']} ({show_bytes(one['size'])}) came damaged and is asked for again")
    target.unlink(missing_ok=True)
    # Not a broken connection, which would be mended by another: one that changes what it carries.
    raise NoProofError(
        Reason.DAMAGED,
        f"{one['name']} came damaged {ATTEMPTS} times",
        hint="try another network; the run is kept there: gatekeeper remote fetch",
    )


def _move(part: Path, out: Path) -> None:
    """Put the run in its place; only an earlier part of the same run is replaced there."""
    frozen = [folder / "manifest.json" for folder in (part, out)]
    same = all(path.is_file() for path in frozen) and frozen[0].read_bytes() == frozen[1].read_bytes()
    if out.exists() and not same and (not out.is_dir() or any(out.iterdir())):
        raise InputError(
            f"{out} is not empty, and holds no part of this run",
            hint=f"choose another --out: gatekeeper remote fetch brings it there; what came lies in {part}",
        )
    if out.exists():
        old = part.with_name("old")
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    part.rename(out)
    shutil.rmtree(part.parent, ignore_errors=True)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


VERDICTS = (ExitCode.OK, ExitCode.OBJECTIVE_FAILED, ExitCode.UNPROVEN)
"""Exit codes a run that reached its verdict may end with."""
LOST = {
    "died": "gatekeeper there died without a word (killed, or out of memory)",
    "rebooted": "the machine was restarted during the run",
}


@dataclass(frozen=True, slots=True)
class Homecoming:
    """What came of a run."""

    path: Path
    verdict: Verdict | None
    """By this machine's judgement; None where too little came home to judge."""
    text: str = ""
    """The content of verdict.json."""
    promoted: bool = False
    exact: bool = False
    """The two verdicts agree byte for byte; False with other versions, where only the outcomes have to."""
    document: dict[str, Any] | None = None
    """What a sweep or a probe answers; they have no verdict."""
    trouble: GatekeeperError | None = None
    """Why the verdict does not stand: the run did not end by itself, was changed on its way, or the judges disagree."""

    @property
    def outcome(self) -> str:
        """Return it in one word."""
        if self.trouble is not None:
            return str(getattr(self.trouble, "reason", Reason.UNPROVEN))
        return self.verdict.outcome if self.verdict is not None else "finished"


def receive(out: Path, job: Mapping[str, Any], verb: str) -> Homecoming:
    """Judge what lies in *out* again; *job* is what the far side says of how the run of *verb* ended."""
    trouble = ending(job)
    if _ended_unwatched(out, job):
        trouble = None
    if trouble is None:
        try:
            if verb == "sweep":
                return Homecoming(out, None, document=load.swept(out))
            if verb == "probe":
                return Homecoming(out, None, document=_probed(out))
            return _verified(out, job.get("exit"), verb)
        except NoProofError as error:
            trouble = NoProofError(error.reason, f"{out}: {error.message}", hint=error.next(None, out))
    return _partial(out, trouble)


def ending(job: Mapping[str, Any]) -> GatekeeperError | None:
    """Return why a run has no verdict of its own; None where it came to its end."""
    state, ended = str(job.get("state")), job.get("exit") or {}
    said = str(job.get("log") or "").strip()
    log = f"; its last words:\n{_last(said)}" if said else ""
    run = str(job.get("run_id"))
    again = "what was measured came home; go on with it there by --resume, or run the same command anew"
    if state in LOST and not (state == "died" and job.get("cancelled")):
        since = f" (started {job.get('started')})"
        return NoProofError(Reason(state), f"run {run}{since} is not finished: {LOST[state]}{log}", hint=again)
    if job.get("cancelled"):
        by = job["cancelled"]
        told = f"run {run} was cancelled by {by.get('who') or 'somebody'} at {by.get('at')}"
        return NoProofError(Reason.CANCELLED, told, hint=again)
    if ended.get("signal"):
        return NoProofError(
            Reason.KILLED, f"run {run}: gatekeeper there was killed by signal {ended['signal']}{log}", hint=again
        )
    code = ended.get("code")
    if code in VERDICTS and not (code == ExitCode.UNPROVEN and not _began(job)):
        return None
    if code == ExitCode.INTERRUPTED:
        return NoProofError(Reason.INTERRUPTED, f"run {run} was interrupted there", hint=again)
    kinds: dict[Any, type[GatekeeperError]] = {ExitCode.BAD_INPUT: InputError, ExitCode.UNPROVEN: HostLacksError}
    told = f"gatekeeper there ended with {code}"
    return kinds.get(code, GatekeeperError)(f"run {run}: {told}{log}", hint="its words above say what to do there")


def _ended_unwatched(out: Path, job: Mapping[str, Any]) -> bool:
    """Tell whether a run whose supervisor was killed came to its end without it: it seals itself, last of all."""
    return str(job.get("state")) in LOST and not job.get("cancelled") and (out / run_directory.CHECKSUMS).is_file()


def _began(job: Mapping[str, Any]) -> bool:
    """Tell whether a run wrote events: one that was refused before its first token ends with 3, too."""
    return int(job.get("progress_bytes") or 0) > 0


def _last(said: str, lines: int = 12) -> str:
    return "\n".join(f"  {line}" for line in said.splitlines()[-lines:])


def _verified(out: Path, ended: Mapping[str, Any] | None, verb: str) -> Homecoming:
    """Check the seals, judge again, and refuse what is not, byte for byte, what the far side says."""
    directory = run_directory.RunDirectory(out)
    verify.check_sums(directory)
    run = verify.judge_again(directory, verify.read_manifest(directory))
    promoted = (out / POLICY).is_file()
    if promoted:
        verify.check_published(run)
    # A soak alone ends with 0, whatever it saw; and nobody was there to see how an unwatched run ended.
    if verb == "certify" and ended is not None and run.verdict.exit_code != ended["code"]:
        raise NoProofError(
            Reason.DISAGREEMENT,
            f"gatekeeper there ended with {ended['code']}, its records give {run.verdict.exit_code}",
            hint="update gatekeeper on both machines and certify again",
        )
    return Homecoming(out, run.verdict, directory.read("verdict.json").decode(), promoted, run.exact)


def _probed(out: Path) -> dict[str, Any]:
    return run_directory.parse_json(run_directory.RunDirectory(out).read("probe.json"), "probe.json")


def _partial(out: Path, trouble: GatekeeperError) -> Homecoming:
    try:
        verdict = load.judge(out)
    except (GatekeeperError, ValueError):
        return Homecoming(out, None, trouble=trouble)
    if verdict.exit_code == ExitCode.OK:  # good news of records that do not stand is none
        return Homecoming(out, None, trouble=trouble)
    return Homecoming(out, verdict, verdict_json.render(verdict), promoted=False, trouble=trouble)
