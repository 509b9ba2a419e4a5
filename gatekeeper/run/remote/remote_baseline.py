"""The certified runs that a remote run is compared with: local ones are uploaded, one on the remote host is named."""

import posixpath
from collections.abc import Sequence
from pathlib import Path

from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import sha256
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.run_directory import is_run
from gatekeeper.run.remote.run_registry import CLOSED, RunRegistry
from gatekeeper.run.stored.certified_baseline import NONE, certified_runs, needs_baseline, verify_certified
from gatekeeper.run.stored.verify import VerifiedRun

PLACE = "baseline"
"""Folder in the job's folder that holds the uploaded runs."""


def remote_baseline(
    slo: Slo, baseline: str | None, host: str, runs: Path, *, before: str = ""
) -> tuple[tuple[str, ...], dict[str, tuple[Path, str]]]:
    """Return the options of the remote `certify` that name the certified runs, and what is uploaded, with its digests.

    *baseline*: a local run; a local folder, of which the certified runs of this SLO on *host* count; the id of a run on
    the host; or `none`. Without it that folder is *runs*. *before*: only runs that started before it count.
    """
    if not needs_baseline(slo, baseline):
        return (), {}
    if baseline == NONE:
        return ("--baseline", NONE), {}
    folder = Path(baseline or runs)
    if baseline is not None and is_run(folder):
        return _uploaded([verify_certified(folder)])
    if baseline is not None and not folder.is_dir():
        if Path(baseline).name != baseline or baseline.startswith("."):
            hint = "name a local run, a folder of runs, or the id of a run on the host (gatekeeper remote list)"
            raise InputError(f"--baseline {baseline}: there is no such run", hint=hint)
        return ("--baseline", f"../{baseline}/run"), {}
    paths = _downloaded_runs(slo, host, folder, before)
    return _uploaded(certified_runs(slo, paths, f"on {host} in {folder}"))


def _downloaded_runs(slo: Slo, host: str, runs: Path, before: str) -> Sequence[Path]:
    """Return the downloaded runs of an SLO on a host, the newest first."""
    entries = [entry for entry in RunRegistry(runs).entries() if (entry.host, entry.slo_name) == (host, slo.name)]
    ended = [entry for entry in entries if entry.state == CLOSED and (not before or entry.started < before)]
    return [Path(entry.out) for entry in reversed(ended)]


def _uploaded(runs: Sequence[VerifiedRun]) -> tuple[tuple[str, ...], dict[str, tuple[Path, str]]]:
    """Name a single run itself, as a demo counts only so; several by their folder."""
    files = dict[str, Path]()
    for run in (run.directory.path for run in runs):
        paths = sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink())
        place = posixpath.join(PLACE, run.resolve().name)
        files |= {posixpath.join(place, path.relative_to(run).as_posix()): path for path in paths}
    place = PLACE if len(runs) > 1 else posixpath.join(PLACE, runs[0].directory.path.resolve().name)
    return ("--baseline", place), {name: (path, sha256(path.read_bytes())) for name, path in files.items()}
