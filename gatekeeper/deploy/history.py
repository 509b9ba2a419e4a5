"""Stored runs over time, with the trend of the newest ones."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.analysis.metrics.host_series import host_numbers
from gatekeeper.core.errors import GatekeeperError, NoProofError
from gatekeeper.core.host_columns import HostColumns
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import record_files, run_directory
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.deploy.compare import compare_inputs, contrast, read_inputs
from gatekeeper.run import verify

TREND = ("throughput_ratio", "acceptance_rate")


@dataclass(frozen=True, slots=True)
class _StoredRun:
    """One stored run and its entry in the history."""

    manifest: Manifest
    slo: Slo
    shown: dict[str, Any]


def history(folder: Path) -> dict[str, Any]:
    """Return the runs of a folder, by SLO and oldest first, and the change since the last comparable run."""
    by_slo = defaultdict[str, list[_StoredRun]](list)
    unreadable = []
    for path in run_directory.runs_in(folder):
        try:
            run = _read(path)
        except (GatekeeperError, ValueError, LookupError, TypeError) as error:
            because = error.message if isinstance(error, GatekeeperError) else f"damaged: {error}"
            unreadable.append({"run": str(path), "because": because})
        else:
            by_slo[run.slo.name].append(run)
    slos = []
    for name, runs in sorted(by_slo.items()):
        runs.sort(key=lambda one: (one.manifest.frozen_at, Path(one.shown["run"]).name))
        slos.append({"slo": name, "runs": [one.shown for one in runs], "trend": _trend(runs)})
    return {"schema": 1, "slos": slos, "unreadable": unreadable}


def _read(path: Path) -> _StoredRun:
    """Read a run; its verdict is the stored one, shown only if the checksums match."""
    directory = RunDirectory(path)
    manifest, slo = read_inputs(path)
    trouble, verdict = None, {}
    try:
        verify.check_sums(directory)
        verdict = run_directory.parse_json(directory.read("verdict.json"), "verdict.json")
    except NoProofError as error:
        trouble = error.message
    shown = {
        "run": str(path),
        "at": manifest.frozen_at,
        "outcome": verdict.get("outcome", "unfinished"),
        "grade": verdict.get("grade"),
        "trouble": trouble,
        "footprint_peak": _footprint(path),
        "workloads": {
            one["name"]: {
                "outcome": one["outcome"],
                "setting": one["setting"],
                **{metric: one["measured"].get(metric) for metric in TREND},
            }
            for one in verdict.get("workloads", ())
        },
    }
    return _StoredRun(manifest, slo, shown)


def _footprint(path: Path) -> float | None:
    """Return the largest memory footprint of the system under test in any soak; None if not measured."""
    samples = record_files.read_records(path / "host.jsonl", record_files.SAMPLES).records
    during_soaks = HostColumns.of(samples)
    during_soaks = during_soaks.select(during_soaks.phase)
    return max(host_numbers(during_soaks, "subject_footprint"), default=None)


def _trend(runs: Sequence[_StoredRun]) -> dict[str, Any] | None:
    """Compare the newest intact run with the newest comparable one before it."""
    whole = [one for one in runs if one.shown["trouble"] is None]
    if len(whole) < 2:
        return None
    *earlier, newest = whole
    compared = [
        (one.shown, *compare_inputs(one.manifest, newest.manifest, one.slo, newest.slo)) for one in reversed(earlier)
    ]
    before, matter, causes = next((found for found in compared if not found[1]), compared[0])
    after = newest.shown
    if matter:
        because = f"no earlier run is comparable; the previous one differs in: {', '.join(matter)}"
        return {"a": None, "b": after["run"], "because": because}
    workloads = {
        name: [contrast(metric, before["workloads"].get(name, {}).get(metric), seen[metric]) for metric in TREND]
        for name, seen in after["workloads"].items()
    }
    peaks = [one["footprint_peak"] for one in (before, after)]
    footprint = contrast("footprint_peak", *({"center": one, "lo": one, "hi": one} if one else None for one in peaks))
    if footprint["change"] is not None:  # one reading per run has no interval: only the change is shown
        footprint["says"] = "one reading each"
    return {
        "a": before["run"],
        "b": after["run"],
        "differences": causes,
        "workloads": workloads,
        "footprint_peak": footprint,
    }
