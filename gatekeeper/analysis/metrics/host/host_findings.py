"""Findings about the host, from its samples and its state before and after a soak."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby, pairwise
from typing import Any

from gatekeeper.analysis.metrics.host.host_estimates import (
    HEADROOM_WINDOW,
    SWAPPED,
    under_pressure,
)
from gatekeeper.analysis.metrics.host.host_series import Floats, HostSamples, decrease, medians, sum_changes
from gatekeeper.analysis.metrics.host.host_throttling import LEAST_SHARE, contradictions, throttled_from
from gatekeeper.analysis.stats.slopes import slope
from gatekeeper.core.judgement import Estimate, Finding, FindingKind
from gatekeeper.core.parse import ParseError, moment
from gatekeeper.core.units import percent, show, show_interval

COUNTERS = ("swapin_bytes", "swapout_bytes", "throttle_total", "throttle_events", "gpu_resets", "oom_kills")
"""Values that only grow while the host runs."""
GROWING = {
    "memory_uncompressed_demand": "the memory that programs need",
    "subject_footprint": "the memory of the system under test",
}
"""What may use up the free memory, in words."""
BUSY_CORES = 0.25
"""Cores that background jobs of the system may use on average before they are reported."""
Conditions = Sequence[Mapping[str, Any]]
"""The host's facts before and after the soak, as `gatekeeper.host.facts` gives them."""
SLEEP_GAP = 2.0
"""Seconds by which the time of day may differ from the monotonic clock between two samples; more means sleep."""
REBOOT_SHIFT = 60.0
"""Seconds by which the boot time may change without a restart: the system derives it from the time of day."""


def findings(
    host: HostSamples, *, level: float, conditions: Conditions = (), horizon: float = math.inf
) -> list[Finding]:
    """Return the findings; which kinds make a soak unproven says analysis/verdict/host_checks.py.

    Memory growth is reported only if it would use up the headroom within *horizon* seconds.
    """
    problems = (
        *_machine(conditions),
        *slept(host),
        *_power_supply(host, conditions),
        *_counters(host),
        *_contradictions(host),
        *_background_jobs(host, conditions),
        *_memory_forecast(host, level, horizon),
    )
    return list(dict.fromkeys(problems))


def is_virtual_mac(facts: Mapping[str, Any]) -> bool:
    """Tell from the *facts* of a host whether it is a virtual Mac, which certifies nothing."""
    mac = facts.get("platform") == "macos"
    return str(facts.get("machine") or "").startswith("VirtualMac") or bool(mac and facts.get("virtual"))


def _machine(conditions: Conditions) -> Iterator[Finding]:
    for facts in conditions:
        if is_virtual_mac(facts):
            detail = "this is a virtual Mac, whose sensors do not show a real machine"
            yield Finding(FindingKind.VIRTUAL_MAC, "host", detail, "certify on the physical machine")
        elif facts.get("virtual"):
            detail = "this is a virtual machine: other guests share its processor, and sensors are missing"
            yield Finding(FindingKind.VIRTUAL_MACHINE, "host", detail)
        if facts.get("translated"):
            detail = "gatekeeper runs under Rosetta, which reports wrong page sizes and speeds"
            yield Finding(FindingKind.TRANSLATED, "host", detail, "install a native Python")
    if any(detect_restart(before, after) for before, after in pairwise(conditions)):
        detail = "the host was restarted or updated during the soak"
        yield Finding(FindingKind.HOST_RESTARTED, "host", detail, "run the soak again")


def _texts(host: HostSamples, conditions: Conditions, name: str) -> list[str]:
    """Return the successive values of a text before, during and after the soak, without unknowns and repeats."""
    texts = [
        str(value)
        for value in (
            *(facts.get(name) for facts in conditions[:1]),
            *_sampled_texts(host, name),
            *(facts.get(name) for facts in conditions[1:][-1:]),
        )
        if value is not None
    ]
    return [value for place, value in enumerate(texts) if place == 0 or texts[place - 1] != value]


def _sampled_texts(host: HostSamples, name: str) -> Iterator[Any]:
    """Yield a text as it was sampled, once for successive samples of one layout, which hold the same text."""
    columns, layouts, starts = host.columns, host.columns.layout, host.columns.start
    order = [place for part in host.segments().values() for place in part.tolist()]
    for layout, places in groupby(order, key=layouts.__getitem__):
        slot = columns.layouts[layout].get(name)
        if slot is not None and slot.status == "ok":
            if slot.number is None:
                yield slot.constant
            else:
                yield from (columns.numbers[starts[at] + slot.number] for at in places)


def _power_supply(host: HostSamples, conditions: Conditions) -> Iterator[Finding]:
    supplies = _texts(host, conditions, "power_source")
    if "battery" in supplies and "ac" in supplies:
        detail = f"the power source changed: {', then '.join(supplies)}"
        yield Finding(FindingKind.POWER_LOST, "host", detail, "connect the charger, then run the soak again")
    elif "battery" in supplies:
        yield Finding(
            FindingKind.ON_BATTERY, "host", "the host ran on battery", 'connect the charger, or set power = "any"'
        )
    modes = _texts(host, conditions, "power_mode")
    if len(modes) > 1:
        detail = f"the power mode changed: {', then '.join(modes)}"
        yield Finding(FindingKind.POWER_MODE_CHANGED, "host", detail, "keep one power mode and run the soak again")
    if "low" in modes or "low-power" in modes:
        yield Finding(
            FindingKind.LOW_POWER_MODE, "host", "low-power mode was on, so the speeds apply to that mode only"
        )


def _counters(host: HostSamples) -> Iterator[Finding]:
    rose = {}
    for name in COUNTERS:
        counter = host.series(name)
        if fell := decrease(counter):
            yield Finding(FindingKind.COUNTER_BACKWARDS, name, f"{name} {fell}", "run the soak again")
        rose[name] = 0.0 if fell else sum_changes(counter)
    for name in SWAPPED:
        pressed = under_pressure(name, host)
        rose[name] = pressed.center if isinstance(pressed, Estimate) else rose[name]
    if rose["swapout_bytes"] > 0:
        detail = f"{show(rose['swapout_bytes'], 'B')} were written to swap: memory ran out"
        yield Finding(FindingKind.SWAPPED_OUT, "swapout_bytes", detail, "use a smaller model, or close other apps")
    elif rose["swapin_bytes"] > 0:
        detail = f"{show(rose['swapin_bytes'], 'B')} were read from swap, and none written: a weak sign of low memory"
        yield Finding(FindingKind.SWAPPED_IN, "swapin_bytes", detail)
    if rose["gpu_resets"] > 0:
        yield Finding(FindingKind.GPU_RESET, "gpu_resets", f"the GPU was reset {rose['gpu_resets']:.0f} times")
    if rose["oom_kills"] > 0:
        yield Finding(
            FindingKind.OOM_KILL, "oom_kills", f"{rose['oom_kills']:.0f} processes were killed for lack of memory"
        )


def _contradictions(host: HostSamples) -> Iterator[Finding]:
    levels = host.numbers("thermal_level")
    throttled = throttled_from(fanless=host.fanless)
    if levels and max(levels) < throttled and (against := contradictions(host)):
        detail = f"the thermal sensors report no throttling, but {'; '.join(against)}"
        advice = f"cool the host; a busy GPU should keep {percent(LEAST_SHARE['gpu_frequency'])} of its frequency"
        yield Finding(FindingKind.THERMAL_CONTRADICTION, "throttle_time", detail, advice)
    for kind, which, count in (
        (FindingKind.THERMALLY_DEGRADED, "1", sum(level == 1.0 < throttled for level in levels)),
        (FindingKind.THERMALLY_THROTTLED, f"{throttled:g} or more", sum(level >= throttled for level in levels)),
    ):
        if count:
            detail = f"the thermal level was {which} in {count} of {len(levels)} samples"
            yield Finding(kind, "throttle_time", detail)


def _background_jobs(host: HostSamples, conditions: Conditions) -> Iterator[Finding]:
    cores = host.numbers("background_cpu")
    if cores and sum(cores) / len(cores) > BUSY_CORES:
        names = sorted({name for facts in conditions for name in (facts.get("heavy_processes") or {})})
        examples = f": {', '.join(names)}" if names else ""
        detail = f"background jobs of the system used {sum(cores) / len(cores):.2g} cores{examples}"
        advice = "wait until Spotlight, photo analysis and Time Machine have finished"
        yield Finding(FindingKind.BACKGROUND_BUSY, "background_cpu", detail, advice)


def _still_grows(at: Floats, values: Floats, level: float) -> bool:
    """Return whether the growth is proven in the second half alone: one step, then flat, is no leak."""
    half = at >= (at[0] + at[-1]) / 2
    growth = slope(at[half], values[half], level=level)
    return growth is not None and growth.lo > 0


def _memory_forecast(host: HostSamples, level: float, horizon: float) -> Iterator[Finding]:
    """Yield when headroom would be used up, if a slope is proven positive: headroom left / slope, for each bound."""
    sampled = replace(host, spans=None)
    headroom = sampled.series("memory_headroom")
    free = medians(headroom.segments[-1].last(10), HEADROOM_WINDOW)[0] if headroom.segments else 0.0
    if free <= 0:
        return
    for name, words in GROWING.items():
        values = sampled.series(name)
        if not values.segments or values.check_coverage():
            continue
        last = values.join_stretches()
        growth = slope(last.at, last.values, level=level)
        if growth is None or growth.lo <= 0 or not _still_grows(last.at, last.values, level):
            continue
        center, soon, late = (free / rate for rate in (growth.center, growth.hi, growth.lo))
        if soon > horizon:
            continue
        detail = (
            f"{words} grows by {show(growth.center, 'B/s')}; at that rate the headroom of {show(free, 'B')} is used "
            f"up in {show_interval(*(show(seconds, 's') for seconds in (center, soon, late)))}"
        )
        yield Finding(FindingKind.MEMORY_EXHAUSTION, name, detail, "find and fix the leak before you deploy")


def detect_restart(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Tell whether the host was updated or started again between two readings of its facts."""
    builds = before.get("os_build"), after.get("os_build")
    boots = _instant(before.get("booted_at")), _instant(after.get("booted_at"))
    if None not in builds and builds[0] != builds[1]:
        return True
    return boots[0] is not None and boots[1] is not None and abs((boots[1] - boots[0]).total_seconds()) > REBOOT_SHIFT


def _instant(written: object) -> datetime | None:
    try:
        return moment(str(written))
    except ParseError:
        return None


def slept(host: HostSamples) -> Iterator[Finding]:
    """Compare the time of day with the monotonic clock, which stands still while a host sleeps."""
    columns, at_ns = host.columns, host.columns.at_ns
    timed = (pairwise((place, _instant(columns.at[place])) for place in part) for part in host.segments().values())
    for (before, then), (after, now) in chain.from_iterable(timed):
        if then is None or now is None:
            continue  # a sample without a time of day cannot be compared
        ahead = (now - then).total_seconds() - (at_ns[after] - at_ns[before]) / 1e9
        if ahead > SLEEP_GAP:
            detail = f"the host slept for {ahead:.0f} s between {columns.at[before]} and {columns.at[after]}"
            yield Finding(
                FindingKind.HOST_SLEPT, "host", detail, "keep the lid open and prevent sleep, then run the soak again"
            )
        elif ahead < -SLEEP_GAP:
            yield Finding(
                FindingKind.CLOCK_SET, "host", f"the time of day was set back by {-ahead:.0f} s at {columns.at[after]}"
            )
