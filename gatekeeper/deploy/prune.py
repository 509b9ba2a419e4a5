"""Prune a folder of runs: the runs that no rule keeps are removed whole, everything else is left alone."""

import json
import shutil
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict.admission import CLOCKS_APART_S
from gatekeeper.core.errors import ExitCode, GatekeeperError, InputError, NoProofError
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.reasons import Reason
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import run_directory
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.run import verify
from gatekeeper.run.stages.promote import POLICY

REMOVING = ".gatekeeper-going-"
"""Prefix of a run that is being removed: no command takes it for a run, and the next prune finishes what a killed one
began."""
REMOTE_RECORD = ".remote.json"
"""How the name of a remote run's record ends, which lies beside the run that it is about."""
LOCK = "lock"
FOLDERS = ("inputs", "logs")
KINDS = frozenset({".json", ".jsonl", ".toml", ".xml", ".html"})
"""What an unfinished run, which has no list of its files yet, holds outside its folders."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What decides whether one run is kept."""

    path: Path
    slo: str
    outcome: str
    at: datetime
    """When it was frozen."""
    until: datetime
    """Until when it may count for a deploy, at the latest."""
    family: str
    """The SLO's name and the kind of host: the newest of each are counted apart."""
    subject: str
    """What `admit` tells runs apart by: objectives, inputs and artifacts."""
    finished: bool
    passed: bool

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return self.path.name

    def document(self) -> dict[str, Any]:
        """Return what the answer says of it."""
        return {"run": str(self.path), "slo": self.slo, "at": self.at.isoformat(), "outcome": self.outcome}


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """Which runs to keep."""

    last: int
    """So many of the newest finished runs of each family."""
    within: float = 0.0
    """Every run that is younger, in seconds."""
    promoted: bool = False
    """Every run that was promoted."""
    unfinished: float | None = None
    """An unfinished run may go once it is older, in seconds; None: never."""


def retain(runs: Iterable[StoredRun], rules: RetentionRules, now: datetime) -> dict[str, list[str]]:
    """Return why each run is kept, by its name, oldest first; a run without a reason may go.

    Whatever the rules are, `admit` gives no better answer without the runs that go: the newest run of a subject stays
    as long as any of that subject may count, even if it failed, and the newest that passed stays beside it.
    """
    families, subjects = defaultdict[str, list[StoredRun]](list), defaultdict[str, list[StoredRun]](list)
    found: dict[str, list[str]] = {}
    for run in sorted(runs, key=lambda one: (one.at, one.name)):
        found[run.name] = _own_reasons(run, rules, now)
        subjects[run.subject].append(run)
        if run.finished:
            families[run.family].append(run)
    for family in families.values():
        for run in family[-rules.last :]:
            found[run.name].append(f"one of the newest {rules.last}")
    for subject in subjects.values():
        counting = [one for one in subject if now - one.until < timedelta(seconds=CLOCKS_APART_S)]
        if counting:
            found[subject[-1].name].append("the newest of its promises and artifacts: admit answers by it")
        if passed := [one for one in counting if one.passed]:
            found[passed[-1].name].append("the newest of its promises and artifacts that passed and may still count")
    return found


def _own_reasons(run: StoredRun, rules: RetentionRules, now: datetime) -> list[str]:
    """Return the reasons that do not depend on other runs."""
    age = (now - run.at).total_seconds()
    reasons = []
    if not run.finished and (rules.unfinished is None or age < rules.unfinished):
        reasons.append("unfinished: it can be resumed")
    if age < rules.within:
        reasons.append("young")
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
    """What looks like a run and was not touched, and why."""
    failed: list[dict[str, Any]] = field(default_factory=list)
    """What could not be removed."""

    @property
    def exit_code(self) -> ExitCode:
        """Return 4 where something could not be removed."""
        return ExitCode.INTERNAL_ERROR if self.failed else ExitCode.OK

    def document(self) -> dict[str, Any]:
        """Return it as one JSON document."""
        return {
            "schema": 1,
            "runs": str(self.folder),
            "dry_run": self.dry_run,
            "removed": self.removed,
            "bytes": sum(one["bytes"] for one in self.removed),
            "kept": self.kept,
            "left": self.left,
            "failed": self.failed,
        }


def prune(folder: Path, rules: RetentionRules, *, dry_run: bool, now: datetime) -> PruneResult:
    """Remove the runs of *folder* that no rule keeps, unless it is a *dry_run*; return what was done."""
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
    """Read which SLO and artifacts a run is of, as `admit` does; refuse it where that cannot be determined."""
    if path.is_symlink():
        raise NoProofError(Reason.UNREADABLE, "is a link", hint="remove it yourself")
    directory = RunDirectory(path)
    try:
        manifest, slo = verify.read_frozen(directory)
        at = _instant(manifest.frozen_at)
    except NoProofError:
        raise
    except (GatekeeperError, ValueError) as error:
        raise verify.unreadable(error) from error
    verdict = _verdict(directory) if directory.is_finished() else {"outcome": "unfinished"}
    return StoredRun(
        path=path,
        slo=slo.name,
        outcome=str(verdict.get("outcome", "damaged")),
        at=at,
        until=_until(directory, at, slo),
        family=json.dumps([slo.name, *(manifest.host.get(key) for key in ("chip", "machine", "memory_bytes"))]),
        subject=_subject(manifest, slo),
        finished=directory.is_finished(),
        passed=verdict.get("exit_code") == ExitCode.OK,
    )


def _instant(written: str) -> datetime:
    found = datetime.fromisoformat(written)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _subject(manifest: Manifest, slo: Slo) -> str:
    """Return a digest of the objectives, inputs and artifacts, whatever their names."""
    parts = {
        "slo": slo.model_dump(mode="json"),
        "models": [model and model.digest for model in (manifest.target, *manifest.drafts)],
        "script": manifest.versions.get("script"),
        "inputs": {name: file.sha256 for name, file in (*manifest.canaries.items(), ("", manifest.profile))},
    }
    return sha256(json.dumps(parts, sort_keys=True))


def _verdict(directory: RunDirectory) -> dict[str, Any]:
    # It is not judged again: what it says may keep a run, and cannot admit one.
    try:
        return run_directory.parse_json(directory.read("verdict.json"), "verdict.json")
    except GatekeeperError:
        return {}


def _until(directory: RunDirectory, at: datetime, slo: Slo) -> datetime:
    """Return the last moment at which the run may count: the latest of its times, so that none goes too early."""
    times = [at]
    with suppress(GatekeeperError, ValueError, LookupError, TypeError):
        times.append(_instant(str(tomllib.loads(directory.read(POLICY).decode())["issued"])))
    events = run_directory.read_records(directory.path / "events.jsonl", run_directory.EVENTS).records
    with suppress(ValueError):
        times += [_instant(event.at) for event in events[-1:]]
    try:
        return max(times) + timedelta(seconds=slo.promote.valid_for)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _remove(run: StoredRun, result: PruneResult) -> None:
    """Remove one run, unless another process writes it or it holds files that no run writes."""
    path = run.path
    if foreign := _foreign_files(path):
        because = f"holds what no run writes: {', '.join(foreign[:4])}"
        result.left.append({"run": str(path), "because": because})
        return
    size = sum(one.lstat().st_size for one in path.rglob("*") if not one.is_dir())
    try:
        if not result.dry_run:
            with closing(RunDirectory.open(path, resume=True)):
                # Renamed first: half a run under its own name would look damaged, and admit refuses for that.
                removing = path.rename(path.with_name(f"{REMOVING}{path.name}"))
                shutil.rmtree(removing)
            _remove_remote_records(path)
    except InputError as error:  # another process writes it
        result.left.append({"run": str(path), "because": error.message})
    except (GatekeeperError, OSError) as error:
        result.failed.append({"run": str(path), "because": str(error)})
    else:
        result.removed.append({**run.document(), "bytes": size})


def _remove_remote_records(path: Path) -> None:
    """Remove the records that say only that this run was downloaded from a remote host."""
    for file in path.parent.glob(f"*{REMOTE_RECORD}"):
        with suppress(OSError, ValueError, AttributeError):
            record = json.loads(file.read_bytes())
            if record.get("state") == "closed" and Path(str(record.get("out"))).name == path.name:
                file.unlink()


def _foreign_files(path: Path) -> list[str]:
    """Return the files that gatekeeper has not written."""
    names = sorted(str(one.relative_to(path)) for one in path.rglob("*") if one.is_symlink() or not one.is_dir())
    sums = path / run_directory.CHECKSUMS
    if not sums.is_file():
        return [name for name in names if name != LOCK and not _is_recorded(Path(name))]
    listed = {line.partition("  ")[2] for line in sums.read_text(errors="replace").splitlines()}
    return [name for name in names if name not in listed | {run_directory.CHECKSUMS, LOCK}]


def _is_recorded(name: Path) -> bool:
    # A file that was being written when the run was killed has a dot before its name and a number behind it.
    half_written = name.name.startswith(".") and name.suffix[1:].isdigit()
    expected_folder = name.parts[0] in FOLDERS or len(name.parts) == 1
    return expected_folder and (name.parts[0] == "logs" or half_written or name.suffix in KINDS)


def _finish_removals(folder: Path, result: PruneResult) -> None:
    for path in sorted(folder.glob(f"{REMOVING}*")):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
        except OSError as error:
            result.failed.append({"run": str(path), "because": str(error)})
