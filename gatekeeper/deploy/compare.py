"""The comparison of runs: which differences forbid it, which figures are better or worse, one backend or several."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict.run_differences import compare_inputs, concerns
from gatekeeper.core import slo as slo_file
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.errors import ExitCode, InputError, did_you_mean
from gatekeeper.core.manifest import Manifest, Model
from gatekeeper.core.metrics import BY_NAME, MEASURED
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import inputs
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.core.verdict import rounded
from gatekeeper.run import load

OF_BACKENDS = ("backend", "target", "slo.subject.args")
"""Differences that two backends have of necessity: they are named, and the target must be of one family."""


def same_family(mine: Model | None, other: Model | None) -> bool:
    """Return whether two targets are one model in two formats: the same architecture and attention of the same shape.

    `Qwen3ForCausalLM` in a config.json and `qwen3` in a GGUF file are the same architecture.
    """
    if mine is None or other is None:
        return False
    if mine.digest == other.digest:
        return True
    names = {re.sub(r"for[a-z]+$|[^a-z0-9]", "", (one.architecture or "").lower()) for one in (mine, other)}
    shapes = [(one.shape.layers, one.shape.kv_heads, one.shape.head_dim) for one in (mine, other) if one.shape]
    return len(names) == 1 and names != {""} and len(shapes) == 2 and shapes[0] == shapes[1]


def across_backends(mine: Manifest, other: Manifest) -> list[str]:
    """Return what a reader must know when the runs are of two backends; empty where they are of one."""
    if mine.backend == other.backend:
        return []
    notes = ["ratios and deltas are against each backend's own plain decoding: read the absolute speeds"]
    if mine.target and other.target and mine.target.digest != other.target.digest:
        a, b = (f"{one.name} ({one.quantisation})" for one in (mine.target, other.target))
        notes.append(f"the target's files differ: A {a}, B {b}")
        templates = {mine.target.template_sha256, other.target.template_sha256}
        if len(templates) > 1 and None not in templates:
            notes.append("the chat templates differ, so the same canary may be another prompt")
    inside = [one.backend for one in (mine, other) if one.backend not in SERVERS]
    if len(inside) == 1:
        notes.append(f"{inside[0]} runs in process: its time to first token has no HTTP in it")
    return notes


def contrast(metric: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any]:
    """Compare two intervals; only disjoint ones prove a difference.

    Each bound holds at the runs' confidence, so this errs towards "no difference shown".
    """
    out: dict[str, Any] = {"metric": metric, "a": before, "b": after, "change": None, "proven": False}
    if not before or not after:
        return out | {"says": "not measured in " + ("either" if not (before or after) else "A" if not before else "B")}
    if BY_NAME[metric].relative:
        out["change"] = rounded(after["center"] - before["center"])
    elif before["center"]:
        out["change"] = rounded(after["center"] / before["center"] - 1)
    if before["lo"] <= after["hi"] and after["lo"] <= before["hi"]:
        return out | {"says": "no difference shown"}
    better = (after["lo"] > before["hi"]) == BY_NAME[metric].higher_is_better
    return out | {"proven": True, "says": "better" if better else "worse"}


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the runs, judged again."""

    manifest: Manifest
    slo: Slo
    head: dict[str, Any]
    workloads: Mapping[str, Mapping[str, Any]]


def compare(paths: Sequence[Path], metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Judge runs again and compare each with the first; metrics of workloads that are not comparable are not compared.

    Of two runs the document is their comparison; of more, `comparisons` holds one for each after the first.
    """
    if len(paths) < 2:
        raise InputError("compare needs two runs or more", hint="for example: gatekeeper compare RUN_A RUN_B")
    for name in metrics:
        if name not in MEASURED:
            raise InputError(f"--metric {name}: a verdict does not hold it", hint=did_you_mean(name, MEASURED))
    wanted = tuple(metrics) or MEASURED
    first, *others = (_side(path) for path in paths)
    compared = [_compare(first, other, wanted) for other in others]
    return compared[0] if len(compared) == 1 else {"schema": 1, "comparisons": compared}


def comparisons(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the comparisons in a document of `compare`, one for each run after the first."""
    found: list[dict[str, Any]] = document.get("comparisons") or [dict(document)]
    return found


def exit_code(document: Mapping[str, Any], *, fail_on_worse: bool) -> ExitCode:
    """Return 3 where nothing could be compared; with *fail_on_worse* 1 for a proven loss, 3 for a missing figure."""
    pairs = comparisons(document)
    if not all(one["comparable"] for one in pairs):
        return ExitCode.UNPROVEN
    if not fail_on_worse:
        return ExitCode.OK
    workloads = [one for pair in pairs for one in pair["workloads"]]
    found = [metric["says"] for one in workloads for metric in one["metrics"]]
    if "worse" in found:
        return ExitCode.OBJECTIVE_FAILED
    lost = "not measured in B" in found or any(one["a"] and one["not_comparable"] for one in workloads)
    return ExitCode.UNPROVEN if lost else ExitCode.OK


def _compare(mine: _Side, other: _Side, metrics: Sequence[str]) -> dict[str, Any]:
    matter, causes = compare_inputs(mine.manifest, other.manifest, mine.slo, other.slo)
    notes = across_backends(mine.manifest, other.manifest)
    if notes:
        if not same_family(mine.manifest.target, other.manifest.target):
            matter.append("target family")
        else:
            matter = [one for one in matter if one not in OF_BACKENDS]
            causes = ["backend", *causes]
    incomplete = [f"{one.head['run']}: {one.head['incomplete']}" for one in (mine, other) if one.head["incomplete"]]
    workloads = []
    for name in [*mine.workloads, *(name for name in other.workloads if name not in mine.workloads)]:
        left, right = mine.workloads.get(name), other.workloads.get(name)
        against = [*incomplete, *(one for one in matter if concerns(one, name))]
        lacking = [side.head["run"] for side, seen in ((mine, left), (other, right)) if seen is None]
        against += [f"{run} has no such workload" for run in lacking]
        rows = [_contrast(metric, left, right, called=not against, across=bool(notes)) for metric in metrics]
        workloads.append(
            {"name": name, "not_comparable": against, "a": _shown(left), "b": _shown(right), "metrics": rows}
        )
    return {
        "schema": 1,
        "a": mine.head,
        "b": other.head,
        "comparable": any(not one["not_comparable"] for one in workloads),
        "not_comparable": [*incomplete, *matter],
        "differences": causes,
        "notes": notes,
        "workloads": workloads,
    }


def _side(path: Path) -> _Side:
    verdict = load.judge(path)  # first: it refuses a run that cannot be read
    manifest, slo = read_inputs(path)
    head: dict[str, Any] = {"run": str(path), "slo": verdict.slo, "at": manifest.frozen_at, "outcome": verdict.outcome}
    head |= {"grade": verdict.grade, "incomplete": verdict.incomplete, "backend": manifest.backend}
    return _Side(manifest, slo, head, {one["name"]: one for one in verdict.document()["workloads"]})


def read_inputs(path: Path) -> tuple[Manifest, Slo]:
    """Return the manifest and the SLO of a run."""
    directory = RunDirectory(path)
    manifest = inputs.load_manifest(directory.read("manifest.json"))
    return manifest, slo_file.parse(directory.text(inputs.SLO_NAME), f"{path / inputs.SLO_NAME}")


def _shown(workload: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if workload is None else {key: workload[key] for key in ("outcome", "setting")}


def _contrast(
    metric: str, left: Mapping[str, Any] | None, right: Mapping[str, Any] | None, *, called: bool, across: bool
) -> dict[str, Any]:
    a, b = (one["measured"].get(metric) if one else None for one in (left, right))
    found = contrast(metric, a, b)
    if not called:
        return found | {"change": None, "proven": False, "says": "not compared"}
    if across and a and b and (because := _unlike(metric, a, b)):
        return found | {"change": None, "proven": False, "says": "not compared", "because": because}
    return found


def _unlike(metric: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Return why a metric of two backends is not one figure; empty where it is."""
    if BY_NAME[metric].against_plain:
        return "against each backend's own plain decoding"
    if a.get("from") != b.get("from"):
        ours, theirs = ("A", "B") if b.get("from") else ("B", "A")
        return f"counted in {ours}, as the server reports in {theirs}"
    return ""
