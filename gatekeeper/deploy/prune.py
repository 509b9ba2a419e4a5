"""The rotation of a folder of runs: what may go is taken away whole, and everything else is left alone."""

import json
import shutil
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict.admission import CLOCKS_APART_S
from gatekeeper.core import inputs, run_directory
from gatekeeper.core import slo as promises
from gatekeeper.core.errors import ExitCode, GatekeeperError, InputError, NoProofError, Reason
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.slo import Slo
from gatekeeper.run import verify
from gatekeeper.run.stages.promote import POLICY


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What a rotation has to know of one run."""

    run: str
    family: str
    """The SLO's name and the kind of host: the newest of each are counted apart."""
    subject: str
    """What `admit` tells runs apart by: promises, inputs and artifacts."""
    at: datetime
    """When it was frozen."""
    until: datetime
    """Until when it may count for a deploy, at the latest."""
    sealed: bool
    passed: bool
    promoted: bool


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """What a rotation is asked to keep."""

    last: int
    """So many of the newest sealed runs of each family."""
    within: float = 0.0
    """Every run that is younger, in seconds."""
    promoted: bool = False
    """Every run that was promoted."""
    unfinished: float | None = None
    """An unfinished run may go once it is older, in seconds; None: never."""


def retain(runs: Iterable[StoredRun], rules: RetentionRules, now: datetime) -> dict[str, tuple[str, ...]]:
    """Return why each run is kept, by its name; one without a reason may go.

    Whatever the rules say, `admit` gives no better answer without the runs that go: the newest run of a subject stays
    as long as any of that subject may count, be it a bad one, and the newest that passed stays beside it.
    """
    known = sorted(runs, key=lambda one: (one.at, one.run))
    found: dict[str, list[str]] = {one.run: [] for one in known}
    for run in known:
        found[run.run] += _own_reasons(run, rules, now)
    for family in _by(known, lambda one: one.family).values():
        for run in [one for one in family if one.sealed][-rules.last :]:
            found[run.run].append(f"one of the newest {rules.last}")
    for subject in _by(known, lambda one: one.subject).values():
        if any(_may_count(one, now) for one in subject):
            found[subject[-1].run].append("the newest of its promises and artifacts: admit answers by it")
        passed = [one for one in subject if one.passed and _may_count(one, now)]
        if passed:
            found[passed[-1].run].append("the newest of its promises and artifacts that passed and may still count")
    return {run: tuple(reasons) for run, reasons in found.items()}


def _own_reasons(run: StoredRun, rules: RetentionRules, now: datetime) -> list[str]:
    """Return the reasons that have nothing to do with other runs."""
    age = (now - run.at).total_seconds()
    reasons = []
    if not run.sealed and (rules.unfinished is None or age < rules.unfinished):
        reasons.append("unfinished: it can be resumed")
    if age < rules.within:
        reasons.append("young")
    if rules.promoted and run.promoted:
        reasons.append("promoted")
    return reasons


def _may_count(run: StoredRun, now: datetime) -> bool:
    return now - run.until < timedelta(seconds=CLOCKS_APART_S)


def _by(runs: Sequence[StoredRun], key: Callable[[StoredRun], str]) -> Mapping[str, list[StoredRun]]:
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


GOING = ".gatekeeper-going-"
"""A run on its way out has this before its name: no command takes it for a run, and the next rotation ends what a
killed one had begun."""
LEDGER = ".remote.json"
"""How the name of a ledger's entry ends, which lies beside the run it is about."""
LOCK = "lock"
FOLDERS = ("inputs", "logs")
KINDS = frozenset({".json", ".jsonl", ".toml", ".xml", ".html"})
"""What an unfinished run, which has no list of its files yet, holds outside its folders."""


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    stored: StoredRun
    slo: str
    outcome: str

    def document(self) -> dict[str, Any]:
        return {"run": str(self.path), "slo": self.slo, "at": self.stored.at.isoformat(), "outcome": self.outcome}


@dataclass(slots=True)
class PruneResult:
    """What a rotation did, or would do."""

    folder: Path
    dry_run: bool
    kept: list[dict[str, Any]] = field(default_factory=list)
    removed: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    """What looks like a run and was not touched, and why."""
    failed: list[dict[str, Any]] = field(default_factory=list)
    """What should have gone and could not be removed."""

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
    found = run_directory.runs_in(folder)
    done = PruneResult(folder, dry_run)
    if not dry_run:
        _end_what_was_begun(folder, done)
    entries = []
    for path in found:
        try:
            entries.append(_entry(path))
        except NoProofError as error:
            done.left.append({"run": str(path), "because": error.message})
    reasons = retain([one.stored for one in entries], rules, now)
    for entry in sorted(entries, key=lambda one: (one.stored.at, one.path.name)):
        because = list(reasons[entry.stored.run])
        if because:
            done.kept.append({**entry.document(), "because": because})
        else:
            _take_away(entry, done)
    return done


def _entry(path: Path) -> _Entry:
    """Read what a run is of, as `admit` does; refuse one of which that can not be told."""
    if path.is_symlink():
        raise NoProofError(Reason.UNREADABLE, "is a link", hint="remove it yourself")
    directory = run_directory.RunDirectory(path)
    try:
        manifest = verify.read_manifest(directory)
        text = directory.read(inputs.SLO_NAME).decode()
        verify.check_inputs(directory, manifest, text)
        slo = promises.parse(text, inputs.SLO_NAME)
        at = _instant(manifest.frozen_at)
    except (GatekeeperError, ValueError) as error:
        if isinstance(error, NoProofError):
            raise
        raise verify.unreadable(error) from error
    verdict = _verdict(directory) if directory.is_finished() else {"outcome": "unfinished"}
    outcome = str(verdict.get("outcome", "damaged"))
    stored = StoredRun(
        run=path.name,
        family=json.dumps([slo.name, *(manifest.host.get(key) for key in ("chip", "machine", "memory_bytes"))]),
        subject=_subject(manifest, slo),
        at=at,
        until=_until(directory, at, slo),
        sealed=directory.is_finished(),
        passed=verdict.get("exit_code") == ExitCode.OK,
        promoted=outcome == "promoted",
    )
    return _Entry(path, stored, slo.name, outcome)


def _instant(written: str) -> datetime:
    found = datetime.fromisoformat(written)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _subject(manifest: Manifest, slo: Slo) -> str:
    """Return a digest of the promises, inputs and artifacts, whatever they are called."""
    parts = {
        "slo": slo.model_dump(mode="json"),
        "models": [model and model.digest for model in (manifest.target, *manifest.drafts)],
        "script": manifest.versions.get("script"),
        "inputs": {name: file.sha256 for name, file in (*manifest.canaries.items(), ("", manifest.profile))},
    }
    return sha256(json.dumps(parts, sort_keys=True))


def _verdict(directory: run_directory.RunDirectory) -> dict[str, Any]:
    # What it says is believed here, for it saves a run and can not admit one.
    try:
        return run_directory.parse_json(directory.read("verdict.json"), "verdict.json")
    except GatekeeperError:
        return {}


def _until(directory: run_directory.RunDirectory, at: datetime, slo: Slo) -> datetime:
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


def _take_away(entry: _Entry, done: PruneResult) -> None:
    """Remove one run, unless somebody writes it or it holds what no run writes."""
    path = entry.path
    foreign = _foreign(path)
    if foreign:
        done.left.append({"run": str(path), "because": f"holds what no run writes: {', '.join(foreign[:4])}"})
        return
    document = {**entry.document(), "bytes": _bytes_in(path)}
    if done.dry_run:
        done.removed.append(document)
        return
    try:
        with closing(run_directory.RunDirectory.open(path, resume=True)):
            # Renamed first: half a run under its own name would look like a damaged one, and admit refuses for that.
            going = path.rename(path.with_name(f"{GOING}{path.name}"))
            shutil.rmtree(going)
        _forget(path)
    except InputError as error:  # somebody writes it
        done.left.append({"run": str(path), "because": error.message})
    except (GatekeeperError, OSError) as error:
        done.failed.append({"run": str(path), "because": str(error)})
    else:
        done.removed.append(document)


def _forget(path: Path) -> None:
    """Remove the entries of a ledger that say only that this run came home from another machine."""
    for file in path.parent.glob(f"*{LEDGER}"):
        with suppress(OSError, ValueError, AttributeError):
            said = json.loads(file.read_bytes())
            if said.get("state") == "closed" and Path(str(said.get("out"))).name == path.name:
                file.unlink()


def _foreign(path: Path) -> list[str]:
    """Name the files that gatekeeper has not written."""
    names = [str(one.relative_to(path)) for one in path.rglob("*") if one.is_symlink() or not one.is_dir()]
    listed = path / run_directory.CHECKSUMS
    if listed.is_file():
        known = {line.partition("  ")[2] for line in listed.read_text(errors="replace").splitlines()}
        return sorted(name for name in names if name not in known | {run_directory.CHECKSUMS, LOCK})
    return sorted(name for name in names if name != LOCK and not _recorded(Path(name)))


def _recorded(name: Path) -> bool:
    # A file that was being written whole when the run was killed has a dot before its name and a number behind it.
    half_written = name.name.startswith(".") and name.suffix[1:].isdigit()
    at_home = name.parts[0] in FOLDERS or len(name.parts) == 1
    return at_home and (name.parts[0] == "logs" or half_written or name.suffix in KINDS)


def _bytes_in(path: Path) -> int:
    return sum(one.lstat().st_size for one in path.rglob("*") if not one.is_dir())


def _end_what_was_begun(folder: Path, done: PruneResult) -> None:
    for path in sorted(folder.glob(f"{GOING}*")):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
        except OSError as error:
            done.failed.append({"run": str(path), "because": str(error)})
