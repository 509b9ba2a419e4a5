"""Stored runs over time, and the comparison of two runs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.analysis.metrics.host_series import host_numbers
from gatekeeper.core import slo as slo_file
from gatekeeper.core.errors import GatekeeperError, NoProofError
from gatekeeper.core.host_columns import HostColumns
from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.metrics import BY_NAME, MEASURED
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import inputs, record_files, run_directory
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.core.verdict import rounded
from gatekeeper.run import load, verify

CAUSES = ("drafts", "slo", "versions.", "host.os", "host.os_build", "host.kernel")
"""Differences that may explain a change and still allow a comparison; any other makes the runs not comparable."""


def compare_inputs(mine: Manifest, other: Manifest, mine_slo: Slo, other_slo: Slo) -> tuple[list[str], list[str]]:
    """Return the differences that make two runs not comparable, and those that may explain a change."""
    found = differences(mine, other)
    conditions = {
        "slo.soak.concurrency": (mine_slo.soak.concurrency, other_slo.soak.concurrency),
        "slo.subject.prompt_cache": (mine_slo.subject.prompt_cache, other_slo.subject.prompt_cache),
        "slo.subject.args": (mine_slo.subject.args, other_slo.subject.args),
    }
    matter = [name for name in found if not _is_cause(name)]
    matter += [name for name, (before, after) in conditions.items() if before != after]
    return matter, [name for name in found if _is_cause(name)]


def _is_cause(name: str) -> bool:
    return any(name == cause or (cause.endswith(".") and name.startswith(cause)) for cause in CAUSES)


def concerns(name: str, workload: str) -> bool:
    """Return whether a difference concerns a workload; other canaries of another workload do not."""
    return not name.startswith("canaries.") or name == f"canaries.{workload}"


def contrast(metric: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any]:
    """Compare two intervals; only disjoint ones count as a difference.

    Each bound holds at the runs' confidence, so this errs towards "no difference shown".
    """
    out: dict[str, Any] = {"metric": metric, "a": before, "b": after, "change": None}
    if not before or not after:
        return out | {"says": "not measured in " + ("either" if not (before or after) else "A" if not before else "B")}
    if BY_NAME[metric].relative:
        out["change"] = rounded(after["center"] - before["center"])
    elif before["center"]:
        out["change"] = rounded(after["center"] / before["center"] - 1)
    if after["lo"] > before["hi"]:
        return out | {"says": "higher"}
    return out | {"says": "lower" if after["hi"] < before["lo"] else "no difference shown"}


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


def _read_inputs(path: Path) -> tuple[Manifest, Slo]:
    directory = RunDirectory(path)
    manifest = inputs.load_manifest(directory.read("manifest.json"))
    return manifest, slo_file.parse(directory.text(inputs.SLO_NAME), f"{path / inputs.SLO_NAME}")


def _read(path: Path) -> _StoredRun:
    """Read a run; its verdict is the stored one, shown only if the checksums match."""
    directory = RunDirectory(path)
    manifest, slo = _read_inputs(path)
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


def compare(before: Path, after: Path) -> dict[str, Any]:
    """Judge two runs again and compare them; metrics of workloads that are not comparable are not compared."""
    sides = [_side(path) for path in (before, after)]
    (mine, mine_slo, a), (other, other_slo, b) = sides
    matter, causes = compare_inputs(mine, other, mine_slo, other_slo)
    incomplete = [f"{side['run']}: {side['incomplete']}" for side in (a, b) if side["incomplete"]]
    seen: tuple[dict[str, Any], ...] = tuple({one["name"]: one for one in side.pop("workloads")} for side in (a, b))
    workloads = []
    for name in [*seen[0], *(name for name in seen[1] if name not in seen[0])]:
        left, right = seen[0].get(name), seen[1].get(name)
        against = [*incomplete, *(one for one in matter if concerns(one, name))]
        against += [f"{'B' if right is None else 'A'} has no such workload"] if left is None or right is None else []
        workloads.append(
            {
                "name": name,
                "not_comparable": against,
                "a": _shown(left),
                "b": _shown(right),
                "metrics": [_contrast(metric, left, right, called=not against) for metric in MEASURED],
            }
        )
    return {
        "schema": 1,
        "a": a,
        "b": b,
        "comparable": any(not one["not_comparable"] for one in workloads),
        "not_comparable": [*incomplete, *matter],
        "differences": causes,
        "workloads": workloads,
    }


def _side(path: Path) -> tuple[Manifest, Slo, dict[str, Any]]:
    verdict = load.judge(path)  # first: it refuses a run that cannot be read
    manifest, slo = _read_inputs(path)
    head: dict[str, Any] = {"run": str(path), "slo": verdict.slo, "at": manifest.frozen_at, "outcome": verdict.outcome}
    head |= {"grade": verdict.grade, "incomplete": verdict.incomplete}
    return manifest, slo, {**head, "workloads": verdict.document()["workloads"]}


def _shown(workload: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if workload is None else {key: workload[key] for key in ("outcome", "setting")}


def _contrast(
    metric: str, left: Mapping[str, Any] | None, right: Mapping[str, Any] | None, *, called: bool
) -> dict[str, Any]:
    found = contrast(metric, *((one["measured"].get(metric) if one else None) for one in (left, right)))
    return found if called else found | {"change": None, "says": "not compared"}
