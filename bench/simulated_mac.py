"""A simulated Mac for rehearsals: a scripted subject with the rates of `bench/machines/NAME.toml`, and its host.

The rates give each workload its own speed-up (`natural`). To rehearse a known truth instead, the times of draft tokens
and verify passes are multiplied by one factor, so that the best swept setting decodes so many times as fast as plain
decoding, with an acceptance of ACCEPTANCE a token in every workload.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gatekeeper.analysis.metrics.answer_grading import grade
from gatekeeper.backends import open_backend
from gatekeeper.backends.scripted.expected_texts import text_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import UNITS_OF, parse

MACHINES = Path(__file__).parent / "machines"
ACCEPTANCE = 0.7
"""A token, where the truth is given: of two drafted tokens 0.6 are kept, and a gain of 1.3x leaves a round 42 ms."""
WRITTEN = 0.6
"""Of the tokens a canary allows, so many are written where its expectation does not set the answer: an assumption."""
CALM = {
    "memory_pressure_level": 1.0,
    "swapin_bytes": 0.0,
    "swapout_bytes": 0.0,
    "swap_used": 0.0,
    "thermal_level": 0.0,
    "gpu_active": 0.95,
    "gpu_frequency": 1.47e9,
}
"""What a host shows that has memory to spare and is cool, with a GPU that is busy at a steady frequency (as macmon)."""
FAULTS = ("none", "leak", "throttle", "squeeze", "tools", "blind")
Host = Callable[[float], Mapping[str, float]]
"""The values that a host shows, by the seconds since the first sample."""


def script_of(
    machine: str, slo: Slo, canaries: Mapping[str, Sequence[Canary]], truth: float | None, fault: str = "none"
) -> dict[str, Any]:
    """Return the script of the subject of *slo* on *machine*, whose best setting decodes *truth* times as fast."""
    written = tomllib.loads((MACHINES / f"{machine}.toml").read_text())
    rates: dict[str, Any] = written["rates"]
    backend = open_backend(slo.subject, models={}, base=Path(), logs=Path())
    rates["sight"] = [one.name.lower() for one in Sight if one.name and one in backend.sight]
    rates["shares_process"] = backend.shares_process
    by_name = rates["draft_token"]
    rates["draft_token"] = {draft: by_name[_bits(draft, by_name)] for draft in slo.subject.drafts}
    accepted = dict.fromkeys(canaries, ACCEPTANCE) if truth is not None else written["acceptance"]
    if truth is not None:
        factor = _best_ratio(slo, rates) / truth
        for name in ("verify", "draft_token"):
            rates[name] = {key: factor * _seconds(value) for key, value in rates[name].items()}
    rates["canaries"] = {f"{name}-": {"acceptance": chance} for name, chance in accepted.items()}
    rates["answers"] = {one.id: text for some in canaries.values() for one in some if (text := _at_length(one))}
    if fault == "leak":
        rates["memory"]["leak"] = "2 MB/s"
    if fault == "tools":
        rates["canaries"]["tools-"]["quality"] = {"plain": 1.0, "candidate": 0.9}
    return rates


def _bits(draft: str, names: Mapping[str, Any]) -> str:
    return next(name for name in names if draft.endswith(name))


def _seconds(written: str | float) -> float:
    return parse(written, UNITS_OF["s"]) if isinstance(written, str) else written


def _best_ratio(slo: Slo, rates: Mapping[str, Any]) -> float:
    """Return the decode ratio of the best combination of swept values, by the cost of its rounds."""
    token, verify = _seconds(rates["token"]), rates["verify"]
    ratios = []
    for draft in slo.subject.drafts:
        for length in slo.sweep.num_draft_tokens:
            if str(length) not in verify:
                message = f"the machine has no verify time at a draft length of {length}"
                raise InputError(message, hint="add it to [rates.verify], with its derivation")
            cost = _seconds(verify[str(length)]) + length * _seconds(rates["draft_token"][draft])
            ratios.append(sum(ACCEPTANCE**position for position in range(length + 1)) * token / cost)
    return max(ratios)


def _at_length(canary: Canary) -> str | None:
    """Return a right answer of the length that people get, where the shortest one would be no speed at all."""
    expect, most = canary.expect, canary.max_tokens or 0
    if expect is not None and (expect.kind == "tool" or expect.json_schema is not None):
        return None
    short = (text_for(canary) if expect is not None else None) or ""
    words = "".join(f" and step {number} of the plan" for number in range(most))[
        : round(4 * WRITTEN * most) - len(short)
    ]
    around = (f"{short}\n{words}", f"{words}\n{short}")
    return next((long for long in around if grade(canary, Answer(0, 1, text=long)) is not False), None)


def host_of(slo: Slo, fault: str = "none") -> Host:
    """Return what the host shows in the soak: calm; throttled for a minute; short of memory in its second half; blind.

    Half of its memory is free. A blind host has no reading of its GPU, so that nothing confirms its thermal sensors.
    """
    blind, memory = fault == "blind", 1e9 * (slo.host.memory_gb or 24)
    shown = {name: value for name, value in CALM.items() if not (blind and name.startswith("gpu_"))}

    def values(at: float) -> Mapping[str, float]:
        throttled = fault == "throttle" and 200 <= at < 260
        squeezed = fault == "squeeze" and at >= 300
        return shown | {"thermal_level": 2.0 * throttled, "memory_headroom": memory / (6 if squeezed else 2)}

    return values
