"""Stored runs over time, with the trend of the newest ones."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.analysis.metrics.host.host_series import host_numbers
from gatekeeper.analysis.verdict.run_differences import compare_inputs
from gatekeeper.core.columns.host_columns import HostColumns
from gatekeeper.core.errors import GatekeeperError, NoProofError
from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.metrics import DECODE_RATIO
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import record_files, run_directory
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import sold_gigabytes
from gatekeeper.deploy.compare import contrast, read_inputs
from gatekeeper.run import verify

LONGEST = 16
"""Characters of a version, which may be a checksum."""
TREND = (DECODE_RATIO, "acceptance_rate")


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
        _note_changes(runs)
        slos.append({"slo": name, "runs": [one.shown for one in runs], "trend": _trend(runs)})
    return {"schema": 1, "slos": slos, "unreadable": unreadable}


def _read(path: Path) -> _StoredRun:
    """Read a run; its verdict is the stored one, shown only if the checksums match."""
    directory = RunDirectory(path)
    manifest, slo = read_inputs(path)
    trouble, verdict = None, {}
    try:
        verify.check_sums(directory)
        verdict = directory.document("verdict.json")
    except NoProofError as error:
        trouble = error.message
    shown = {
        "run": str(path),
        "at": manifest.frozen_at,
        "outcome": verdict.get("outcome", "unfinished"),
        "grade": verdict.get("grade"),
        "trouble": trouble,
        "footprint_peak": _footprint(path),
        "host": _host(manifest),
        "changed": [],
        "failed": list(_failed(verdict)),
        "workloads": {
            one["name"]: {
                "outcome": one["outcome"],
                "setting": one["setting"],
                **{metric: one["measured"].get(metric) for metric in TREND},
                **_speed(one),
            }
            for one in verdict.get("workloads", ())
        },
    }
    return _StoredRun(manifest, slo, shown)


def _host(manifest: Manifest) -> str:
    """Return a host's name for people: its chip and its memory."""
    chip, memory = (manifest.host.get(name) for name in ("chip", "memory_bytes"))
    sold = f"{sold_gigabytes(memory):.0f} GB" if isinstance(memory, int | float) else None
    return ", ".join(str(part) for part in (chip, sold) if part) or "unknown host"


def _checks(workload: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the checks of the final setting, then those of the settings that were given up, the fastest one first."""
    yield from workload["checks"]
    for step in sorted(workload.get("steps", ()), key=_gain, reverse=True):
        yield from step["checks"]


def _gain(step: Mapping[str, Any]) -> float:
    """Return the speed-up of a setting that was given up, as the report does; 0 where it was not measured."""
    own = (one for one in step["checks"] if "against" not in one)
    seen = [one for one in own if one["metric"] == DECODE_RATIO] or [step["measured"].get(DECODE_RATIO)]
    return float((seen[0] or {}).get("center") or 0.0)


def _speed(workload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the speed against plain decoding of the fastest setting that was soaked with a draft, and its bound."""
    for one in _checks(workload):
        if one["metric"] == DECODE_RATIO and one["bound"] == "at_least" and "against" not in one:
            known = None not in {one["center"], one["lo"], one["hi"]}
            return {
                "speed": {end: one[end] for end in ("center", "lo", "hi")} if known else None,
                "bound": one["threshold"],
            }
    measured = [
        workload["measured"],
        *(step["measured"] for step in sorted(workload.get("steps", ()), key=_gain, reverse=True)),
    ]
    return {"speed": next((seen for one in measured if (seen := one.get(DECODE_RATIO))), None), "bound": None}


def _failed(verdict: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the checks that failed or are open; those of the last setting that was given up only where they failed."""
    for one in verdict.get("workloads", ()):
        yield from _standing(one["name"], one["checks"])
        for step in one.get("steps", ())[-1:]:
            about = f"{one['name']}, {describe_setting(step['setting'])}, given up"
            yield from _standing(about, (check for check in step["checks"] if check["outcome"] == "fail"))
    yield from _standing("host", verdict.get("host_checks", ()))


def _standing(about: str, checks: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for one in checks:
        if one["outcome"] != "pass":
            yield {"about": about, "metric": one["metric"], "because": one["because"]}


def _note_changes(runs: Sequence[_StoredRun]) -> None:
    """Note in each run what differs from the one before it on the same host, versions with both their values."""
    before: dict[str, Manifest] = {}
    for run in runs:
        if (last := before.get(run.shown["host"])) is not None:
            run.shown["changed"] = [_change(name, last, run.manifest) for name in differences(last, run.manifest)]
        before[run.shown["host"]] = run.manifest


def _change(name: str, before: Manifest, after: Manifest) -> str:
    part, _, key = name.partition(".")
    if part not in {"versions", "host"}:
        return name
    old, new = (str(getattr(one, part).get(key))[:LONGEST] for one in (before, after))
    return f"{key if part == 'versions' else name}: {old} → {new}"


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
    compared = [(one, *compare_inputs(one.manifest, newest.manifest, one.slo, newest.slo)) for one in reversed(earlier)]
    previous, matter, causes = next((found for found in compared if not found[1]), compared[0])
    before, after = previous.shown, newest.shown
    if matter:
        because = f"no earlier run is comparable; the previous one differs in: {', '.join(matter)}"
        return {"a": None, "b": after["run"], "because": because}
    confidences, count = (previous.slo.confidence, newest.slo.confidence), len(TREND) * len(after["workloads"])
    workloads = {
        name: [
            contrast(metric, before["workloads"].get(name, {}).get(metric), seen[metric], confidences, count)
            for metric in TREND
        ]
        for name, seen in after["workloads"].items()
    }
    peaks = [
        {"center": peak, "lo": peak, "hi": peak} if (peak := run["footprint_peak"]) else None for run in (before, after)
    ]
    footprint = contrast("footprint_peak", peaks[0], peaks[1])
    if footprint["change"] is not None:  # one reading per run has no interval: only the change is shown
        footprint["says"] = "one reading each"
    return {
        "a": before["run"],
        "b": after["run"],
        "differences": causes,
        "workloads": workloads,
        "footprint_peak": footprint,
    }
