"""Settings: their knobs, how their answers are sampled, how they are written, and those that a sweep tries."""

import math
import zlib
from collections.abc import Sequence
from itertools import product
from typing import Any

from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import SamplingParameters
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import CHOSEN, CONDITIONS, Slo, process_name

PLAIN: Setting = (("draft", None),)
"""Plain decoding, as verdict.json and policy.toml write it."""
SEEDS = 1 << 31
"""Servers read a seed as a signed number of 32 bits, where a negative one means none."""


def speculates(knobs: Setting) -> bool:
    """Return whether a setting uses a draft."""
    return dict(knobs).get("draft") is not None


def chosen_of(knobs: Setting) -> Setting:
    """Return the knobs the sweep chooses, without the conditions."""
    return tuple((knob, value) for knob, value in knobs if knob in CHOSEN)


def conditions_of(knobs: Setting) -> Setting:
    """Return the knobs that are swept in both arms and never chosen."""
    return tuple((knob, value) for knob, value in knobs if knob in CONDITIONS)


def plain_of(knobs: Setting) -> Setting:
    """Return plain decoding under the same conditions."""
    return setting(draft=None, **dict(conditions_of(knobs)))


def concurrency_of(slo: Slo, knobs: Setting) -> int:
    """Return how many requests of this setting are in flight at once in the sweep."""
    return int(dict(knobs).get("concurrency", slo.soak.concurrency))


def is_greedy(slo: Slo, knobs: Setting) -> bool:
    """Return whether answers at this setting are decoded at temperature 0."""
    return bool(dict(knobs).get("temperature", slo.sampling.temperature) == 0)


def process_of(knobs: Setting, restart_knobs: Sequence[str]) -> str:
    """Name the process that can answer a setting."""
    return process_name(dict(knobs), restart_knobs) if speculates(knobs) else "plain"


def sampling_for(slo: Slo, canary: Canary, knobs: Setting, concurrency: int, key: str = "") -> SamplingParameters:
    """Return how *canary* is sampled: the knob first, then the canary's own, then the SLO's.

    A seed is sent only above temperature 0 and at concurrency 1: otherwise it would change more than the sampling,
    because mlx_lm.server stops batching for requests with a seed. It follows from the *key* of the request: with one
    seed for all, a server repeats one answer to a canary in each arm, and two arms that draw alike look different.
    """
    values = dict(knobs)
    temperature = float(values.get("temperature", slo.sampling.temperature))
    return SamplingParameters(
        temperature=temperature,
        top_p=slo.sampling.top_p,
        top_k=slo.sampling.top_k,
        min_p=slo.sampling.min_p,
        seed=(slo.sampling.seed + zlib.crc32(key.encode())) % SEEDS if temperature > 0 and concurrency == 1 else None,
        max_tokens=int(values.get("max_tokens") or canary.max_tokens or slo.sampling.max_tokens),
        thinking=values.get("thinking", slo.sampling.thinking if canary.thinking is None else canary.thinking),
    )


def setting_document(knobs: Setting) -> dict[str, object]:
    """Return the chosen knobs of a setting as verdict.json writes them."""
    return {knob: value for knob, value in chosen_of(knobs) if value is not None} if speculates(knobs) else dict(PLAIN)


def defaults(slo: Slo) -> dict[str, Any]:
    """Return the default of every knob that this SLO sets or sweeps; the first swept value where it sets none.

    A condition that is swept has the value of [sampling] or [soak] as its default, where that is among the values.
    """
    base = {knob: value for knob, value in slo.sweep.default.model_dump().items() if value is not None}
    for knob, value in (("temperature", slo.sampling.temperature), ("concurrency", slo.soak.concurrency)):
        if value in slo.sweep.values(knob):
            base.setdefault(knob, value)
    for knob in (*CHOSEN, *CONDITIONS):
        if values := slo.sweep.values(knob):
            base.setdefault(knob, values[0])
    if slo.subject.drafts:
        base.setdefault("draft", slo.subject.drafts[0])
    return base


def with_conditions(slo: Slo, chosen: Setting) -> Setting:
    """Return a chosen setting with the conditions under which the sweep compared it, except for the concurrency."""
    base = defaults(slo)
    conditions = {knob: base[knob] for knob in CONDITIONS if knob in base and knob != "concurrency"}
    return setting(**{**conditions, **dict(chosen)})


def grid_size(slo: Slo) -> int:
    """Return how many combinations of swept values a grid has; 0 for a design that is none."""
    swept = [len(values) for knob in (*CHOSEN, *CONDITIONS) if (values := slo.sweep.values(knob))]
    return math.prod(swept) if slo.sweep.design == "grid" else 0


def candidate_settings(slo: Slo) -> list[tuple[str, str | None, Setting]]:
    """Return every speculating setting to sweep as (name, changed knob, setting), each once, the default first."""
    base = defaults(slo)
    if "draft" not in base:
        return []
    swept = [knob for knob in (*CHOSEN, *CONDITIONS) if slo.sweep.values(knob)]
    name_by_setting: dict[Setting, tuple[str, str | None]] = {setting(**base): ("default", None)}
    if slo.sweep.design == "grid":
        for values in product(*(slo.sweep.values(knob) for knob in swept)):
            combination = dict(zip(swept, values, strict=True))
            name = "_".join(f"{knob}-{_file_label(value)}" for knob, value in combination.items())
            name_by_setting.setdefault(setting(**{**base, **combination}), (name, "grid"))
    else:
        for knob in swept:
            for value in slo.sweep.values(knob):
                name_by_setting.setdefault(setting(**{**base, knob: value}), (f"{knob}-{_file_label(value)}", knob))
    settings: list[tuple[str, str | None, Setting]] = []
    taken: set[str] = set()
    for knobs, (name, changed) in name_by_setting.items():
        unique, number = name, 2
        while unique.casefold() in taken:  # two drafts of one name; file names on a Mac ignore letter case
            unique, number = f"{name}-{number}", number + 1
        taken.add(unique.casefold())
        settings.append((unique, changed, knobs))
    return settings


def _file_label(value: object) -> str:
    return "".join(char if char.isalnum() or char in ".-" else "-" for char in str(value).rsplit("/", 1)[-1])
