"""`gatekeeper plan`: every trial, the expected duration, and what the plan cannot prove. No request is sent."""

from pathlib import Path
from typing import Any

from gatekeeper.analysis.plan import duration
from gatekeeper.core.errors import ExitCode
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.metrics import Sight
from gatekeeper.core.system import inputs
from gatekeeper.run.prepare import Prepared, prepare

BANDWIDTH = 100e9
"""Assumed memory bandwidth for reading the weights, in bytes per second: a base M4 has 120 GB/s."""


def forecast(slo_path: Path) -> tuple[dict[str, Any], int]:
    """Return the plan of an SLO file as a document, and the exit code that `certify` would refuse it with, or 0."""
    prepared = prepare(inputs.read(slo_path), Path("logs"), measuring=False)
    slo, plan = prepared.inputs.slo, prepared.plan
    speed, stages = _assumed_speed(prepared.manifest), expected_stages(prepared)
    weights = {one.weight for one in prepared.complaints}
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
                "answers": sum(step.trial is trial for block in plan.blocks for step in block.requests),
            }
            for trial in plan.trials
        ],
        "answers": sum(len(block.requests) for block in plan.blocks),
        "expected_seconds": {one.name: round(one.seconds) for one in stages},
        "expected_answers": {one.name: one.answers for one in stages if one.answers},
        "expected_total_seconds": round(sum(one.seconds for one in stages)),
        "assumption": (
            f"assumes full-length answers at {speed:.0f} tok/s, prompts read {duration.PREFILL:.0f} times as fast, no "
            "start-up time; the soak may last longer; each fallback step adds another soak and its passes"
        ),
        "memory": prepared.memory.document() if prepared.memory is not None else None,
        "doubts": list(prepared.manifest.doubts),
        "complaints": [
            {"weight": one.weight, "about": one.about, "message": one.message, "hint": one.hint}
            for one in prepared.complaints
        ],
    }
    if "never" in weights:
        return document, ExitCode.BAD_INPUT
    return document, ExitCode.UNPROVEN if "not-here" in weights or prepared.manifest.doubts else ExitCode.OK


def expected_stages(prepared: Prepared) -> tuple[duration.StageForecast, ...]:
    """Return the stages of the run and how long each takes, if plain decoding has the assumed speed."""
    backend, target = prepared.backend, prepared.manifest.target
    assumed = duration.Assumptions(
        _assumed_speed(prepared.manifest),
        target.vocabulary if target is not None else None,
        Sight.LOGITS in backend.sight,
    )
    return duration.forecast_stages(prepared.inputs.slo, prepared.plan, prepared.inputs.canaries, assumed)


def outlook(prepared: Prepared, alone: str | None = None) -> dict[str, Any]:
    """Return what a live view needs of the run ahead, or of the one stage that is run *alone*."""
    return {
        "slo": prepared.inputs.slo.name,
        "expected": {one.name: one.seconds for one in expected_stages(prepared) if alone in {None, one.name}},
        "workloads": [one.name for one in prepared.inputs.slo.workload],
        "realtime": prepared.backend.realtime,
    }


def _assumed_speed(manifest: Manifest) -> float:
    """Return the assumed speed of plain decoding in tok/s: the bandwidth over the size of the weights, 1 to 500."""
    size = manifest.target.bytes if manifest.target is not None else 0
    return max(1.0, min(500.0, BANDWIDTH / size)) if size else 500.0
