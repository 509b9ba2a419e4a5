"""`gatekeeper versus`: two environments, drafts, programs or servers in one run, their requests interleaved."""

import json
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gatekeeper import host
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.verdict.case import soaked_seconds
from gatekeeper.core.errors import InputError, StartError, UnresponsiveError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import differences
from gatekeeper.core.records import Role
from gatekeeper.core.subject import Address
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.system.run_directory import MANIFEST
from gatekeeper.regression.metric_comparison import compare_metrics
from gatekeeper.regression.package_environments import MADE, PackageEnvironment
from gatekeeper.regression.version_under_test import VersionUnderTest, with_one_workload
from gatekeeper.regression.versus_result import ComparedSide, MetricComparison, VersusResult
from gatekeeper.run.prepare import hold_host

DOCUMENT = "versus.json"
LEAST_ROUNDS = 2
"""Each canary is answered at least so often: repeats show the noise."""


def versus(
    sides: tuple[str, str],
    slo_path: Path | None,
    workload: str | None,
    out: Path | None,
    *,
    seconds: float,
    resume: bool = False,
    observers: Sequence[Observer],
) -> VersusResult:
    """Send the canaries of one workload to both *sides* in turns for *seconds*; return B over A.

    *resume* continues the interrupted comparison in *out*.
    """
    first, second = (_inputs_of(side, slo_path, workload) for side in sides)
    _check_alike(first, second)
    with ExitStack() as stack:
        path = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gatekeeper-")))
        if (path / DOCUMENT).exists():
            raise InputError(f"{path} holds a finished comparison", hint="choose another --output")
        _check_begun(path, resume=resume, is_output_named=out is not None)
        stack.enter_context(hold_host(first, path))
        stack.enter_context(host.keep_awake())
        a = stack.enter_context(_open_side(first, path / "a", observers, "a", resume=resume))
        b = stack.enter_context(_open_side(second, path / "b", observers, "b", resume=resume))
        elapsed, rounds = _measure(a, b, seconds)
        metrics, compared_sides = _compare(a, b, sides)
        result = VersusResult(
            slo=a.slo.name, workload=a.workload, confidence=a.slo.confidence, a=compared_sides[0], b=compared_sides[1],
            differences=tuple(part for part in differences(a.prepared.manifest, b.prepared.manifest) if part != "slo"),
            metrics=metrics, seconds=round(elapsed, 1), rounds=rounds, run=str(out) if out is not None else None,
        )  # fmt: skip
        text = json.dumps(result.document(), indent=1, ensure_ascii=False) + "\n"
        (path / DOCUMENT).write_text(text, encoding="utf-8")
        return result


def _check_alike(first: Inputs, second: Inputs) -> None:
    texts = [
        [canary.model_dump() for canaries in inputs.canaries.values() for canary in canaries]
        for inputs in (first, second)
    ]
    if texts[0] != texts[1]:
        raise InputError("the two SLO files have other canaries", hint="compare two systems on the same canaries")
    if first.slo.sampling != second.slo.sampling:
        raise InputError("the two SLO files have other [sampling]", hint="compare two systems at the same sampling")


def _check_begun(path: Path, *, resume: bool, is_output_named: bool) -> None:
    if resume and not is_output_named:
        raise InputError("--resume needs --output DIR", hint="name the folder of the comparison to continue")
    begun = (path / "a" / MANIFEST).is_file()
    if resume and not begun:
        raise InputError(f"{path} has no comparison to resume", hint="remove --resume to start a new one")
    if begun and not resume:
        hint = "continue it with --resume, or choose another --output"
        raise InputError(f"{path} holds an interrupted comparison", hint=hint)


def _open_side(
    inputs: Inputs, folder: Path, observers: Sequence[Observer], label: str, *, resume: bool
) -> VersionUnderTest:
    """Open one side; where a resumed comparison never came to it, from its beginning."""
    resume = resume and (folder / MANIFEST).is_file()
    return VersionUnderTest(inputs, folder, observers if label == "a" else (), label, resume=resume)


def _inputs_of(side: str, slo_path: Path | None, workload: str | None) -> Inputs:
    """Return the inputs of one side: an SLO file, or the SLO with another environment, draft, program or server."""
    if side.endswith(".toml"):
        return with_one_workload(read_inputs(Path(side)), workload, most=None)
    if slo_path is None:
        raise InputError(f"'{side}' is no SLO file", hint="name the SLO of both sides with --slo SLO.toml")
    inputs = with_one_workload(read_inputs(slo_path), workload, most=None)
    subject, path = inputs.slo.subject, Path(side).expanduser().absolute()
    sweep = inputs.slo.sweep
    if side in subject.drafts:
        subject = subject.model_copy(update={"drafts": (side,)})
        sweep = sweep.model_copy(update={"default": sweep.default.model_copy(update={"draft": side})})
    elif "://" in side:
        not_started = {"command": None, "program": None, "plain_command": None, "plain_url": None}
        subject = subject.model_copy(update={"url": Address(side), **not_started})
    elif (path / "bin" / "python").exists() or (path / MADE).exists():
        subject = PackageEnvironment(path).subject(subject)
    elif path.is_file():
        key, rest = ("program", ()) if subject.command is None else ("command", subject.command[1:])
        subject = subject.model_copy(update={key: (str(path), *rest)})
    else:
        message = f"'{side}' is no SLO file, environment, program or address, and no draft of the SLO"
        hint = "for example a folder made by python -m venv, http://127.0.0.1:8080, or one of subject.drafts"
        raise InputError(message, hint=hint)
    return replace(inputs, slo=inputs.slo.model_copy(update={"subject": subject, "sweep": sweep}))


def _measure(a: VersionUnderTest, b: VersionUnderTest, seconds: float) -> tuple[float, int]:
    """Send each canary to both sides, one right after the other, in whole rounds until the time is over.

    It ends by the clock alone, never by what was measured, so each interval keeps its confidence. What was recorded
    before an interrupt counts, with its time.
    """
    before = [*a.measured(), *b.measured()]
    done = {side.name: {(generation.pair, generation.canary) for generation in side.measured()} for side in (a, b)}
    rounds = max([LEAST_ROUNDS, *(1 + int(generation.pair) for generation in before)])
    begun = time.monotonic() - soaked_seconds(before)
    arm = "candidate" if dict(a.setting).get("draft") is not None else "plain"
    for side in (a, b):
        _check_first_request(side, arm)
    a.observe("stage", {"stage": "versus", "settings": {a.workload: dict(a.setting)}, "seconds": seconds})
    number = 0
    while number < rounds or (time.monotonic() - begun) * (number + 1) / number <= seconds:
        order = random.Random(f"{a.seed}|{number}").sample(a.canaries, len(a.canaries))
        for position, canary in enumerate(order):
            for side in (a, b) if (position + number) % 2 == 0 else (b, a):
                if (str(number), canary.id) in done[side.name]:
                    continue
                generation = side.send(arm, canary, str(number))
                answered = {"answered": number * len(order) + position + 1, "of": 0}
                a.observe("answer", {"generation": generation, **answered})
        number += 1
    return time.monotonic() - begun, number


def _check_first_request(side: VersionUnderTest, arm: str) -> None:
    """Send a request that is not measured; raise StartError or UnresponsiveError where the side cannot answer it."""
    hint = "its log is in --output, if you name one"
    try:
        fault = side.send(arm, side.canaries[0], "warmup", Role.WARMUP).answer.fault
    except StartError as error:
        message = f"{side.name.upper()} cannot be started: {error.cause}"
        raise StartError(message, cause=error.cause, hint=hint) from error
    if fault is not None:
        raise UnresponsiveError(f"{side.name.upper()}: its first request failed: {fault}", hint=hint)


def _compare(
    a: VersionUnderTest, b: VersionUnderTest, names: tuple[str, str]
) -> tuple[tuple[MetricComparison, ...], list[ComparedSide]]:
    """Return each metric of B over A, and the two sides with what each shows alone."""
    answers = a.paired(b.measured(), a.measured())
    alone = [replace(answers, answers=counted_or_claimed(side.measured())[0], plain=(), pairs=()) for side in (a, b)]
    metrics = compare_metrics(answers, (alone[0], alone[1]))
    sides = []
    for label, name, side, of_side in zip("AB", names, (a, b), alone, strict=True):
        figures = {metric: estimate(metric, of_side) for metric in ("decode_throughput", "ttft", "acceptance_rate")}
        sides.append(ComparedSide(label, name, side.versions(), side.setting, figures, side.peak))
    return metrics, sides
