"""`gatekeeper versus`: two environments, drafts, programs or servers in one run, their requests interleaved."""

import json
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.metrics.readers import PAIR_RATIOS
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.analysis.stats import run_to_run
from gatekeeper.analysis.verdict.against_certified import values
from gatekeeper.analysis.verdict.case import soaked_seconds
from gatekeeper.core.errors import InputError, StartError, UnresponsiveError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import differences
from gatekeeper.core.metrics import BY_NAME, RUN_TO_RUN
from gatekeeper.core.records import Role
from gatekeeper.core.subject import Address
from gatekeeper.core.system import inputs
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.run_directory import MANIFEST
from gatekeeper.core.verdict import Estimate, Missing, figures
from gatekeeper.regression.package_environments import MADE, PackageEnvironment
from gatekeeper.regression.version_probe import VersionUnderTest, one_workload, paired_answers
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
) -> dict[str, Any]:
    """Send the canaries of one workload to both *sides* in turns for *seconds*; return B over A.

    *resume* continues the interrupted comparison in *out*.
    """
    given = [_side(side, slo_path, workload) for side in sides]
    (first, name), (second, other) = given
    if [one.model_dump() for one in first.canaries[name]] != [one.model_dump() for one in second.canaries[other]]:
        raise InputError("the two SLO files have other canaries", hint="compare two systems on the same canaries")
    if first.slo.sampling != second.slo.sampling:
        raise InputError("the two SLO files have other [sampling]", hint="compare two systems at the same sampling")
    with ExitStack() as stack:
        path = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gatekeeper-")))
        if (path / DOCUMENT).exists():
            raise InputError(f"{path} holds a finished comparison", hint="choose another --output")
        _check_begun(path, resume=resume, named=out is not None)
        stack.enter_context(hold_host(first, path))
        stack.enter_context(host.keep_awake())
        made = [
            stack.enter_context(_begun(one, path / label, observers, label, resume=resume))
            for label, (one, _) in zip("ab", given, strict=True)
        ]
        a, b = made
        took, rounds = _measure(a, b, first, name, seconds)
        document = _document(a, b, first, name, sides) | {"seconds": round(took, 1), "rounds": rounds}
        document["run"] = str(out) if out is not None else None
        (path / DOCUMENT).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return document


def _check_begun(path: Path, *, resume: bool, named: bool) -> None:
    if resume and not named:
        raise InputError("--resume needs --output DIR", hint="name the folder of the comparison to continue")
    begun = (path / "a" / MANIFEST).is_file()
    if resume and not begun:
        raise InputError(f"{path} has no comparison to resume", hint="remove --resume to start a new one")
    if begun and not resume:
        raise InputError(
            f"{path} holds an interrupted comparison", hint="continue it with --resume, or choose another --output"
        )


def _begun(given: Inputs, folder: Path, observers: Sequence[Observer], label: str, *, resume: bool) -> VersionUnderTest:
    """Open one side; where a resumed comparison never came to it, from its beginning."""
    resume = resume and (folder / MANIFEST).is_file()
    return VersionUnderTest(given, folder, observers if label == "a" else (), label, resume=resume)


def _side(side: str, slo_path: Path | None, workload: str | None) -> tuple[Inputs, str]:
    """Return the inputs of one side: an SLO file, or the SLO with another environment, draft, program or server."""
    if side.endswith(".toml"):
        return one_workload(inputs.read(Path(side)), workload, most=None)
    if slo_path is None:
        raise InputError(f"'{side}' is no SLO file", hint="name the SLO of both sides with --slo SLO.toml")
    given, name = one_workload(inputs.read(slo_path), workload, most=None)
    subject, path = given.slo.subject, Path(side).expanduser().absolute()
    sweep = given.slo.sweep
    if side in subject.drafts:
        subject = subject.model_copy(update={"drafts": (side,)})
        sweep = sweep.model_copy(update={"default": sweep.default.model_copy(update={"draft": side})})
    elif "://" in side:
        none = {"command": None, "program": None, "plain_command": None, "plain_url": None}
        subject = subject.model_copy(update={"url": Address(side), **none})
    elif (path / "bin" / "python").exists() or (path / MADE).exists():
        subject = PackageEnvironment(path).subject(subject)
    elif path.is_file():
        key, rest = ("program", ()) if subject.command is None else ("command", subject.command[1:])
        subject = subject.model_copy(update={key: (str(path), *rest)})
    else:
        raise InputError(
            f"'{side}' is no SLO file, environment, program or address, and no draft of the SLO",
            hint="for example a folder made by python -m venv, http://127.0.0.1:8080, or one of subject.drafts",
        )
    return replace(given, slo=given.slo.model_copy(update={"subject": subject, "sweep": sweep})), name


def _measure(a: VersionUnderTest, b: VersionUnderTest, given: Inputs, name: str, seconds: float) -> tuple[float, int]:
    """Send each canary to both sides, one right after the other, in whole rounds until the time is over.

    It ends by the clock alone, never by what was measured, so each interval keeps its confidence. What was recorded
    before an interrupt counts, with its time.
    """
    canaries, number = given.canaries[name], 0
    before = [one for side in (a, b) for one in side.answers if one.role is Role.MEASURED]
    done = [{(one.pair, one.canary) for one in side.answers if one.role is Role.MEASURED} for side in (a, b)]
    rounds = max([LEAST_ROUNDS, *(1 + int(one.pair) for one in before)])
    begun = time.monotonic() - soaked_seconds(before)
    arm = "candidate" if dict(a.setting).get("draft") is not None else "plain"
    for side in (a, b):
        try:
            fault = side.send(arm, name, canaries[0], "warmup", Role.WARMUP).answer.fault
        except StartError as error:
            message = f"{side.name.upper()} cannot be started: {error.cause}"
            raise StartError(message, cause=error.cause, hint="its log is in --output, if you name one") from error
        if fault is not None:
            message = f"{side.name.upper()}: its first request failed: {fault}"
            raise UnresponsiveError(message, hint="its log is in --output, if you name one")
    a.observe("stage", {"stage": "versus", "settings": {name: dict(a.setting)}, "seconds": seconds})
    while number < rounds or (time.monotonic() - begun) * (number + 1) / number <= seconds:
        order = random.Random(f"{a.seed}|{number}").sample(canaries, len(canaries))
        for at, canary in enumerate(order):
            turns = ((a, done[0]), (b, done[1]))
            for side, known in turns if (at + number) % 2 == 0 else turns[::-1]:
                if (str(number), canary.id) in known:
                    continue
                made = side.send(arm, name, canary, str(number))
                answered = {"answered": number * len(canaries) + at + 1, "of": 0}
                a.observe("answer", {"generation": made, **answered})
        number += 1
    return time.monotonic() - begun, number


def _document(
    a: VersionUnderTest, b: VersionUnderTest, given: Inputs, name: str, sides: tuple[str, str]
) -> dict[str, Any]:
    canaries = given.canaries[name]
    mine, other = (tuple(one for one in side.answers if one.role is Role.MEASURED) for side in (b, a))
    both = pair_answers(paired_answers(given.slo, name, canaries, mine, other, a.seed, a.setting))
    rows = [_row(metric, estimate(metric, both), metric) for metric in PAIR_RATIOS]
    alone = [replace(both, answers=counted_or_claimed(many)[0], plain=(), pairs=()) for many in (other, mine)]
    rows += [
        _row(metric, _counted(metric, alone, len(canaries)), metric)
        for metric in RUN_TO_RUN
        if BY_NAME[metric].from_rounds
    ]
    if both.greedy:
        rows.append(_row("token_agreement", estimate("token_agreement", both), "token_agreement") | {"says": ""})
    shown = []
    for label, text, side, seen in zip("AB", sides, (a, b), alone, strict=True):
        speed = {
            one: figures("center", estimate(one, seen)) for one in ("decode_throughput", "ttft", "acceptance_rate")
        }
        shown.append(
            {
                "side": label,
                "name": text,
                "versions": dict(side.versions()),
                "setting": setting_document(side.setting),
                "measured": speed,
                "memory_peak": side.peak,
            }
        )
    differing = differences(a.prepared.manifest, b.prepared.manifest)
    return {
        "schema": 1,
        "slo": given.slo.name,
        "workload": name,
        "confidence": given.slo.confidence,
        "a": shown[0],
        "b": shown[1],
        "differences": [one for one in differing if one != "slo"],
        "metrics": rows,
    }


def _counted(metric: str, alone: Sequence[PairedAnswers], size: int) -> Estimate | Missing:
    then, now = (values(metric, one) for one in alone)
    if isinstance(then, Missing) or isinstance(now, Missing):
        return then if isinstance(then, Missing) else Missing("no answer of B has a value for it")
    return run_to_run.ratio(now, then, alone[0].level, size, logs=False)


def _row(name: str, seen: Estimate | Missing, metric: str) -> dict[str, Any]:
    """Return one metric of B over A: better or worse where its interval says so."""
    row = {"metric": name, **figures("center", seen)}
    if isinstance(seen, Missing):
        return row | {"says": "not measured"}
    unchanged, higher = 0.0 if BY_NAME[metric].relative else 1.0, BY_NAME[metric].higher_is_better
    says = run_to_run.better_or_worse(row["lo"], row["hi"], unchanged=unchanged, higher_is_better=higher)
    return row | {"says": says}
