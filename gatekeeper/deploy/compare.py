"""The comparison of runs: which differences forbid it, which figures are better or worse, one backend or several."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gatekeeper.analysis.stats import run_to_run
from gatekeeper.analysis.verdict.against_certified import compare_inputs, concerns
from gatekeeper.analysis.verdict.run_verdict import WorkloadVerdict
from gatekeeper.core import slo as slo_file
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import round_figure
from gatekeeper.core.manifest import Manifest, Model
from gatekeeper.core.metrics import BY_NAME, MEASURED
from gatekeeper.core.slo import CONFIDENCE, Slo
from gatekeeper.core.system import inputs
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.report.data.compared_runs import (
    ComparedFigure,
    ComparedRun,
    ComparedWorkload,
    Contrast,
    RunComparison,
    WorkloadResult,
    figure_of,
)
from gatekeeper.run.stored.judge import judge

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
    shapes = [(shape.layers, shape.kv_heads, shape.head_dim) for shape in (first.shape, second.shape) if shape]
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


def contrast(
    metric: str,
    before: ComparedFigure | None,
    after: ComparedFigure | None,
    confidences: tuple[float, float] = (CONFIDENCE, CONFIDENCE),
    count: int = 1,
) -> Contrast:
    """Compare two figures by their intervals, each at the confidence of its run, as one of *count* comparisons.

    Two equal runs are called different in any of them with a chance of 5 % at most.
    """
    if before is None or after is None:
        lacking = "either" if before is after else "A" if before is None else "B"
        return Contrast(metric, before, after, says=f"not measured in {lacking}")
    row, change = BY_NAME[metric], None
    if row.relative:
        change = round_figure(after.center - before.center)
    elif before.center:
        change = round_figure(after.center / before.center - 1)
    then, now = (figure.estimate(level) for figure, level in zip((before, after), confidences, strict=True))
    logs = not row.relative and min(then.lo, now.lo) > 0
    apart = run_to_run.apart(then, now, count, math.log if logs else float)
    says = run_to_run.better_or_worse(apart.lo, apart.hi, unchanged=0.0, higher_is_better=row.higher_is_better)
    return Contrast(metric, before, after, change, proven=says != run_to_run.NO_DIFFERENCE, says=says)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the runs, judged again."""

    manifest: Manifest
    slo: Slo
    head: ComparedRun
    workloads: Mapping[str, WorkloadVerdict]

    def figure(self, workload: str, metric: str) -> ComparedFigure | None:
        verdict = self.workloads.get(workload)
        return figure_of(verdict.measured, metric) if verdict is not None else None

    def result(self, workload: str) -> WorkloadResult | None:
        verdict = self.workloads.get(workload)
        return WorkloadResult(verdict.outcome, verdict.setting) if verdict is not None else None


def compare(paths: Sequence[Path]) -> list[RunComparison]:
    """Judge runs again and compare each with the first; metrics of workloads that are not comparable are not compared.

    There is one comparison for each run after the first.
    """
    if len(paths) < 2:
        raise InputError("compare needs two runs or more", hint="for example: gatekeeper compare RUN_A RUN_B")
    first, *later = (_side(path) for path in paths)
    return [_compare(first, side) for side in later]


def exit_code(comparisons: Sequence[RunComparison], *, fail_on_worse: bool) -> ExitCode:
    """Return 3 where nothing could be compared; with *fail_on_worse* 1 for a proven loss, 3 for a missing figure."""
    if not all(comparison.comparable for comparison in comparisons):
        return ExitCode.UNPROVEN
    if not fail_on_worse:
        return ExitCode.OK
    workloads = [workload for comparison in comparisons for workload in comparison.workloads]
    results = [contrast.says for workload in workloads for contrast in workload.metrics]
    if "worse" in results:
        return ExitCode.OBJECTIVE_FAILED
    lost = any(workload.a is not None and workload.not_comparable for workload in workloads)
    lost = lost or any(_same_run(comparison.a, comparison.b) for comparison in comparisons)
    return ExitCode.UNPROVEN if lost or "not measured in B" in results else ExitCode.OK


def _same_run(first: ComparedRun, second: ComparedRun) -> bool:
    return Path(first.run).resolve() == Path(second.run).resolve()


def _compare(first: _Side, second: _Side) -> RunComparison:
    matter, causes = compare_inputs(first.manifest, second.manifest, first.slo, second.slo)
    notes = across_backends(first.manifest, second.manifest)
    across = bool(notes)
    if _same_run(first.head, second.head):
        notes = ["A and B are the same run: name another one (`gatekeeper history` lists them)"]
    if across:
        if not same_family(first.manifest.target, second.manifest.target):
            matter.append("target family")
        else:
            matter = [difference for difference in matter if difference not in OF_BACKENDS]
            causes = ["backend", *causes]
    sides = first, second
    incomplete = [f"{side.head.run}: {side.head.incomplete}" for side in sides if side.head.incomplete]
    names = dict.fromkeys((*first.workloads, *second.workloads))
    contrasts = _contrasts(first, second, [(name, metric) for name in names for metric in MEASURED])
    workloads = []
    for name in names:
        refusals = [*incomplete, *(difference for difference in matter if concerns(difference, name))]
        refusals += [f"{side.head.run} has no such workload" for side in sides if name not in side.workloads]
        rows = [_withhold_result(contrasts[name, metric], called=not refusals, across=across) for metric in MEASURED]
        workloads.append(ComparedWorkload(name, tuple(refusals), first.result(name), second.result(name), tuple(rows)))
    return RunComparison(
        a=first.head, b=second.head, not_comparable=(*incomplete, *matter), differences=tuple(causes),
        notes=tuple(notes), workloads=tuple(workloads),
    )  # fmt: skip


def _contrasts(first: _Side, second: _Side, rows: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Contrast]:
    pairs = {row: (first.figure(*row), second.figure(*row)) for row in rows}
    count = sum(before is not None and after is not None for before, after in pairs.values())
    confidences = first.slo.confidence, second.slo.confidence
    return {
        (name, metric): contrast(metric, before, after, confidences, count)
        for (name, metric), (before, after) in pairs.items()
    }


def _withhold_result(contrasted: Contrast, *, called: bool, across: bool) -> Contrast:
    """Return the contrast, without its result where the two figures cannot be compared."""
    reason = _unlike(contrasted) if called and across else None
    if called and reason is None:
        return contrasted
    return replace(contrasted, change=None, proven=False, says="not compared", because=reason)


def _side(path: Path) -> _Side:
    verdict = judge(path)  # first: it refuses a run that cannot be read
    manifest, slo = read_inputs(path)
    head = ComparedRun(
        run=str(path), slo=verdict.slo, at=manifest.frozen_at, outcome=verdict.outcome, grade=verdict.grade,
        incomplete=verdict.incomplete, backend=manifest.backend,
    )  # fmt: skip
    return _Side(manifest, slo, head, {workload.name: workload for workload in verdict.workloads})


def read_inputs(path: Path) -> tuple[Manifest, Slo]:
    """Return the manifest and the SLO of a run."""
    directory = RunDirectory(path)
    manifest = inputs.load_manifest(directory.read("manifest.json"))
    return manifest, slo_file.parse(directory.text(inputs.SLO_NAME), f"{path / inputs.SLO_NAME}")


def _unlike(contrasted: Contrast) -> str | None:
    """Return why a metric of two backends is not one figure; None where it is, or was not measured in both."""
    before, after = contrasted.a, contrasted.b
    if before is None or after is None:
        return None
    if BY_NAME[contrasted.metric].against_plain:
        return "against each backend's own plain decoding"
    if before.source != after.source:
        counting, claiming = ("A", "B") if after.source else ("B", "A")
        return f"counted in {counting}, as the server reports in {claiming}"
    return None
