"""`gatekeeper versus`: two environments, drafts, programs or servers in one run, their requests interleaved."""

import json
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import tomli_w

from gatekeeper import host
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.shares.pass_rates import pass_rate
from gatekeeper.analysis.verdict.soak_time import soaked_seconds
from gatekeeper.backends.dialects.openai import AS_SERVED, DIALECT
from gatekeeper.core.errors import InputError, StartError, UnresponsiveError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import differences
from gatekeeper.core.metrics import PASS_RATES
from gatekeeper.core.records import Role, setting
from gatekeeper.core.system.inputs import Inputs, find_canaries, read_text
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.system.run_directory import MANIFEST
from gatekeeper.core.verdict import Missing, fact
from gatekeeper.regression.answer_comparison import cache_doubt, compare_words, unequal_prompts, with_own_bursts
from gatekeeper.regression.metric_comparison import compare_metrics, graded_metrics
from gatekeeper.regression.package_environments import MADE, started_from
from gatekeeper.regression.version_under_test import VersionUnderTest, with_one_workload
from gatekeeper.regression.versus_result import ComparedSide, MetricComparison, VersusResult
from gatekeeper.run.prepare import hold_host
from gatekeeper.run.start.try_slo import CANARIES, MOST_CANARIES

DOCUMENT = "versus.json"
UNNAMED = "default_model"
"""The model in requests to a server that does not list a single one: so mlx_lm.server calls the one it loaded."""
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
            slo_path = _slo_of_servers(folder, canaries or CANARIES, target)
        elif canaries or target is not None:
            hint = "remove them: the SLO names its canaries and its target"
            raise InputError("--canaries and --target are for two addresses without an SLO", hint=hint)
        first, second = (_inputs_of(side, slo_path, workload) for side in sides)
        _check_alike(first, second)
        path = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gatekeeper-")))
        if (path / DOCUMENT).exists():
            raise InputError(f"{path} holds a finished comparison", hint="choose another --output")
        _check_begun(path, resume=resume, is_output_named=out is not None)
        stack.enter_context(hold_host(first, path))
        stack.enter_context(host.keep_awake())
        a = stack.enter_context(_open_side(first, path / "a", observers, "a", resume=resume))
        b = stack.enter_context(_open_side(second, path / "b", observers, "b", resume=resume))
        elapsed, rounds = _measure(a, b, seconds)
        result = _compare(a, b, sides, elapsed, rounds, str(out) if out is not None else None)
        text = json.dumps(result.document(), indent=1, ensure_ascii=False) + "\n"
        (path / DOCUMENT).write_text(text, encoding="utf-8")
        return result


def _slo_of_servers(folder: Path, names: Sequence[str], target: str | None) -> Path:
    """Write the SLO of two running servers: greedy, on the first canaries of each of the files."""
    files = [find_canaries(name, Path()) for name in names]
    texts = (read_text(file, "canary file").splitlines() for file in files)
    most = MOST_CANARIES // len(files) or 1
    prompts = [line for lines in texts for line in [line for line in lines if line.strip()][:most]]
    (folder / "canaries.jsonl").write_text("\n".join(prompts), encoding="utf-8")
    served = {} if target is None else {"served_model_name": target}
    slo = {
        "schema": 1,
        "name": "servers",
        "subject": {"backend": DIALECT.name, "target": target or UNNAMED, "url": "http://localhost", **served},
        "workload": [{"name": "-".join(file.stem for file in files), "canaries": "canaries.jsonl"}],
        "objective": [{"metric": "error_rate", "at_most": 0.0, "why": "no answer may fail"}],
    }
    path = folder / "servers.toml"
    path.write_text(tomli_w.dumps(slo), encoding="utf-8")
    return path


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
    side = VersionUnderTest(inputs, folder, observers if label == "a" else (), label, resume=resume)
    if dict(side.setting)["draft"] == AS_SERVED:  # how long its drafts are is its own matter
        side.setting = setting(draft=AS_SERVED)
    return side


def _inputs_of(side: str, slo_path: Path | None, workload: str | None) -> Inputs:
    """Return the inputs of one side: an SLO file, or the SLO with another environment, draft, program or server."""
    if side.endswith(".toml"):
        return with_one_workload(read_inputs(Path(side)), workload, most=None)
    if slo_path is None:
        raise InputError(
            f"'{side}' is no SLO file", hint="name the SLO of both sides with --slo SLO.toml; two addresses need none"
        )
    inputs = with_one_workload(read_inputs(slo_path), workload, most=None)
    subject, path = inputs.slo.subject, Path(side).expanduser().absolute()
    sweep = inputs.slo.sweep
    if side in subject.drafts:
        subject = subject.model_copy(update={"drafts": (side,)})
        sweep = sweep.model_copy(update={"default": sweep.default.model_copy(update={"draft": side})})
    elif "://" in side:
        not_started = {"command": None, "program": None, "plain_command": None, "plain_url": None}
        drafts = subject.drafts or ((AS_SERVED,) if subject.backend == DIALECT.name else ())
        subject = subject.model_copy(update={"url": Address(side), "drafts": drafts, **not_started})
    elif (path / "bin" / "python").exists() or (path / MADE).exists():
        subject = started_from(path, subject)
    elif path.is_file():
        key, rest = ("program", ()) if subject.command is None else ("command", subject.command[1:])
        subject = subject.model_copy(update={key: (str(path), *rest)})
    else:
        message = f"'{side}' is no SLO file, environment, program or address, and no draft of the SLO"
        listed = "".join(f", or its draft {draft}" for draft in subject.drafts)
        hint = f"for example a folder made by python -m venv, or http://127.0.0.1:8080{listed}"
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
    for side in (a, b):
        _check_first_request(side)
    a.observe("stage", {"stage": "versus", "settings": {a.workload: dict(a.setting)}, "seconds": seconds})
    number = 0
    while number < rounds or (time.monotonic() - begun) * (number + 1) / number <= seconds:
        order = random.Random(f"{a.seed}|{number}").sample(a.canaries, len(a.canaries))
        for position, canary in enumerate(order):
            for side in (a, b) if (position + number) % 2 == 0 else (b, a):
                if (str(number), canary.id) in done[side.name]:
                    continue
                generation = side.send(side.arm, canary, str(number))
                answered = {"answered": number * len(order) + position + 1, "of": 0}
                a.observe("answer", {"generation": generation, **answered})
        number += 1
    return time.monotonic() - begun, number


def _check_first_request(side: VersionUnderTest) -> None:
    """Send a request that is not measured; raise StartError or UnresponsiveError where the side cannot answer it."""
    started = side.slo.subject.url is None
    hint = "its log is in --output, if you name one" if started else "look in its log, or name its model with --target"
    try:
        fault = side.send(side.arm, side.canaries[0], "warmup", Role.WARMUP).answer.fault
    except StartError as error:
        message = f"{side.name.upper()} cannot be started: {error.cause}"
        raise StartError(message, cause=error.cause, hint=hint) from error
    if fault is not None:
        raise UnresponsiveError(f"{side.name.upper()}: its first request failed: {fault}", hint=hint)


def _compare(
    a: VersionUnderTest, b: VersionUnderTest, names: tuple[str, str], seconds: float, rounds: int, run: str | None
) -> VersusResult:
    """Return each metric of B over A, the two sides with what each shows alone, and their words."""
    a_answers, b_answers = (with_own_bursts(side.measured()) for side in (a, b))
    answers = replace(a.paired(b_answers, a_answers), bursts_marked=True)
    alone = [
        replace(answers, answers=counted_or_claimed(of_side)[0], plain=(), pairs=())
        for of_side in (a_answers, b_answers)
    ]
    doubts = [
        cache_doubt(label, side.measured(), uncached=side.backend.uncached)
        for label, side in zip("AB", (a, b), strict=True)
    ]
    lost = dict.fromkeys(("ttft_delta",), "; ".join(filter(None, doubts))) if any(doubts) else {}
    metrics = compare_metrics(answers, (alone[0], alone[1]), lost)
    words = compare_words(a.measured(), b.measured()) if answers.greedy else None
    if words is not None and words.canaries:
        same = fact(1 - len(words.differences) / words.canaries, words.canaries).rounded()
        metrics += (MetricComparison("token_agreement", same, ""),)
    sides = [
        _compared_side(label, name, side, of_side, doubt)
        for label, name, side, of_side, doubt in zip("AB", names, (a, b), alone, doubts, strict=True)
    ]
    parts = differences(a.prepared.manifest, b.prepared.manifest)
    unlike = unequal_prompts(a.measured(), b.measured())
    return VersusResult(
        slo=a.slo.name, workload=a.workload, confidence=a.slo.confidence, a=sides[0], b=sides[1],
        differences=tuple(part for part in parts if part not in {"slo", "versions.url"}),
        metrics=metrics, words=words, warnings=(unlike,) if unlike else (), seconds=round(seconds, 1),
        rounds=rounds, run=run,
    )  # fmt: skip


def _compared_side(
    label: str, name: str, side: VersionUnderTest, answers: PairedAnswers, doubt: str | None
) -> ComparedSide:
    figures = {metric: estimate(metric, answers) for metric in ("decode_throughput", "ttft", "acceptance_rate")}
    figures["error_rate"] = estimate("error_rate", answers)
    if doubt is not None:
        figures["ttft"] = Missing(doubt)
    for rate in (PASS_RATES[metric] for metric in graded_metrics(answers)):
        figures[rate.figure] = pass_rate(answers, rate.kind) or Missing("no answer was checked for it")
    model = next(filter(None, (generation.answer.claims.model for generation in side.measured())), None)
    return ComparedSide(label, name, side.versions(), model, side.setting, figures, side.peak)
