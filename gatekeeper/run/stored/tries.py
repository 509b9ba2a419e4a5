"""Tries: finished runs of the same SLO, inputs and artifacts, and how many of them did not pass.

Runs are counted in a folder, in the record of this user on this host, and in what a run's certificate says of those
before it. A run that is in several of them counts once.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from gatekeeper.analysis.verdict import admission
from gatekeeper.analysis.verdict.admission import Present
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import run_directory, tries_file
from gatekeeper.core.system.run_directory import PARTIAL_SUFFIX, VERDICT, RunDirectory
from gatekeeper.core.system.tries_file import Try
from gatekeeper.core.text import show_count
from gatekeeper.run.stored import verify


@dataclass(frozen=True, slots=True)
class TryCount:
    """How many finished runs there are of one thing, and how many of them did not pass."""

    finished: int
    not_passed: int
    gap: str | None = None
    """Why there may be more of them; None: all are counted that this host knows."""

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        counts = {"finished": self.finished, "not_passed": self.not_passed, "at_least": self.gap is not None}
        return counts if self.gap is None else {**counts, "because": self.gap}

    def with_earlier(self, earlier: Mapping[str, Any] | None, *, passed: bool) -> Self:
        """Return the count after the *earlier* tries that a certificate names, and its own run, which *passed* or not.

        Which runs those were is not known, so they are not added to the others: the larger number counts.
        """
        if earlier is None:
            return self
        finished, not_passed = earlier["finished"] + 1, earlier["not_passed"] + (not passed)
        gap = self.gap
        if earlier["at_least"] and gap is None:
            gap = "the run's certificate could not count all tries before it"
        if finished > self.finished and gap is None:
            gap = "the run's certificate counts more"
        return replace(
            self, finished=max(self.finished, finished), not_passed=max(self.not_passed, not_passed), gap=gap
        )


def add_run(directory: RunDirectory, manifest: Manifest, slo: Slo, exit_code: ExitCode) -> str | None:
    """Add a finished run to the record of this host; return the warning where the record is not whole."""
    present = admission.certified_with(manifest)
    subject, artifacts = admission.subject_digest(slo, present), admission.artifacts_digest(present)
    trouble = tries_file.add(Try(subject, artifacts, _identity(directory), int(exit_code)))
    if trouble is None:
        return None
    return f"the record of tries is not complete: {trouble}; admit will say that it counts at least so many tries"


def earlier_tries(directory: RunDirectory, manifest: Manifest, slo: Slo) -> dict[str, Any]:
    """Return how many other runs of the same ended on this host before this one, for the run's events."""
    record, identity, present = tries_file.read(), _identity(directory), admission.certified_with(manifest)
    subject = admission.subject_digest(slo, present)
    other_codes = [code for run, code in record.exit_codes(subject).items() if run != identity]
    # A host without a record may be one that lost it.
    at_least = record.gap is not None or bool(record.failed_otherwise(subject, admission.artifacts_digest(present)))
    return {"finished": len(other_codes), "not_passed": _count_failures(other_codes), "at_least": at_least}


def count(paths: Sequence[Path], unreadable: int, slo: Slo, now: Present, run: RunDirectory) -> TryCount:
    """Count the tries of *slo* and what is here *now*, from the runs at *paths* and the record of this host.

    *unreadable* are folders that may be runs as well. Where the record does not know *run*, which is to be admitted, it
    is not the record of where that was certified, so there may be more.
    """
    record, subject, artifacts = tries_file.read(), admission.subject_digest(slo, now), admission.artifacts_digest(now)
    failed_otherwise = set(record.failed_otherwise(subject, artifacts))
    codes: dict[str, object] = dict(record.exit_codes(subject))
    for path in paths:
        directory = RunDirectory(path)
        try:
            manifest, frozen = verify.read_frozen(directory)
            present = admission.certified_with(manifest)
            if not directory.is_finished() or artifacts != admission.artifacts_digest(present):
                continue
            code = _stored_exit_code(directory)
            if subject == admission.subject_digest(frozen, present):
                codes[_identity(directory)] = code
            elif code != ExitCode.OK:
                failed_otherwise.add(_identity(directory))
        except (GatekeeperError, OSError):
            unreadable += 1
    gap = None
    if unreadable:
        gap = "a run beside it cannot be read" if unreadable == 1 else f"{unreadable} runs beside it cannot be read"
    elif record.gap is not None:
        gap = f"the record of tries: {record.gap}"
    elif failed_otherwise:
        runs = show_count(len(failed_otherwise), "run")
        gap = f"{runs} of these artifacts by another SLO, or with other inputs, did not pass"
    else:
        with suppress(GatekeeperError):
            if _identity(run) not in record.tries:
                gap = "the record of tries on this host does not have this run"
    return TryCount(len(codes), _count_failures(codes.values()), gap)


def runs_beside(run: Path) -> tuple[list[Path], int]:
    """Return *run* with the other runs of its folder, and how many folders there cannot be read."""
    runs, unreadable = [run], 0
    real_path = run.resolve()
    try:
        paths = sorted(real_path.parent.iterdir())
    except OSError:
        return runs, 1
    for path in paths:
        try:
            hidden = path.name.startswith(".") or path.suffix == PARTIAL_SUFFIX
            if not hidden and path.resolve() != real_path and run_directory.is_run(path):
                runs.append(path)
        except (OSError, RuntimeError):  # RuntimeError: a link that leads to itself
            unreadable += 1
    return runs, unreadable


def _identity(directory: RunDirectory) -> str:
    """Return what names a run wherever it lies: the digest of its manifest."""
    return sha256(directory.read(run_directory.MANIFEST))


def _stored_exit_code(directory: RunDirectory) -> object:
    """Return how a run ended, as it says itself; None where it does not."""
    try:
        return directory.document(VERDICT).get("exit_code")
    except GatekeeperError:
        return None


def _count_failures(codes: Any) -> int:
    return sum(code != ExitCode.OK for code in codes)
