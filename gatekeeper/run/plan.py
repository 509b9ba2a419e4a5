"""`gatekeeper plan`: every trial, the expected duration, and what the plan cannot prove. No request is sent."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.forecast import Forecast
from gatekeeper.analysis.plan.complaints.complaint import Complaint
from gatekeeper.analysis.plan.complaints.undecidable_bound import undecidable_bounds
from gatekeeper.analysis.plan.request_costs import PREFILL, Assumptions, derive_speed
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.units import show
from gatekeeper.run.prepare import Prepared, prepare


def lint(paths: Sequence[Path], speed: float | None = None) -> tuple[dict[str, Any], int]:
    """Check SLO files; return what is wrong with each, and 2 where one is wrong on every machine, else 0.

    Nothing that a file names is started: it may come from a stranger's pull request.
    """
    results = []
    for path in paths:
        try:
            document, _ = forecast(path, speed, probing=False)
            never = (complaint for complaint in document["complaints"] if complaint["weight"] == "never")
            faults = [{"message": complaint["message"], "hint": complaint["hint"]} for complaint in never]
        except InputError as error:
            faults = [{"message": error.message, "hint": error.hint}]
        results.append({"slo": str(path), "wrong": faults})
    is_wrong = any(result["wrong"] for result in results)
    return {"schema": 1, "files": results}, ExitCode.BAD_INPUT if is_wrong else ExitCode.OK


def forecast(slo_path: Path, speed: float | None = None, *, probing: bool = True) -> tuple[dict[str, Any], int]:
    """Return the plan of an SLO file as a document, and the exit code that `certify` would refuse it with, or 0.

    It is also 2 for a bound against the certified run that soaks of this length cannot decide.
    *speed* of plain decoding in tok/s; None derives it from the size of the target. *probing* starts the SLO's program
    for its version, or its worker for its greeting.
    """
    prepared = prepare(read_inputs(slo_path), Path(), measuring=False, probing=probing)
    slo, plan = prepared.inputs.slo, prepared.plan
    run, assumption = run_forecast(prepared, speed)
    stages, fallback = run.stages(), run.fallback()
    total = sum(stage.seconds for stage in stages)
    saved = next((stage.seconds for stage in stages if stage.name == "sweep"), 0.0) - run.shortest_sweep()
    conditional = {follow_up.name for follow_up in FOLLOW_UPS if follow_up.conditional}
    saved += sum(stage.seconds for stage in stages if stage.name in conditional)
    sizes = {name: len(canaries) for name, canaries in prepared.inputs.canaries.items()}
    complaints = [*undecidable_bounds(slo, run.pairs(), sizes), *prepared.complaints, *_note_needed_baseline(slo)]
    weights = {complaint.weight for complaint in complaints}
    document = {
        "schema": 1,
        "slo": slo.name,
        "design": slo.sweep.design,
        "stop": slo.sweep.stop,
        "trials": [
            {
                "name": trial.name,
                "file": trial.file,
                "arm": trial.arm,
                "setting": dict(trial.setting),
                "answers": sum(step.trial == trial.name for block in plan.blocks for step in block.requests),
            }
            for trial in plan.trials
        ],
        "answers": sum(len(block.requests) for block in plan.blocks),
        "expected_seconds": {stage.name: round(stage.seconds) for stage in stages},
        "expected_answers": {stage.name: stage.answers for stage in stages if stage.answers},
        "expected_total_seconds": round(total),
        "least_total_seconds": round(total - saved),
        "expected_fallback_seconds": {stage.name: round(stage.seconds) for stage in fallback},
        "assumption": f"assumes {assumption}, no start-up time, and that every workload speculates",
        "memory": prepared.memory.document() if prepared.memory is not None else None,
        "doubts": list(prepared.manifest.doubts),
        "complaints": [
            {key: getattr(complaint, key) for key in ("weight", "about", "message", "hint")} for complaint in complaints
        ],
    }
    if "never" in weights:
        return document, ExitCode.BAD_INPUT
    return document, ExitCode.UNPROVEN if "not-here" in weights or prepared.manifest.doubts else ExitCode.OK


def _note_needed_baseline(slo: Slo) -> Iterator[Complaint]:
    """Yield a note where `certify` needs a certified run to compare with: which one is known only then."""
    compared = (objective for objective in slo.objective if objective.against is not None)
    if (first := next(compared, None)) is not None:
        message = "compares with the certified runs of this SLO in the folder of --output"
        hint = "certify the first run with --baseline none"
        yield Complaint("weak", f'objective {first.metric}, against = "certified"', message, hint)


def run_forecast(prepared: Prepared, speed: float | None = None) -> tuple[Forecast, str]:
    """Return the forecast of a run before its first token, and what it assumes, in words; *speed* in tok/s."""
    inputs, backend, target = prepared.inputs, prepared.backend, prepared.manifest.target
    plain, source = (speed, "") if speed is not None else derive_speed(inputs.slo, target)
    assumption = f"full-length answers at {show(plain, 'tok/s')}{source}, prompts read {PREFILL:.0f} times as fast"
    vocabulary = target.vocabulary if target is not None else None
    assumed = Assumptions(plain, vocabulary, Sight.LOGITS in backend.sight)
    return Forecast(inputs.slo, prepared.plan, inputs.canaries, inputs.profile, assumed), assumption


def outlook(prepared: Prepared, alone: str | None = None) -> dict[str, Any]:
    """Return what a live view needs of the run ahead, or of the one stage that is run *alone*."""
    stages = run_forecast(prepared)[0].stages()
    return {
        "slo": prepared.inputs.slo.name,
        "expected": {stage.name: stage.seconds for stage in stages if alone in {None, stage.name}},
        "workloads": [workload.name for workload in prepared.inputs.slo.workload],
        "realtime": prepared.backend.realtime,
    }


def soak_outlook(prepared: Prepared, soak: SoakPlan, generations: Iterable[Generation]) -> dict[str, float]:
    """Return the seconds of the stages of *soak*, now that the sweep has shown how long answers take."""
    times: dict[tuple[str, bool, str], list[float]] = defaultdict(list)
    for generation in generations:
        if generation.role is not Role.WARMUP and generation.answer.fault is None:
            seconds = generation.answer.seconds
            times[generation.workload, generation.arm == "plain", generation.canary].append(seconds)
            times[generation.workload, generation.arm == "plain", ""].append(seconds)

    def average_seconds(workload: str, canary: Canary, knobs: Setting) -> float | None:
        plain = dict(knobs).get("draft") is None
        seconds = times.get((workload, plain, canary.id)) or times.get((workload, plain, ""))
        return fmean(seconds) if seconds else None

    assumed, _ = run_forecast(prepared)
    measured_forecast = replace(assumed, assumed=replace(assumed.assumed, answer_seconds=average_seconds))
    return {stage.name: stage.seconds for stage in measured_forecast.soaks([soak]) if stage.seconds > 0}
