"""The comparison of runs: which differences forbid it, which figures are better or worse, one backend or several."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.analysis.stats import run_to_run
from gatekeeper.analysis.verdict.run_differences import compare_inputs, concerns
from gatekeeper.core import slo as slo_file
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.errors import ExitCode, InputError, did_you_mean
from gatekeeper.core.manifest import Manifest, Model
from gatekeeper.core.metrics import BY_NAME, MEASURED
from gatekeeper.core.slo import CONFIDENCE, Slo
from gatekeeper.core.system import inputs
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.core.verdict import Estimate, rounded
from gatekeeper.run.judge import judge

OF_BACKENDS = ("backend", "target", "slo.subject.args")
"""Differences that two backends have of necessity: they are named, and the target must be of one family."""


def same_family(first: Model | None, second: Model | None) -> bool:
    """Return whether two targets are one model in two formats: the same architecture and attention of the same shape.

    `Qwen3ForCausalLM` in a config.json and `qwen3` in a GGUF file are the same architecture.
    """
    if first is None or second is None:
        return False
    if first.digest == second.digest:
        return True
    names = {re.sub(r"for[a-z]+$|[^a-z0-9]", "", (model.architecture or "").lower()) for model in (first, second)}
    shapes = [
        (model.shape.layers, model.shape.kv_heads, model.shape.head_dim) for model in (first, second) if model.shape
    ]
    return len(names) == 1 and names != {""} and len(shapes) == 2 and shapes[0] == shapes[1]


def across_backends(first: Manifest, second: Manifest) -> list[str]:
    """Return what a reader must know when the runs are of two backends; empty where they are of one."""
    if first.backend == second.backend:
        return []
    notes = ["ratios and deltas are against each backend's own plain decoding: read the absolute speeds"]
    if first.target and second.target and first.target.digest != second.target.digest:
        a, b = (f"{model.name} ({model.quantisation})" for model in (first.target, second.target))
        notes.append(f"the target's files differ: A {a}, B {b}")
        templates = {first.target.template_sha256, second.target.template_sha256}
        if len(templates) > 1 and None not in templates:
            notes.append("the chat templates differ, so the same canary may be another prompt")
    inside = [manifest.backend for manifest in (first, second) if manifest.backend not in SERVERS]
    if len(inside) == 1:
        notes.append(f"{inside[0]} runs in process: its time to first token has no HTTP in it")
    return notes


Figure = Mapping[str, Any]
"""A measured figure of a verdict: its centre, both ends of its interval and the number of samples."""


def contrast(
    metric: str,
    before: Figure | None,
    after: Figure | None,
    confidences: tuple[float, float] = (CONFIDENCE, CONFIDENCE),
    count: int = 1,
) -> dict[str, Any]:
    """Compare two figures by their intervals, each at the confidence of its run, as one of *count* comparisons.

    Two equal runs are called different in any of them with a chance of 5 % at most.
    """
    out: dict[str, Any] = {"metric": metric, "a": before, "b": after, "change": None, "proven": False}
    if not before or not after:
        return out | {"says": "not measured in " + ("either" if not (before or after) else "A" if not before else "B")}
    row = BY_NAME[metric]
    if row.relative:
        out["change"] = rounded(after["center"] - before["center"])
    elif before["center"]:
        out["change"] = rounded(after["center"] / before["center"] - 1)
    then, now = (_estimate(figure, level) for figure, level in zip((before, after), confidences, strict=True))
    logs = not row.relative and min(then.lo, now.lo) > 0
    change = run_to_run.apart(then, now, count, math.log if logs else float)
    says = run_to_run.better_or_worse(change.lo, change.hi, unchanged=0.0, higher_is_better=row.higher_is_better)
    return out | {"proven": says != run_to_run.NO_DIFFERENCE, "says": says}


def _estimate(figure: Figure, confidence: float) -> Estimate:
    return Estimate(figure["center"], figure["lo"], figure["hi"], figure.get("n", 1), confidence=confidence)


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
    first, *later = (_side(path) for path in paths)
    compared = [_compare(first, side, tuple(metrics) or MEASURED) for side in later]
    return compared[0] if len(compared) == 1 else {"schema": 1, "comparisons": compared}


def comparisons(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the comparisons in a document of `compare`, one for each run after the first."""
    pairs: list[dict[str, Any]] = document.get("comparisons") or [dict(document)]
    return pairs


def exit_code(document: Mapping[str, Any], *, fail_on_worse: bool) -> ExitCode:
    """Return 3 where nothing could be compared; with *fail_on_worse* 1 for a proven loss, 3 for a missing figure."""
    pairs = comparisons(document)
    if not all(pair["comparable"] for pair in pairs):
        return ExitCode.UNPROVEN
    if not fail_on_worse:
        return ExitCode.OK
    workloads = [workload for pair in pairs for workload in pair["workloads"]]
    results = [metric["says"] for workload in workloads for metric in workload["metrics"]]
    if "worse" in results:
        return ExitCode.OBJECTIVE_FAILED
    lost = "not measured in B" in results or any(workload["a"] and workload["not_comparable"] for workload in workloads)
    return ExitCode.UNPROVEN if lost else ExitCode.OK


def _compare(first: _Side, second: _Side, metrics: Sequence[str]) -> dict[str, Any]:
    matter, causes = compare_inputs(first.manifest, second.manifest, first.slo, second.slo)
    notes = across_backends(first.manifest, second.manifest)
    if notes:
        if not same_family(first.manifest.target, second.manifest.target):
            matter.append("target family")
        else:
            matter = [difference for difference in matter if difference not in OF_BACKENDS]
            causes = ["backend", *causes]
    sides = first, second
    incomplete = [f"{side.head['run']}: {side.head['incomplete']}" for side in sides if side.head["incomplete"]]
    names = dict.fromkeys((*first.workloads, *second.workloads))
    contrasts = _contrasts(first, second, [(name, metric) for name in names for metric in metrics])
    workloads = []
    for name in names:
        in_both = first.workloads.get(name), second.workloads.get(name)
        refusals = [*incomplete, *(difference for difference in matter if concerns(difference, name))]
        lacking = [side.head["run"] for side, workload in zip(sides, in_both, strict=True) if workload is None]
        refusals += [f"{run} has no such workload" for run in lacking]
        rows = [_called(contrasts[name, metric], called=not refusals, across=bool(notes)) for metric in metrics]
        a, b = map(_shown, in_both)
        workloads.append({"name": name, "not_comparable": refusals, "a": a, "b": b, "metrics": rows})
    return {
        "schema": 1,
        "a": first.head,
        "b": second.head,
        "comparable": any(not workload["not_comparable"] for workload in workloads),
        "not_comparable": [*incomplete, *matter],
        "differences": causes,
        "notes": notes,
        "workloads": workloads,
    }


def _contrasts(first: _Side, second: _Side, rows: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the contrast of each metric of each workload."""
    pairs = {
        (name, metric): tuple(side.workloads.get(name, {}).get("measured", {}).get(metric) for side in (first, second))
        for name, metric in rows
    }
    count = sum(all(figures) for figures in pairs.values())
    confidences = first.slo.confidence, second.slo.confidence
    return {
        (name, metric): contrast(metric, before, after, confidences, count)
        for (name, metric), (before, after) in pairs.items()
    }


def _called(contrasted: dict[str, Any], *, called: bool, across: bool) -> dict[str, Any]:
    """Return the contrast, without its result where the two figures cannot be compared."""
    refused = {"change": None, "proven": False, "says": "not compared"}
    metric, before, after = contrasted["metric"], contrasted["a"], contrasted["b"]
    if not called:
        return contrasted | refused
    if across and before and after and (because := _unlike(metric, before, after)):
        return contrasted | refused | {"because": because}
    return contrasted


def _side(path: Path) -> _Side:
    verdict = judge(path)  # first: it refuses a run that cannot be read
    manifest, slo = read_inputs(path)
    head: dict[str, Any] = {"run": str(path), "slo": verdict.slo, "at": manifest.frozen_at, "outcome": verdict.outcome}
    head |= {"grade": verdict.grade, "incomplete": verdict.incomplete, "backend": manifest.backend}
    return _Side(manifest, slo, head, {workload["name"]: workload for workload in verdict.document()["workloads"]})


def read_inputs(path: Path) -> tuple[Manifest, Slo]:
    """Return the manifest and the SLO of a run."""
    directory = RunDirectory(path)
    manifest = inputs.load_manifest(directory.read("manifest.json"))
    return manifest, slo_file.parse(directory.text(inputs.SLO_NAME), f"{path / inputs.SLO_NAME}")


def _shown(workload: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if workload is None else {key: workload[key] for key in ("outcome", "setting")}


def _unlike(metric: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Return why a metric of two backends is not one figure; empty where it is."""
    if BY_NAME[metric].against_plain:
        return "against each backend's own plain decoding"
    if a.get("from") != b.get("from"):
        counting, claiming = ("A", "B") if b.get("from") else ("B", "A")
        return f"counted in {counting}, as the server reports in {claiming}"
    return ""
