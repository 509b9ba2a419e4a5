"""A simulated Mac for rehearsals: a scripted subject with the rates of `bench/machines/NAME.toml`, and its host.

The rates give each workload its own speed-up (`natural`). To rehearse a known truth instead, the times of draft tokens
and verify passes are multiplied by one factor, so that the best swept setting decodes so many times as fast as plain
decoding, with an acceptance of ACCEPTANCE a token in every workload but random text: measured without noise, the mean
over these workloads.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from gatekeeper.analysis.metrics.answer_table import BURST_SHARE, tabulate
from gatekeeper.analysis.plan.settings import PLAIN, sampling_for
from gatekeeper.backends import open_backend
from gatekeeper.backends.scripted.expected_texts import text_for
from gatekeeper.backends.scripted.script import Script
from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError
from gatekeeper.core.interfaces import DecodeRequest
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Setting, setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import UNITS_OF, parse
from tests.builders.slo import generation

MACHINES = Path(__file__).parent / "machines"
ACCEPTANCE = 0.7
"""A token, where the truth is given: of two drafted tokens 0.6 are kept, and a gain of 1.3x leaves a round 42 ms.

A machine's file gives another one (`truth_acceptance`) where its SLO's bound on acceptance asks for it.
"""
WRITTEN = 0.6
"""Of the tokens a canary allows, so many are written where its expectation does not set the answer: an assumption."""
CALIBRATIONS = 3
"""Times of drafting are scaled so often by what is measured: three leave less than a thousandth."""
CALIBRATED = 24
"""Canaries of a workload that are measured for it."""
CALM = {
    "memory_pressure_level": 1.0,
    "swapin_bytes": 0.0,
    "swapout_bytes": 0.0,
    "swap_used": 0.0,
    "thermal_level": 0.0,
}
"""What a host shows that has memory to spare and is cool."""
IDLE_S = 5.0
"""Seconds before the first request, in which its GPU is idle."""
Host = Callable[[float], Mapping[str, float]]
"""The values that a host shows, by the seconds since the first sample."""


def script_of(
    machine: str,
    slo: Slo,
    canaries: Mapping[str, Sequence[Canary]],
    truth: float | None,
    fault: str = "none",
) -> dict[str, Any]:
    """Return the script of the subject of *slo* on *machine*, whose best setting decodes *truth* times as fast."""
    written = tomllib.loads((MACHINES / f"{machine}.toml").read_text())
    rates: dict[str, Any] = written["rates"]
    folders = {name: Path(name) for name in (slo.subject.target, *slo.subject.drafts)}
    backend = open_backend(slo.subject, models=folders, base=Path(), logs=Path())
    rates["sight"] = [one.name.lower() for one in Sight if one.name and one in backend.sight]
    rates["shares_process"] = backend.shares_process
    by_name = rates["draft_token"]
    if isinstance(by_name, dict):
        rates["draft_token"] = {draft: by_name[_ending(draft, by_name)] for draft in slo.subject.drafts}
    accepted, chance = written["acceptance"], written.get("truth_acceptance", ACCEPTANCE)
    if truth is not None:  # random text stays as hard to predict as it is
        accepted = dict.fromkeys(canaries, chance) | {"random": accepted.get("random", chance)}
    rates["canaries"] = {_prefix(canaries[name]): {"acceptance": accepted[name]} for name in canaries}
    rates["answers"] = {one.id: text for some in canaries.values() for one in some if (text := _at_length(one))}
    if truth is not None:
        _scale(rates, _best_ratio(slo, rates, chance) / truth)
        predictable = {name: some for name, some in canaries.items() if name != "random"}
        for _ in range(CALIBRATIONS):
            _scale(rates, _measured_ratio(slo, rates, predictable) / truth)
    if fault == "leak":
        rates["memory"]["leak"] = "1 MB/s"
    if fault == "wired":
        rates["cold"]["pause"] = "0 s"
    if fault == "unstable":
        rates["modes"] = [{"share": 0.4, "slower": 6.0, "arm": "plain"}]
    if fault == "tools":
        rates["canaries"]["tools-"]["quality"] = {"plain": 1.0, "candidate": 0.9}
    return rates


def _ending(draft: str, names: Mapping[str, Any]) -> str:
    return next(name for name in names if draft.endswith(name))


def _prefix(some: Sequence[Canary]) -> str:
    """Return what the ids of a workload's canaries begin with."""
    return some[0].id.rpartition("-")[0] + "-"


def _seconds(written: str | float) -> float:
    return parse(written, UNITS_OF["s"]) if isinstance(written, str) else written


def _scale(rates: dict[str, Any], factor: float) -> None:
    """Multiply what a draft costs by *factor*."""
    for name in ("verify", "draft_token"):
        if isinstance(rates[name], dict):
            rates[name] = {key: factor * _seconds(value) for key, value in rates[name].items()}


def _swept(slo: Slo, rates: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield each draft with each fixed draft length that is swept, or with the machine's own."""
    lengths = slo.sweep.num_draft_tokens or slo.sweep.block_size or (rates["num_draft_tokens"],)
    for draft in slo.subject.drafts:
        for length in (one for one in lengths if isinstance(one, int)):
            if str(length) not in rates["verify"]:
                message = f"the machine has no verify time at a draft length of {length}"
                raise InputError(message, hint="add it to [rates.verify], with its derivation")
            yield draft, length


def _best_ratio(slo: Slo, rates: Mapping[str, Any], chance: float) -> float:
    """Return the decode ratio of the best combination of swept values, by the cost of whole rounds without end."""
    token, costs = _seconds(rates["token"]), rates["draft_token"]
    ratios = []
    for draft, length in _swept(slo, rates):
        drafting = _seconds(costs[draft]) if isinstance(costs, dict) else costs
        cost = _seconds(rates["verify"][str(length)]) + length * drafting
        ratios.append(sum(chance**position for position in range(length + 1)) * token / cost)
    return max(ratios)


def _measured_ratio(slo: Slo, rates: Mapping[str, Any], canaries: Mapping[str, Sequence[Canary]]) -> float:
    """Return the same as it is measured, without noise and faults: answers end within a round, some after a few.

    The geometric mean over the canaries of a workload, and over workloads.
    """
    script = Script.model_validate({**rates, "noise": {}, "modes": (), "drift": (), "cold": {}})
    backend = ScriptedBackend(script)
    resident = {draft: backend.start(setting(draft=draft)) for draft in slo.subject.drafts}
    knob = "block_size" if slo.sweep.block_size and not slo.sweep.num_draft_tokens else "num_draft_tokens"

    burst_gap = BURST_SHARE * _seconds(rates["token"])

    def rate(canary: Canary, draft: str, knobs: Setting) -> float | None:
        request = DecodeRequest(canary, knobs, sampling_for(slo, canary, knobs, 1))
        answer = resident[draft].answer(request)
        return tabulate(([generation(answer)], burst_gap)).read("decode_rate")(answer)

    plain_rates = {
        id(one): rate(one, slo.subject.drafts[0], PLAIN) for some in canaries.values() for one in some[:CALIBRATED]
    }

    def log_ratios(some: Sequence[Canary], draft: str, drafting: Setting) -> Iterator[float]:
        for canary in some:
            speculative, plain = rate(canary, draft, drafting), plain_rates[id(canary)]
            if speculative and plain:  # an answer of one token has none
                yield math.log(speculative / plain)

    ratios = []
    for draft, length in _swept(slo, rates):
        drafting = setting(draft=draft, **{knob: length})
        logs = [fmean(log_ratios(some[:CALIBRATED], draft, drafting)) for some in canaries.values()]
        ratios.append(math.exp(fmean(logs)))
    return max(ratios)


def _at_length(canary: Canary) -> str | None:
    """Return a right answer of the length that people get, where the shortest one would be no speed at all."""
    expect, most = canary.expect, canary.max_tokens or 0
    if expect is not None and (expect.kind == "tool" or expect.json_schema is not None):
        return None
    short = _right(canary) if expect is not None else ""
    words = "".join(f" and step {number} of the plan" for number in range(most))[
        : round(4 * WRITTEN * most) - len(short)
    ]
    around = (f"{short}\n{words}", f"{words}\n{short}")
    return next((long for long in around if canary.grade(Answer(0, 1, text=long)) is not False), short)


def _right(canary: Canary) -> str:
    """Return a short right answer: as the expectation says, or a guess from its pattern; else a wrong one."""
    try:
        return text_for(canary) or ""
    except InputError:
        return next((text for text in _guesses(canary) if canary.grade(Answer(0, 1, text=text))), "I do not know.")


def _guesses(canary: Canary) -> Iterator[str]:
    """Yield texts with the numbers and the words of a pattern, and numbered lists."""
    pattern = (canary.expect and canary.expect.regex) or ""
    numbers = re.findall(r"\d+", pattern)
    joined = (f"{one}{mark}{other}" for one, other in pairwise(numbers) for mark in ("", "."))
    yield from (f"The answer is {number}." for number in (*numbers, *joined))
    yield from ("\n".join(f"{number}. a line" for number in range(1, count)) for count in range(2, 25))
    yield from re.findall(r"[A-Za-z]{3,}", pattern)


def host_of(slo: Slo, fault: str = "none") -> Host:
    """Return what the host shows in the soak: calm; throttled for a minute; short of memory in its second half; blind.

    Half of its memory is free. A blind host has no reading of its GPU, so that nothing confirms its thermal sensors.
    """
    blind, memory = fault == "blind", 1e9 * (slo.host.memory_gb or 24)

    def values(at: float) -> Mapping[str, float]:
        throttled = fault == "throttle" and 30 <= at < 90  # before a plain block, in which no host is judged
        squeezed = fault == "squeeze" and at >= 300
        return (
            CALM
            | ({} if blind else _gpu(at))
            | {"thermal_level": 2.0 * throttled, "memory_headroom": memory / (6 if squeezed else 2)}
        )

    return values


def _gpu(at: float) -> dict[str, float]:
    """Return what macmon shows of a GPU that is busy from IDLE_S on, at a steady frequency and almost steady power."""
    if at < IDLE_S:
        return {"gpu_active": 0.0, "gpu_frequency": 0.0, "gpu_power": 0.02}
    return {"gpu_active": 0.95, "gpu_frequency": 1.47e9, "gpu_power": 9.0 + 0.05 * (round(at) % 7)}
