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
from gatekeeper.analysis.metrics.answer_table import burst_gap, tabulate
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.pass_rates import pass_rate
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.verdict.soak_time import soaked_seconds
from gatekeeper.core.document import document_of
from gatekeeper.core.errors import InputError, StartError, UnresponsiveError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.judgement import Missing, fact
from gatekeeper.core.manifest import differences
from gatekeeper.core.metrics import PASS_RATES
from gatekeeper.core.records import EventKind, Role
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.run_directory import MANIFEST
from gatekeeper.run.prepare import hold_host
from gatekeeper.run.start.try_slo import CANARIES
from gatekeeper.versus.answer_comparison import cache_doubt, compare_words, unequal_prompts
from gatekeeper.versus.metric_comparison import compare_metrics, graded_metrics
from gatekeeper.versus.sides import SystemUnderTest, check_alike, read_side, write_slo_of_servers
from gatekeeper.versus.versus_result import ComparedSide, MetricComparison, VersusResult

DOCUMENT = "versus.json"
LEAST_ROUNDS = 2
"""Each canary is answered at least so often: repeats show the noise."""


def compare_systems(
    sides: tuple[str, str],
    slo_path: Path | None,
    workload: str | None,
    out: Path | None,
    *,
    seconds: float,
    resume: bool = False,
    observers: Sequence[Observer],
    canaries: Sequence[str] = (),
    target: str | None = None,
) -> VersusResult:
    """Send the canaries of one workload to both *sides* in turns for *seconds*; return B over A.

    *resume* continues the interrupted comparison in *out*. Two addresses need no SLO: then *canaries* are files or sets
    of them, and *target* is the model's name in requests where a server does not list a single one.
    """
    with ExitStack() as stack:
        if slo_path is None and all("://" in side for side in sides):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gatekeeper-")))
            slo_path = write_slo_of_servers(folder, canaries or CANARIES, target)
        elif canaries or target is not None:
            hint = "remove them: the SLO names its canaries and its target"
            raise InputError("--canaries and --target are for two addresses without an SLO", hint=hint)
        first, second = (read_side(side, slo_path, workload) for side in sides)
        check_alike(first, second)
        path = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gatekeeper-")))
        if (path / DOCUMENT).exists():
            raise InputError(f"{path} holds a finished comparison", hint="choose another --output")
        _check_begun(path, resume=resume, is_output_named=out is not None)
        stack.enter_context(hold_host(first, path, "versus"))
        stack.enter_context(host.keep_awake())
        a = stack.enter_context(_open_side(first, path / "a", observers, "a", resume=resume))
        b = stack.enter_context(_open_side(second, path / "b", observers, "b", resume=resume))
        elapsed, rounds = _measure(a, b, seconds)
        result = _compare(a, b, sides, elapsed, rounds, str(out) if out is not None else None)
        text = json.dumps(document_of(result), indent=1, ensure_ascii=False) + "\n"
        (path / DOCUMENT).write_text(text, encoding="utf-8")
        return result


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
) -> SystemUnderTest:
    """Open one side; where a resumed comparison never came to it, from its beginning."""
    begun = (folder / MANIFEST).is_file()
    return SystemUnderTest(inputs, folder, observers if label == "a" else (), label, resume=resume and begun)


def _measure(a: SystemUnderTest, b: SystemUnderTest, seconds: float) -> tuple[float, int]:
    """Send each canary to both sides, one right after the other, in whole rounds until the time is over.

    It ends by the clock alone, never by what was measured, so each interval keeps its confidence. What was recorded
    before an interrupt counts, with its time.
    """
    before = [*a.select_measured(), *b.select_measured()]
    done = {
        side.label: {(generation.pair, generation.canary) for generation in side.select_measured()} for side in (a, b)
    }
    rounds = max([LEAST_ROUNDS, *(1 + int(generation.pair) for generation in before)])
    begun = time.monotonic() - soaked_seconds(before)
    for side in (a, b):
        _check_first_request(side)
    a.observe(EventKind.STAGE, {"stage": "versus", "settings": {a.workload: dict(a.setting)}, "seconds": seconds})
    number = 0
    while number < rounds or (time.monotonic() - begun) * (number + 1) / number <= seconds:
        order = random.Random(f"{a.seed}|{number}").sample(a.canaries, len(a.canaries))
        for position, canary in enumerate(order):
            for side in (a, b) if (position + number) % 2 == 0 else (b, a):
                if (str(number), canary.id) in done[side.label]:
                    continue
                generation = side.send(canary, str(number))
                answered = {"answered": number * len(order) + position + 1, "of": 0}
                a.observe(EventKind.ANSWER, {"generation": generation, **answered})
        number += 1
    return time.monotonic() - begun, number


def _check_first_request(side: SystemUnderTest) -> None:
    """Send a request that is not measured; raise StartError or UnresponsiveError where the side cannot answer it."""
    started = side.slo.subject.url is None
    hint = "its log is in --output, if you name one" if started else "look in its log, or name its model with --target"
    try:
        fault = side.send(side.canaries[0], "warmup", Role.WARMUP).answer.fault
    except StartError as error:
        message = f"{side.label.upper()} cannot be started: {error.cause}"
        raise StartError(message, cause=error.cause, hint=hint) from error
    if fault is not None:
        raise UnresponsiveError(f"{side.label.upper()}: its first request failed: {fault}", hint=hint)


def _compare(
    a: SystemUnderTest, b: SystemUnderTest, names: tuple[str, str], seconds: float, rounds: int, run: str | None
) -> VersusResult:
    """Return each metric of B over A, the two sides with what each shows alone, and their words."""
    a_answers, b_answers = a.select_measured(), b.select_measured()
    # Neither of two systems need decode plainly, so that the gaps of the one say nothing of the other's bursts.
    table = tabulate(*((of_side, burst_gap(of_side)) for of_side in (a_answers, b_answers)))
    answers = replace(a.pair(b_answers, a_answers), recorded=lambda: table)
    alone = [
        replace(answers, answers=counted_or_claimed(of_side)[0], plain=(), pairs=())
        for of_side in (a_answers, b_answers)
    ]
    doubts = [
        cache_doubt(label, side.select_measured(), uncached=side.backend.uncached)
        for label, side in zip("AB", (a, b), strict=True)
    ]
    lost = dict.fromkeys(("ttft_delta",), "; ".join(filter(None, doubts))) if any(doubts) else {}
    metrics = compare_metrics(answers, (alone[0], alone[1]), lost)
    words = compare_words(a.select_measured(), b.select_measured()) if answers.greedy else None
    if words is not None and words.canaries:
        equal_share = fact(1 - len(words.differences) / words.canaries, words.canaries).round_figures()
        metrics += (MetricComparison("token_agreement", equal_share, ""),)
    sides = [
        _compared_side(label, name, side, of_side, doubt)
        for label, name, side, of_side, doubt in zip("AB", names, (a, b), alone, doubts, strict=True)
    ]
    parts = differences(a.prepared.manifest, b.prepared.manifest)
    unlike = unequal_prompts(a.select_measured(), b.select_measured())
    return VersusResult(
        slo=a.slo.name, workload=a.workload, confidence=a.slo.confidence, a=sides[0], b=sides[1],
        differences=tuple(part for part in parts if part not in {"slo", "versions.url"}),
        metrics=metrics, words=words, warnings=(unlike,) if unlike else (), seconds=round(seconds, 1),
        rounds=rounds, run=run,
    )  # fmt: skip


def _compared_side(
    label: str, name: str, side: SystemUnderTest, answers: PairedAnswers, doubt: str | None
) -> ComparedSide:
    figures = {metric: estimate(metric, answers) for metric in ("decode_throughput", "ttft", "acceptance_rate")}
    figures["error_rate"] = estimate("error_rate", answers)
    if doubt is not None:
        figures["ttft"] = Missing(doubt)
    for rate in (PASS_RATES[metric] for metric in graded_metrics(answers)):
        figures[rate.figure] = pass_rate(answers, rate.kind) or Missing("no answer was checked for it")
    model = next(filter(None, (generation.answer.claims.model for generation in side.select_measured())), None)
    return ComparedSide(label, name, side.versions(), model, side.setting, figures, side.peak)
