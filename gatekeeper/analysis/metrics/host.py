"""What the host's samples prove about a soak: an estimate of each host metric, and what a reader must know."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from gatekeeper.analysis.metrics import host_memory
from gatekeeper.analysis.metrics.host_series import Series, Spans, by_segment, finite, medians, series
from gatekeeper.analysis.metrics.host_throttling import LEAST_SHARE, backwards, contradictions, delta, throttle_time
from gatekeeper.analysis.stats.trend import median_slope_rises, slope
from gatekeeper.core.metrics import ALL
from gatekeeper.core.records import HostSample
from gatekeeper.core.units import show
from gatekeeper.core.verdict import Estimate, Finding, Missing, fact

COUNTERS = ("swapin_bytes", "swapout_bytes", "throttle_total", "throttle_events", "gpu_resets", "oom_kills")
"""Values that only grow while the host runs."""

SLEEP_GAP = 2.0
"""Seconds by which the time of day may leave the monotonic clock between two samples before the host has slept."""

REBOOT_SHIFT = 60.0
"""Seconds by which the boot time may move without a restart: it is computed anew when the time of day is set."""

BUSY_CORES = 0.25
"""Cores that the system's own batch jobs may take on average before a reader is told."""

DISQUALIFYING = frozenset(
    {"host_slept", "power_lost", "power_mode_changed", "virtual_mac", "host_restarted", "memory_contradiction"}
)
"""Kinds of finding that leave a soak unproven, whatever was measured."""


def estimates(
    samples: Sequence[HostSample],
    *,
    interval: float,
    tokens: int | None,
    level: float,
    seed: int,
    spans: Spans | None = None,
    sentinels_held: bool | None = None,
    earlier: Sequence[HostSample] = (),
) -> dict[str, Estimate | Missing]:
    """Return every host metric, from the samples of one soak alone.

    *spans* says when each segment began and ended, so that a sampler that died early leaves a gap; without it the
    samples' own extent is all that can be covered. *earlier* are samples of the same run from before the soak.
    """

    def of(name: str) -> Series:
        return series(samples, name, interval=interval, spans=spans)

    found: dict[str, Estimate | Missing] = {
        **{name: host_memory.estimate(name, samples, interval=interval, spans=spans) for name in host_memory.METRICS},
        "throttle_time": throttle_time(
            samples, interval=interval, spans=spans, sentinels_held=sentinels_held, earlier=earlier
        ),
        "swapin_bytes": delta(of("swapin_bytes")),
        "swapout_bytes": delta(of("swapout_bytes")),
        "footprint_peak": _peak(of("subject_footprint")),
        "footprint_growth": _slope(of("subject_footprint"), level, seed),
        "fan_variation": _range(of("fan_speed")),
        "power_mean": _power(of("package_power")),
        "energy_per_token": _energy(of("package_power"), tokens),
    }
    return {metric.name: found[metric.name] for metric in ALL if metric.host}


def _peak(footprint: Series) -> Estimate | Missing:
    return footprint.uncovered() or fact(max(point.value for point in footprint.points), footprint.seen)


def _slope(footprint: Series, level: float, seed: int) -> Estimate | Missing:
    """Theil-Sen slope over the last segment, a resumed subject being a new process."""
    if missing := footprint.uncovered():
        return missing
    last = footprint.segments[-1]
    estimate = slope([point.at for point in last], [point.value for point in last], level=level, seed=seed)
    return estimate or Missing(f"{footprint.name}: {len(last)} readings are too few for a slope", len(last))


def _range(fan: Series) -> Estimate | Missing:
    values = [point.value for point in fan.points]
    return fan.uncovered() or fact(max(values) - min(values), fan.seen)


def _power(power: Series) -> Estimate | Missing:
    """Mean over time: each reading counts for as long as it stands."""
    if missing := power.uncovered():
        return missing
    seconds = sum(point.lasts for point in power.points)
    return fact(_joules(power) / seconds, power.seen) if seconds > 0 else Missing("no time passed", power.seen)


def _energy(power: Series, tokens: int | None) -> Estimate | Missing:
    if missing := power.uncovered():
        return missing
    if not tokens:
        return Missing("the subject's output tokens are not known" if tokens is None else "no token was put out")
    return fact(_joules(power) / tokens, power.seen)


def _joules(power: Series) -> float:
    return sum(point.value * point.lasts for point in power.points)


def findings(
    samples: Sequence[HostSample],
    sentinels_held: bool | None,
    *,
    interval: float = 1.0,
    conditions: Sequence[Mapping[str, Any]] = (),
    level: float = 0.95,
    seed: int = 0,
    spans: Spans | None = None,
    earlier: Sequence[HostSample] = (),
    horizon: float = math.inf,
) -> list[Finding]:
    """Return what a reader must know; the kinds in DISQUALIFYING leave the soak unproven.

    *conditions* are the host's facts before and after the soak, as `gatekeeper.host.conditions` gives them. Memory that
    lasts longer than *horizon* seconds at its present growth is none of a reader's worries.
    """
    found = [
        *_machine(conditions),
        *_slept(samples),
        *_supply(samples, conditions),
        *_counters(samples, interval, spans),
        *_contradicted(samples, sentinels_held, interval, earlier),
        *_beside(samples, conditions),
        *_forecast(samples, interval, level, seed, horizon),
    ]
    return list(dict.fromkeys(found))


def _machine(conditions: Sequence[Mapping[str, Any]]) -> list[Finding]:
    found = []
    for facts in conditions:
        mac = facts.get("platform") == "macos"
        if str(facts.get("machine") or "").startswith("VirtualMac") or (mac and facts.get("virtual")):
            advice = "certify on the machine itself"
            found.append(Finding("virtual_mac", "host", "a virtual Mac shows the telemetry of no machine", advice))
        elif facts.get("virtual"):
            detail = "a virtual machine: other guests share its processor, and sensors are missing"
            found.append(Finding("virtual_machine", "host", detail))
        if facts.get("translated"):
            detail = "gatekeeper runs under Rosetta, which mistranslates page sizes and speeds"
            found.append(Finding("translated", "host", detail, "install a native Python"))
    for before, after in pairwise(conditions):
        if _restarted(before, after):
            detail = "the host was restarted or updated between two looks at it"
            found.append(Finding("host_restarted", "host", detail, "run the soak again"))
    return found


def _restarted(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    builds = before.get("os_build"), after.get("os_build")
    boots = _instant(before.get("booted_at")), _instant(after.get("booted_at"))
    if None not in builds and builds[0] != builds[1]:
        return True
    return boots[0] is not None and boots[1] is not None and abs((boots[1] - boots[0]).total_seconds()) > REBOOT_SHIFT


def _instant(written: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(written))
    except ValueError:
        return None


def _slept(samples: Sequence[HostSample]) -> list[Finding]:
    """Compare the time of day with the monotonic clock, which stands still while a host sleeps."""
    found = []
    for part in by_segment(samples).values():
        for before, after in pairwise(part):
            then, now = _instant(before.at), _instant(after.at)
            if then is None or now is None:
                continue  # a sample without a time of day has nothing to compare
            day = (now - then).total_seconds()
            ahead = day - (after.at_ns - before.at_ns) / 1e9
            if ahead > SLEEP_GAP:
                detail = f"between {before.at} and {after.at} the time of day ran {ahead:.0f} s ahead: the host slept"
                found.append(Finding("host_slept", "host", detail, "keep the lid open, and run the soak again"))
            elif ahead < -SLEEP_GAP:
                detail = f"the time of day was set back by {-ahead:.0f} s at {after.at}"
                found.append(Finding("clock_set", "host", detail))
    return found


def _texts(samples: Sequence[HostSample], conditions: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """Return a text value as it was before, during and after; unknowns are left out, repeats too."""
    before = [conditions[0].get(name)] if conditions else []
    after = [conditions[-1].get(name)] if len(conditions) > 1 else []
    readings = (sample.values.get(name) for sample in sorted(samples, key=lambda one: (one.segment, one.at_ns)))
    during = [reading.value for reading in readings if reading is not None and reading.status == "ok"]
    known = [str(value) for value in (*before, *during, *after) if value is not None]
    return [value for place, value in enumerate(known) if place == 0 or known[place - 1] != value]


def _supply(samples: Sequence[HostSample], conditions: Sequence[Mapping[str, Any]]) -> list[Finding]:
    found = []
    supplies = _texts(samples, conditions, "power_source")
    if "battery" in supplies and "ac" in supplies:
        detail = f"the power source changed: {', then '.join(supplies)}"
        found.append(Finding("power_lost", "host", detail, "plug in, and run the soak again"))
    elif "battery" in supplies:
        found.append(Finding("on_battery", "host", "the host ran on battery", 'write power = "any", or plug in'))
    modes = _texts(samples, conditions, "power_mode")
    if len(modes) > 1:
        detail = f"the power mode changed: {', then '.join(modes)}"
        found.append(Finding("power_mode_changed", "host", detail, "run the soak again in one mode"))
    if "low" in modes or "low-power" in modes:
        found.append(Finding("low_power_mode", "host", "low-power mode was on: speeds are those of that mode"))
    return found


def _counters(samples: Sequence[HostSample], interval: float, spans: Spans | None) -> list[Finding]:
    found = []
    counted = {name: series(samples, name, interval=interval, spans=spans) for name in COUNTERS}
    for name, counter in counted.items():
        if fell := backwards(counter):
            found.append(Finding("counter_backwards", name, f"{name} {fell}", "run the soak again"))
    rose = {
        name: sum(part[-1].value - part[0].value for part in counter.segments)
        for name, counter in counted.items()
        if counter.points and not backwards(counter)
    }
    if rose.get("swapout_bytes", 0) > 0:
        detail = f"{show(rose['swapout_bytes'], 'B')} were written to swap: memory ran short"
        found.append(Finding("swapped_out", "swapout_bytes", detail, "a smaller model, or fewer apps"))
    elif rose.get("swapin_bytes", 0) > 0:
        detail = f"{show(rose['swapin_bytes'], 'B')} were read from swap, and none written: a softer sign"
        found.append(Finding("swapped_in", "swapin_bytes", detail))
    if rose.get("gpu_resets", 0) > 0:
        found.append(Finding("gpu_reset", "gpu_resets", f"the GPU reset itself {rose['gpu_resets']:.0f} times"))
    if rose.get("oom_kills", 0) > 0:
        found.append(Finding("oom_kill", "oom_kills", f"{rose['oom_kills']:.0f} processes were killed for memory"))
    return found


def _contradicted(
    samples: Sequence[HostSample], sentinels_held: bool | None, interval: float, earlier: Sequence[HostSample]
) -> list[Finding]:
    found = []
    levels = [level for sample in samples if (level := finite(sample.values.get("thermal_level"))) is not None]
    against = contradictions(samples, sentinels_held, interval=interval, earlier=earlier)
    if against and levels and max(levels) < 2:
        detail = f"the thermal level was never raised, but {'; '.join(against)}"
        advice = f"cool the host; a steady GPU keeps {LEAST_SHARE['gpu_frequency']:.0%} of its frequency"
        found.append(Finding("thermal_contradiction", "throttle_time", detail, advice))
    for name, sign in (("degraded", 1.0), ("throttled", 2.0)):
        count = sum(level == sign if sign == 1.0 else level >= sign for level in levels)
        if count:
            least = f"{sign:.0f}" if sign == 1.0 else f"{sign:.0f} or more"
            detail = f"the thermal level was {least} in {count} of {len(levels)} samples"
            found.append(Finding(f"thermally_{name}", "throttle_time", detail))
    if detail := host_memory.contradiction(samples):
        found.append(Finding("memory_contradiction", "memory_headroom", detail, "use a native Python and system tools"))
    return found


def _beside(samples: Sequence[HostSample], conditions: Sequence[Mapping[str, Any]]) -> list[Finding]:
    cores = [value for sample in samples if (value := finite(sample.values.get("background_cpu"))) is not None]
    if cores and sum(cores) / len(cores) > BUSY_CORES:
        named = sorted({name for facts in conditions for name in (facts.get("heavy_processes") or {})})
        who = f": {', '.join(named)}" if named else ""
        detail = f"the system's own jobs took {sum(cores) / len(cores):.2g} cores{who}"
        advice = "wait until Spotlight, photo analysis and Time Machine are done"
        return [Finding("background_busy", "background_cpu", detail, advice)]
    return []


def _forecast(samples: Sequence[HostSample], interval: float, level: float, seed: int, horizon: float) -> list[Finding]:
    """Tell when headroom would be used up, where a slope is proven positive: headroom left / slope, bound by bound."""
    headroom = series(samples, "memory_headroom", interval=interval)
    if not headroom.segments:
        return []
    last = headroom.segments[-1]
    left = medians(last[-10:], host_memory.HEADROOM_WINDOW)[0]
    if left <= 0:
        return []
    found = []
    for name in ("memory_uncompressed_demand", "subject_footprint"):
        values = series(samples, name, interval=interval)
        if not values.segments or values.uncovered():
            continue
        points = values.segments[-1]
        times, readings = [point.at for point in points], [point.value for point in points]
        if not median_slope_rises(times, readings):
            continue
        estimate = slope(times, readings, level=level, seed=seed)
        if estimate is None or estimate.lo <= 0:
            continue
        center, soon, late = (left / rate for rate in (estimate.center, estimate.hi, estimate.lo))
        if soon > horizon:
            continue
        detail = (
            f"{name} grows by {show(estimate.center, 'B/s')}; at that rate the headroom of {show(left, 'B')} is used "
            f"up in {show(center, 's')} ({show(soon, 's')} to {show(late, 's')})"
        )
        found.append(Finding("memory_exhaustion", name, detail, "look for a leak before deploying"))
    return found
