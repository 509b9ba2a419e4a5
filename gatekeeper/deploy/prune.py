"""Pruning of a folder of runs: a run that no rule keeps is removed whole; everything else stays."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict import admission
from gatekeeper.analysis.verdict.admission import CLOCKS_APART_S
from gatekeeper.core import parse
from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.reasons import Reason
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import record_files, run_directory
from gatekeeper.core.system.file_lock import FileLock
from gatekeeper.core.system.run_directory import EVENTS_FILE, POLICY, VERDICT, RunDirectory
from gatekeeper.run.remote import run_registry
from gatekeeper.run.stored import verify

REMOVING = ".gatekeeper-going-"
"""Prefix of a run that is being removed: no command reads it as a run, and the next prune finishes the removal."""
KINDS = frozenset({".json", ".jsonl", ".toml", ".xml", ".html"})
"""Suffixes of an unfinished run's files outside its folders; it has no SHA256SUMS that lists them yet."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What decides whether one run is kept."""

    path: Path
    slo: str
    outcome: str
    at: datetime
    """When it was frozen."""
    until: datetime
    """When it expires for `admit`, at the latest."""
    family: str
    """The SLO's name and the kind of host: the newest are counted within a family."""
    subject: str
    """Digest of what `admit` compares: objectives, inputs and artifacts."""
    finished: bool
    passed: bool

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return self.path.name

    def document(self) -> dict[str, Any]:
        """Return its entry in the result."""
        return {"run": str(self.path), "slo": self.slo, "at": self.at.isoformat(), "outcome": self.outcome}


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """Which runs to keep."""

    last: int
    """How many of the newest finished runs of each family to keep."""
    within: float = 0.0
    """Keep every run younger than this, in seconds."""
    promoted: bool = False
    unfinished: float | None = None
    """Age in seconds after which an unfinished run may be removed; None: never."""


def retain(runs: Iterable[StoredRun], rules: RetentionRules, now: datetime) -> dict[str, list[str]]:
    """Return the reasons to keep each run, by its name, oldest first; a run without a reason may be removed.

    `admit` never admits more after a removal: the newest run of a subject stays until all runs of that subject have
    expired, even if it failed, and so does the newest that passed.
    """
    families, subjects = defaultdict[str, list[StoredRun]](list), defaultdict[str, list[StoredRun]](list)
    reasons: dict[str, list[str]] = {}
    for run in sorted(runs, key=lambda stored: (stored.at, stored.name)):
        reasons[run.name] = _own_reasons(run, rules, now)
        subjects[run.subject].append(run)
        if run.finished:
            families[run.family].append(run)
    for family in families.values():
        for run in family[-rules.last :]:
            reasons[run.name].append(f"one of the newest {rules.last} of its SLO and host")
    for subject in subjects.values():
        valid = [run for run in subject if now - run.until < timedelta(seconds=CLOCKS_APART_S)]
        if valid:
            reasons[subject[-1].name].append("the newest run of its objectives and artifacts: admit decides by it")
        if passed := [run for run in valid if run.passed]:
            reasons[passed[-1].name].append("the newest passing run of its objectives and artifacts, not yet expired")
    return reasons


def _own_reasons(run: StoredRun, rules: RetentionRules, now: datetime) -> list[str]:
    """Return the reasons that do not depend on other runs."""
    age = (now - run.at).total_seconds()
    reasons = []
    if not run.finished and (rules.unfinished is None or age < rules.unfinished):
        reasons.append("unfinished: it can be resumed")
    if age < rules.within:
        reasons.append("younger than --within")
    if rules.promoted and run.outcome == "promoted":
        reasons.append("promoted")
    return reasons


@dataclass(slots=True)
class PruneResult:
    """What was removed, or would be."""

    folder: Path
    dry_run: bool
    kept: list[dict[str, Any]] = field(default_factory=list)
    removed: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    """Runs that were not touched, and why."""
    failed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        """Return 4 if a run could not be removed."""
        return ExitCode.INTERNAL_ERROR if self.failed else ExitCode.OK

    def document(self) -> dict[str, Any]:
        """Return it as one JSON document."""
        return {
            "schema": 1,
            "runs": str(self.folder),
            "dry_run": self.dry_run,
            "removed": self.removed,
            "bytes": sum(run["bytes"] for run in self.removed),
            "kept": self.kept,
            "left": self.left,
            "failed": self.failed,
        }


def prune(folder: Path, rules: RetentionRules, *, dry_run: bool, now: datetime) -> PruneResult:
    """Remove the runs of *folder* that no rule keeps, unless it is a *dry_run*; return what was done."""
    if run_directory.is_run(folder):
        raise InputError(f"{folder} is a run", hint=f"name the folder it is in: {folder.parent}")
    paths = run_directory.runs_in(folder)
    result = PruneResult(folder, dry_run)
    if not dry_run:
        _finish_removals(folder, result)
    runs = {}
    for path in paths:
        try:
            runs[path.name] = _read(path)
        except NoProofError as error:
            result.left.append({"run": str(path), "because": error.message})
    for name, because in retain(runs.values(), rules, now).items():
        if because:
            result.kept.append({**runs[name].document(), "because": because})
        else:
            _remove(runs[name], result)
    return result


def _read(path: Path) -> StoredRun:
    """Read a run's SLO and artifacts as `admit` does; refuse a run whose SLO or artifacts cannot be determined."""
    if path.is_symlink():
        raise NoProofError(Reason.UNREADABLE, "is a symbolic link", hint="remove it yourself")
    directory = RunDirectory(path)
    try:
        manifest, slo = verify.read_frozen(directory)
        at = parse.moment(manifest.frozen_at)
    except NoProofError:
        raise
    except (GatekeeperError, ValueError) as error:
        raise verify.unreadable(error) from error
    verdict = _verdict(directory) if directory.is_finished() else {"outcome": "unfinished"}
    return StoredRun(
        path=path, slo=slo.name, outcome=str(verdict.get("outcome", "damaged")), at=at,
        until=_expiry(directory, at, slo),
        family=json.dumps([slo.name, *(manifest.host.get(key) for key in ("chip", "machine", "memory_bytes"))]),
        subject=admission.subject_digest(slo, admission.certified_with(manifest)), finished=directory.is_finished(),
        passed=verdict.get("exit_code") == ExitCode.OK,
    )  # fmt: skip


def _verdict(directory: RunDirectory) -> dict[str, Any]:
    # The stored verdict is enough: it may keep a run, but it cannot admit one.
    try:
        return directory.document(VERDICT)
    except GatekeeperError:
        return {}


def _expiry(directory: RunDirectory, at: datetime, slo: Slo) -> datetime:
    """Return when the run expires, counted from the latest of its times, so that none is removed too early."""
    times = [at]
    with suppress(GatekeeperError, ValueError, LookupError, TypeError):
        times.append(parse.moment(str(parse.toml_table(directory.read(POLICY).decode())["issued"])))
    events = record_files.read_records(directory.path / EVENTS_FILE, record_files.EVENTS).records
    with suppress(ValueError):
        times += [parse.moment(event.at) for event in events[-1:]]
    try:
        return max(times) + timedelta(seconds=slo.promote.valid_for)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _remove(run: StoredRun, result: PruneResult) -> None:
    """Remove one run, unless another process uses it or it holds files not written by gatekeeper."""
    path = run.path
    if _is_watched(path):
        result.left.append({"run": str(path), "because": "a watch or a proxy writes its state there"})
        return
    if foreign := _foreign_files(path):
        because = f"holds files not written by gatekeeper: {', '.join(foreign[:4])}"
        result.left.append({"run": str(path), "because": because})
        return
    size = sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
    try:
        if not result.dry_run:
            with closing(RunDirectory.open(path, resume=True)):
                # Renamed first: a half removed run would look damaged, and admit refuses a folder that holds one.
                removing = path.rename(path.with_name(f"{REMOVING}{path.name}"))
                shutil.rmtree(removing)
            _remove_remote_records(path)
    except InputError as error:  # another process is writing it
        result.left.append({"run": str(path), "because": error.message})
    except (GatekeeperError, OSError) as error:
        result.failed.append({"run": str(path), "because": str(error)})
    else:
        result.removed.append({**run.document(), "bytes": size})


def _remove_remote_records(path: Path) -> None:
    """Remove the registry's records of this run's finished download from a remote host."""
    for file in path.parent.glob(f"*{run_registry.SUFFIX}"):
        with suppress(OSError, ValueError, AttributeError):
            record = parse.json_value(file.read_bytes())
            if record.get("state") == run_registry.CLOSED and Path(str(record.get("out"))).name == path.name:
                file.unlink()


def _is_watched(path: Path) -> bool:
    locks = (path / name for name in run_directory.WATCH_LOCKS)
    return any(FileLock(lock).holder() is not None for lock in locks if lock.is_file())


def _foreign_files(path: Path) -> list[str]:
    """Return the files that gatekeeper did not write."""
    names = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_symlink() or not file.is_dir())
    sums = path / run_directory.CHECKSUMS
    if not sums.is_file():
        return [name for name in names if name not in _UNLISTED and not _is_recorded(Path(name))]
    listed = {line.partition("  ")[2] for line in sums.read_text(errors="replace").splitlines()}
    return [name for name in names if name not in listed | _UNLISTED]


_UNLISTED = frozenset((run_directory.CHECKSUMS, run_directory.LOCK, run_directory.FINDER_FILE)).union(
    run_directory.WATCH_FILES, run_directory.WATCH_LOCKS
)
"""Files that no SHA256SUMS lists and that hold nothing of anybody else."""


def _is_recorded(name: Path) -> bool:
    # A file that was being written when the run was killed starts with a dot and ends with a number.
    half_written = name.name.startswith(".") and name.suffix[1:].isdigit()
    expected_folder = name.parts[0] in run_directory.FOLDERS or len(name.parts) == 1
    suffix = Path(name.name.partition(record_files.DAMAGED)[0]).suffix  # a damaged record file is kept beside its own
    return expected_folder and (name.parts[0] == run_directory.LOGS or half_written or suffix in KINDS)


def _finish_removals(folder: Path, result: PruneResult) -> None:
    for path in sorted(folder.glob(f"{REMOVING}*")):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
        except OSError as error:
            result.failed.append({"run": str(path), "because": str(error)})
