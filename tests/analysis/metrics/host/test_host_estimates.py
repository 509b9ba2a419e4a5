"""What the host's samples prove: coverage, counters, segments, throttling, slopes, findings; leaks end to end."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.truth import Scenario, run, scenarios
from gatekeeper.analysis.metrics.host.host_estimates import estimates
from gatekeeper.analysis.metrics.host.host_findings import findings
from gatekeeper.analysis.metrics.host.host_series import HostSamples, host_segment
from gatekeeper.analysis.metrics.host.host_throttling import is_fanless
from gatekeeper.analysis.stats.slopes import slope
from gatekeeper.analysis.verdict.host_checks import DISQUALIFYING
from gatekeeper.core.clock import stamp
from gatekeeper.core.judgement import Estimate, Finding, Missing
from gatekeeper.core.metrics import ALL
from gatekeeper.core.records import HostSample, Reading
from tests.builders.golden_words import says

SECOND = 10**9
START = datetime(2026, 11, 20, 9, 12, tzinfo=UTC)

Value = float | str | None
Course = Callable[[int], Value]


def reading(value: Value, status: str | None = None, source: str = "a tool") -> Reading:
    state = status or ("ok" if value is not None else "absent")
    return Reading(value if state == "ok" else None, "", source, state, 0.0)


def soak(seconds: int = 600, *, segment: int = 0, begin: int = 0, **courses: Any) -> list[HostSample]:
    """Return one sample a second; each value is a constant or a function of the second."""
    return [
        HostSample(
            at=stamp(START + timedelta(seconds=begin + second)),
            at_ns=(begin + second) * SECOND,
            values={name: reading(course(second) if callable(course) else course) for name, course in courses.items()},
            segment=segment,
        )
        for second in range(seconds)
    ]


def judged(samples: Sequence[HostSample], *, tokens: int | None = 1000, **more: Any) -> dict[str, Estimate | Missing]:
    return estimates(HostSamples(samples, interval=1.0, **more), tokens=tokens, level=0.95)


def center(figure: Estimate | Missing) -> float:
    assert isinstance(figure, Estimate), figure
    return figure.center


def because(figure: Estimate | Missing) -> str:
    assert isinstance(figure, Missing), figure
    return figure.because


def found_in(samples: Sequence[HostSample], *, baseline_held: bool | None = None, **more: Any) -> list[Finding]:
    host = HostSamples(samples, interval=1.0, baseline_held=baseline_held)
    return findings(host, level=0.95, **more)


def kinds(samples: Sequence[HostSample], **more: Any) -> set[str]:
    return {finding.kind for finding in found_in(samples, **more)}


def test_every_host_metric_has_an_answer() -> None:
    """From nothing at all each metric is missing, and says why."""
    figures = judged([])

    assert [metric.name for metric in ALL if metric.host] == list(figures)
    assert all(because(figure) for figure in figures.values())


def test_facts_of_a_quiet_soak() -> None:
    """Facts have no width: lo = center = hi."""
    figures = judged(
        soak(
            memory_headroom=9e9,
            memory_pressure_level=1.0,
            swapin_bytes=5e6,
            swapout_bytes=lambda second: 100.0 + second,
            swap_used=lambda second: 1e6 + 10 * second,
            subject_footprint=lambda second: 4e9 + (1e6 if second == 300 else 0),
            fan_speed=lambda second: 1000.0 + second % 2,
            package_power=lambda second: 19.0 + 2 * (second % 2),
            system_power=lambda second: 29.0 + 2 * (second % 2),
        )
    )

    expected = {
        "memory_headroom": 9e9,
        "memory_pressure_critical": 0.0,
        "swapin_bytes": 0.0,
        "swapout_bytes": 599.0,
        "swap_growth": 5990.0,
        "footprint_peak": 4.001e9,
        "footprint_growth": 0.0,
        "fan_variation": 1.0,
        "power_mean": 20.0,
        "energy_per_token": 12.0,
        "system_power_mean": 30.0,
        "system_energy_per_token": 18.0,
    }
    assert expected == {name: center(figure) for name, figure in figures.items() if name != "throttle_time"}
    assert all(figure.lo == figure.center == figure.hi for figure in figures.values() if isinstance(figure, Estimate))


def without(count: int, status: str) -> list[HostSample]:
    """Return a soak whose first readings of the headroom are missing."""
    samples = soak(memory_headroom=9e9)
    lost = {"memory_headroom": reading(None, status)}
    return [replace(sample, values=lost) if at < count else sample for at, sample in enumerate(samples)]


def from_another_source(begin: int, name: str, value: float) -> list[HostSample]:
    """Return a soak whose readings come from another tool from a second on."""
    samples = soak(**{name: value})  # type: ignore[arg-type]
    values = {name: reading(99.0, source="other")}
    return [replace(sample, values=values) if at >= begin else sample for at, sample in enumerate(samples)]


@pytest.mark.parametrize("name", ["swapin_bytes", "swapout_bytes"])
def test_a_counter_that_goes_backwards_is_an_incident(name: str) -> None:
    """A restart or a wrap makes the difference unknown, and is told."""
    courses: dict[str, Any] = {name: lambda second: 1e6 - 5e5 * (second >= 300) + second}
    samples = soak(**courses)

    says("estimates", "a counter that goes backwards is an incident", because(judged(samples)[name]), name=name)
    assert "counter_backwards" in kinds(samples)


def test_counters_are_not_compared_across_segments() -> None:
    """A restart between two segments is no backwards counter, and its traffic is not the soak's."""
    samples = [
        *soak(300, swapin_bytes=lambda second: 1e9 + 10.0 * second),
        *soak(300, segment=1, begin=900, swapin_bytes=lambda second: 7.0 * second),
    ]

    assert center(judged(samples)["swapin_bytes"]) == 299 * 10 + 299 * 7
    assert "counter_backwards" not in kinds(samples)


POWERS = [("power_mean", "energy_per_token", "package_power")]
POWERS += [("system_power_mean", "system_energy_per_token", "system_power")]


@pytest.mark.parametrize(("mean", "energy", "sampled"), POWERS)
@pytest.mark.parametrize("zeros", [600, 31])
def test_a_power_of_0_watts_is_missing(mean: str, energy: str, sampled: str, zeros: int) -> None:
    """A running machine draws power: a counter at 0 W in more than 5 % of the samples does not work."""
    courses: dict[str, Any] = {sampled: lambda second: 0.0 if second < zeros else 20.0}

    figures = judged(soak(**courses))

    for name in (mean, energy):
        assert f"{sampled}: {zeros} of 600 " in because(figures[name])


AT_WORK: dict[str, Any] = {"gpu_active": 0.98}
RESTING = soak(10, gpu_active=0.02, package_power=4.0, system_power=9.0)


def around(watts: float) -> Course:
    """Return the power of a GPU at work: no two readings in a row are equal."""
    return lambda second: watts + 0.01 * (second % 7)


@pytest.mark.parametrize(
    ("powers", "reason"),
    [
        ({"package_power": 12.3}, "600 of 600 readings by a tool hardly change"),
        ({"package_power": lambda second: 12.4 if second == 77 else 12.3}, "600 of 600 readings by a tool hardly"),
        ({"package_power": lambda second: 12.4 if second % 30 == 7 else 12.3}, "readings by a tool hardly change"),
        ({"package_power": lambda second: around(9.0)(second) if second < 300 else 9.1}, "300 of 600 readings by a"),
        ({"package_power": 1e308}, "600 of 600 readings by a tool are above 5000 W"),
        ({"package_power": lambda second: 1e-9 * (1 + second % 3)}, "reads 2e-09 W while the GPU is busy"),
        ({"package_power": around(4.1)}, "reads no more than while the GPU was idle"),
        ({"package_power": around(5.0), "gpu_power": around(20.0)}, "600 of 600 readings by a tool are lower than"),
        ({"package_power": around(9.0), "gpu_power": around(9.0), "cpu_power": 0.0}, "so the package is the GPU alone"),
        ({"system_power": around(12.0), "package_power": around(30.0)}, "lower than those of a part"),
        ({"system_power": 61.5}, "hardly change"),
    ],
)
def test_a_power_that_cannot_be_the_machines_is_missing(powers: dict[str, Any], reason: str) -> None:
    """A value that stands still with or without outliers, no computer's, no higher than at rest, lower than its parts,
    or without the CPU: neither power nor energy is known, so neither passes nor fails.
    """
    samples = soak(**AT_WORK | powers)
    names = ("system_power_mean", "system_energy_per_token") if "system_power" in powers else POWERS[0][:2]

    for name in names:
        assert reason in because(judged(samples, outside=RESTING)[name])


@pytest.mark.parametrize("seconds", [1, 20])
def test_a_power_that_is_updated_now_and_then_is_one(seconds: int) -> None:
    """A sensor that shows a new value every *seconds* works, and so does one with a pause of a minute."""
    updated = soak(1800, **AT_WORK, package_power=lambda second: 9.0 + second // seconds % 7)
    paused = soak(1800, **AT_WORK, package_power=lambda second: 9.0 if second < 60 else around(9.0)(second))

    for samples in (updated, paused):
        assert 8.0 < center(judged(samples, outside=RESTING)["power_mean"]) < 13.0


def test_one_reading_in_many_samples_is_no_counter_that_stands_still() -> None:
    """One reading may only grow older, as on a virtual clock; new ones that are equal stand still."""
    aged = [
        replace(sample, values={"package_power": replace(sample.values["package_power"], age=0.001 * (number % 200))})
        for number, sample in enumerate(soak(package_power=12.3))
    ]

    estimate = judged(aged)["power_mean"]
    assert isinstance(estimate, Estimate)
    assert estimate.center == pytest.approx(12.3)
    assert estimate.notes == ("package power by a tool",)
    assert because(judged(aged, tokens=0)["energy_per_token"]), "nothing is divided by no token"
    assert "hardly change" in because(judged(soak(package_power=12.3))["power_mean"])


def test_power_that_an_answering_tool_lacks_is_missing_with_the_cause() -> None:
    """Where a tool reads other powers, counters are missing or dead, and it is not the program that is missing."""
    dead, no_tool = soak(package_power=None, system_power=92.0), soak(package_power=None)

    reasons = [because(judged(samples)["energy_per_token"]) for samples in (dead, no_tool)]

    says("estimates", "power that an answering tool lacks is missing with the cause", reasons[0])
    assert reasons[1].endswith("absent in 600")


BUSY: dict[str, Any] = {"thermal_level": 0.0, "gpu_active": 0.98, "gpu_frequency": 1.38e9, "gpu_power": around(9.0)}
IDLE = soak(10, gpu_active=0.02, gpu_frequency=0.0, gpu_power=0.03)
"""Samples of the same run from before its first request."""


WHOLE = soak(memory_headroom=9e9)
BURST = [replace(WHOLE[0], at_ns=number * SECOND // 1000) for number in range(100)]
LATE = [
    replace(sample, at_ns=sample.at_ns + SECOND // 2, late_ns=SECOND // 2) if sample.at_ns % (2 * SECOND) else sample
    for sample in WHOLE
]
TWO_SEGMENTS = {0: (0, 600 * SECOND), 1: (700 * SECOND, 800 * SECOND)}
LOST = "569 of 600 expected samples, 95 % needed"
PRESSED = {**dict.fromkeys(range(100, 130), 4.0), **dict.fromkeys(range(200, 261), 4.0), 230: None}
WARM = soak(**BUSY | {"gpu_frequency": 1.0e9})
THERMAL = "thermal_level_powermetrics"
QUIET: dict[str, Any] = {"throttle_total": 5.0, "throttle_events": 3.0}
SHOWN: list[tuple[str, list[HostSample], dict[str, Any], float | str]] = [
    # So many readings stand for all, whatever the others lack; a burst does not fill a gap.
    ("memory_headroom", without(30, "absent"), {}, 9e9),
    *(("memory_headroom", without(31, status), {}, LOST) for status in ("absent", "denied", "stale", "parse_error")),
    ("memory_headroom", WHOLE[:500], {"spans": {0: (0, 600 * SECOND)}}, "500 of 600"),
    ("memory_headroom", WHOLE, {"spans": TWO_SEGMENTS}, "600 of 700"),
    ("memory_headroom", [*BURST, *WHOLE[100:]], {}, "501 of 600"),
    ("memory_headroom", LATE, {}, 9e9),
    *(
        ("memory_headroom", [replace(sample, values={"memory_headroom": odd}) for sample in WHOLE], {}, "0 of 600")
        for odd in (Reading(value, "B", "x", "ok") for value in (float("nan"), float("inf"), "9e9", None, True))
    ),
    # Two sources may measure two things; the one that gave most is believed.
    ("power_mean", from_another_source(500, "package_power", 20.0), {}, "the source changed: a tool, other"),
    # A dip of four seconds is no floor, one of ten is.
    ("memory_headroom", soak(memory_headroom=lambda second: 1e9 if 300 <= second < 304 else 9e9), {}, 9e9),
    ("memory_headroom", soak(memory_headroom=lambda second: 1e9 if 300 <= second < 310 else 9e9), {}, 1e9),
    # Two runs do not add up; a reading that is missing inside a run does not end it.
    ("memory_pressure_critical", soak(memory_pressure_level=lambda second: PRESSED.get(second, 2.0)), {}, 61.0),
    ("swap_growth", soak(swap_used=lambda second: 1e6 + 100.0 * second - 500 * (second == 300)), {}, 0.0),
    ("footprint_growth", soak(19, subject_footprint=4e9), {}, "too few"),
    # A thermal zero takes a witness: a busy GPU whose frequency held, or baseline requests that held their speed.
    ("throttle_time", soak(**BUSY), {"outside": IDLE}, 0.0),
    ("throttle_time", soak(thermal_level=0.0), {"baseline_held": True}, 0.0),
    ("throttle_time", soak(thermal_level=0.0), {}, "nothing confirms it"),
    ("throttle_time", soak(**BUSY | {"gpu_active": 0.5}), {}, "nothing confirms it"),
    # A host that was warm from the first second is compared with the run's earlier samples.
    ("throttle_time", WARM, {"outside": IDLE}, 0.0),
    ("throttle_time", WARM, {"earlier": soak(120, **BUSY), "outside": IDLE}, "gpu_frequency fell"),
    # Two sensors may lag some seconds behind each other.
    ("throttle_time", soak(**BUSY | {THERMAL: lambda second: 2.0 * (300 <= second < 309)}), {"outside": IDLE}, 0.0),
    (
        "throttle_time",
        soak(**BUSY | {THERMAL: lambda second: 2.0 * (300 <= second < 320)}),
        {},
        "different thermal levels",
    ),
    # Linux counts seconds; zero needs a witness too, and events without a clock are no number of seconds.
    ("throttle_time", soak(throttle_total=lambda second: 5.0 + (second > 300) * 1.5, throttle_events=3.0), {}, 1.5),
    ("throttle_time", soak(**QUIET), {"baseline_held": True}, 0.0),
    ("throttle_time", soak(**QUIET), {}, "nothing confirms it"),
    (
        "throttle_time",
        soak(throttle_events=lambda second: 3.0 + (second > 300)),
        {"baseline_held": True},
        "1 throttle events",
    ),
    ("throttle_time", WHOLE, {"baseline_held": True}, "0 of"),
]


@pytest.mark.parametrize(("metric", "samples", "more", "expected"), SHOWN)
def test_what_the_samples_of_a_soak_show(
    metric: str, samples: list[HostSample], more: dict[str, Any], expected: float | str
) -> None:
    """The figure where it is proven, and the reason where it is not."""
    figure = judged(samples, **more)[metric]

    if isinstance(expected, str):
        assert expected in because(figure)
    else:
        assert expected == center(figure)


def test_a_witness_that_left_early_or_slowed_down_is_none() -> None:
    """A GPU that is busy in the first half alone, and baseline requests that slowed down, whatever the GPU says."""
    left_early = soak(**BUSY | {"gpu_active": lambda second: 0.98 if second < 300 else 0.5})

    says("estimates", "a witness who left early is none", because(judged(left_early, outside=IDLE)["throttle_time"]))
    slowed = because(judged(soak(**BUSY), baseline_held=False)["throttle_time"])
    says("estimates", "baseline requests that slowed down contradict nominal", slowed)


@pytest.mark.parametrize(
    ("sensors", "reason"),
    [
        ({"gpu_power": 0.0}, "gpu_power by a tool: it read 0 in 600 of 600 samples of a busy GPU"),
        ({"gpu_power": 0.0, "gpu_frequency": 0.0}, "gpu_frequency by a tool: it read 0 in 600 of 600"),
        ({"gpu_power": 7.31}, "gpu_power by a tool: it did not change within a minute"),
        ({"gpu_power": lambda second: 9.0 if 200 <= second < 400 else 9.0 + second % 2}, "did not change within a"),
        ({"gpu_power": lambda second: 0.02 + 0.01 * (second % 2)}, "gpu_power by a tool: no higher than while the GPU"),
        ({"gpu_power": lambda second: 0.0 if 250 <= second < 350 else around(9.0)(second)}, "read 0 in 100 of 600"),
        ({"gpu_power": lambda second: 9.1 if second == 77 else 9.0}, "did not change within a minute"),
        ({"gpu_power": lambda second: 9.1 if second % 60 == 7 else 9.0}, "did not change within a minute"),
        ({"gpu_power": lambda second: 9.0 if second >= 550 else around(9.0)(second)}, "did not change within a minute"),
        ({"gpu_power": lambda second: 0.0302 + 1e-4 * (second % 3)}, "no higher than while the GPU"),
        ({"gpu_power": around(9000.0)}, "it read 9e+03 W, which no computer draws"),
        ({"gpu_power": None}, "gpu_power: absent in all 600 samples of a busy GPU"),
        ({"gpu_power": None, "gpu_frequency": lambda second: 1.38e9 + second}, "gpu_frequency alone may be what was"),
    ],
)
def test_a_gpu_sensor_that_measures_nothing_confirms_nothing(sensors: dict[str, Any], reason: str) -> None:
    """0 W, 0 Hz, one value, or no more than at idle leave no throttling unproven, with the sensor and the reason; a
    steady speed of the baseline requests still confirms it. macOS 27's power counters may read 0, an M4's frequency may
    be the requested one.
    """
    samples = soak(**BUSY | sensors)

    assert reason in because(judged(samples, outside=IDLE)["throttle_time"])
    assert center(judged(samples, outside=IDLE, baseline_held=True)["throttle_time"]) == 0.0


def test_a_sensor_that_stands_still_is_found_in_a_gpu_that_pauses() -> None:
    """A GPU that is busy for less than half of each minute shows it all the same."""
    pauses: dict[str, Any] = {"gpu_active": lambda second: 0.98 if second % 60 < 25 else 0.5}
    still = {"gpu_power": lambda second: 9.1 if second == 77 else 9.0}

    assert "did not change" in because(judged(soak(**BUSY | pauses | still), outside=IDLE)["throttle_time"])
    assert center(judged(soak(**BUSY | pauses), outside=IDLE)["throttle_time"]) == 0.0


def test_a_gpu_sensor_without_an_idle_value_confirms_nothing() -> None:
    """Whether it follows the GPU is known only from readings of an idle one, also in the soak's own pauses; two tools
    that take turns are no steady sensor.
    """
    busy, paused = soak(**BUSY), soak(**BUSY | {"gpu_active": lambda second: 0.98 if second % 100 else 0.0})
    resting = [replace(sample, values=sample.values | {"gpu_power": reading(0.0)}) for sample in paused[::100]]
    paused[::100] = resting
    turns = [
        replace(sample, values=sample.values | {"gpu_power": reading(9.0 + at % 2, source="other")})
        if at > 300
        else sample
        for at, sample in enumerate(busy)
    ]

    says("estimates", "a gpu sensor without an idle value confirms nothing", because(judged(busy)["throttle_time"]))
    assert center(judged(paused)["throttle_time"]) == 0.0
    both = because(judged(turns, outside=IDLE)["throttle_time"])
    says("estimates", "a gpu sensor of two sources confirms nothing", both)


@pytest.mark.parametrize(
    ("name", "full", "sustained", "fell"),
    [("gpu_frequency", 1.38e9, 1.38e9 * 0.86, 1.38e9 * 0.84), ("gpu_power", 9.0, 6.4, 6.2)],
)
def test_a_busy_gpu_below_its_own_baseline_contradicts_nominal(
    name: str, full: float, sustained: float, fell: float
) -> None:
    """85 % of the frequency and 70 % of the power are kept by a GPU that is not throttled; below is never "nominal"."""

    def course(low: float) -> Course:
        return lambda second: (low if second >= 400 else full) + 0.01 * (second % 7)

    steady, slowed = soak(**BUSY | {name: course(sustained)}), soak(**BUSY | {name: course(fell)})

    assert center(judged(steady, outside=IDLE)["throttle_time"]) == 0.0
    assert f"{name} fell" in because(judged(slowed, outside=IDLE, baseline_held=True)["throttle_time"])
    assert "thermal_contradiction" in kinds(slowed, baseline_held=True)
    assert "thermal_contradiction" not in kinds(steady, baseline_held=True)


def test_throttled_time_is_level_two_and_above() -> None:
    """Moderate pressure is degraded and told; heavy and above is throttled and needs no witness."""
    samples = soak(
        thermal_level=lambda second: 1.0 if second < 50 else 2.0 if second < 70 else 3.0 if second < 75 else 0.0
    )

    assert center(judged(samples, baseline_held=False)["throttle_time"]) == 25.0
    assert {"thermally_degraded", "thermally_throttled"} <= kinds(samples, baseline_held=True)


def test_a_leak_is_a_slope_above_zero() -> None:
    """A megabyte a second, in waves and steps, has an interval that excludes zero and holds it."""
    samples = soak(subject_footprint=lambda second: 4e9 + 1e6 * second + 2e7 * (second % 40 > 20))

    footprint_growth = judged(samples)["footprint_growth"]

    assert isinstance(footprint_growth, Estimate)
    assert 0 < footprint_growth.lo <= 1e6 <= footprint_growth.hi
    # A resumed soak has a new subject; the old one's slope is not its.
    again = soak(300, segment=host_segment(1, 0), begin=900, subject_footprint=4e9)
    assert center(judged([*samples[:300], *again])["footprint_growth"]) == 0.0


def test_stretches_of_a_soak_share_one_growth() -> None:
    """Plain blocks interrupt a soak, but not its process: the rate under load is known as well as without them."""
    noise = np.random.default_rng(7).normal(0, 2e7, 600)
    whole = soak(600, subject_footprint=lambda second: 4e9 + 1e5 * second + float(noise[second]))
    apart = [
        replace(sample, segment=host_segment(0, at // 120), at_ns=sample.at_ns + at // 120 * 100 * SECOND)
        for at, sample in enumerate(whole)
    ]

    alone, joined = (judged(samples)["footprint_growth"] for samples in (whole, apart))

    assert isinstance(alone, Estimate)
    assert isinstance(joined, Estimate)
    assert (alone.center, alone.lo, alone.hi) == pytest.approx((joined.center, joined.lo, joined.hi))
    assert 0 < joined.lo <= 1e5 <= joined.hi


@given(
    rate=st.floats(-1e6, 1e6),
    offset=st.floats(-1e9, 1e9),
    count=st.integers(20, 150),
)
@settings(max_examples=30)
def test_the_slope_of_a_line_is_its_rate(rate: float, offset: float, count: int) -> None:
    """Without noise the estimate is the rate."""
    interval = slope(np.arange(float(count)), offset + rate * np.arange(float(count)), level=0.95)

    assert interval is not None
    assert interval.lo <= interval.center <= interval.hi
    assert interval.center == pytest.approx(rate, abs=1e-4 + 1e-9 * abs(offset))


def test_a_proven_leak_comes_with_a_forecast() -> None:
    """The time to exhaustion is the headroom over the slope, with an interval; without a proven slope there is none."""
    leaking = soak(subject_footprint=lambda second: 4e9 + 1e6 * second + 1e5 * (second % 7), memory_headroom=6e9)
    noise = np.random.default_rng(5).normal(4e9, 1e7, 600) + 2e3 * np.arange(600)
    steady = soak(subject_footprint=lambda second: float(noise[second]), memory_headroom=6e9)
    rose_once = soak(
        subject_footprint=lambda second: float(noise[second]) + 1.2e8 * (second >= 240), memory_headroom=6e9
    )

    (finding,) = (finding for finding in found_in(leaking, baseline_held=True) if finding.kind == "memory_exhaustion")

    growth = judged(steady)["footprint_growth"]
    assert isinstance(growth, Estimate)
    assert growth.lo < 0 < growth.center
    assert "used up in 100 min" in finding.detail
    assert "memory_exhaustion" not in kinds(steady, baseline_held=True) | kinds(rose_once, baseline_held=True)
    # Growth that cannot use up the headroom before the next certificate is due is no worry; what may just do so is.
    assert "memory_exhaustion" not in kinds(leaking, baseline_held=True, horizon=80 * 60)
    assert "memory_exhaustion" in kinds(leaking, baseline_held=True, horizon=105 * 60)


def shifted(samples: Sequence[HostSample], after: int, seconds: float) -> list[HostSample]:
    """Move the time of day of every sample from *after* on."""
    return [
        replace(sample, at=stamp(datetime.fromisoformat(sample.at) + timedelta(seconds=seconds)))
        if number >= after
        else sample
        for number, sample in enumerate(samples)
    ]


def test_a_host_that_slept_is_found_by_its_two_clocks() -> None:
    """The time of day runs ahead of the monotonic clock; a clock that is set by a second, or set back, is no sleep."""
    samples = soak(60, memory_headroom=1e9)

    asleep = found_in(shifted(samples, 30, 900))

    assert {"host_slept"} == {finding.kind for finding in asleep} & DISQUALIFYING
    assert "900 s" in asleep[0].detail
    assert set() == kinds(shifted(samples, 30, 1.0))
    resumed = soak(30, segment=1, begin=60, memory_headroom=1e9)
    assert set() == kinds([*samples, *shifted(resumed, 0, 9e4)]), "an interrupted run may be resumed tomorrow"
    assert {"clock_set"} == kinds(shifted(samples, 30, -60))


def test_lost_mains_power_disqualifies() -> None:
    """In the samples, or before against after; a run on battery throughout is told, and is the SLO's matter."""
    during = soak(60, power_source=lambda second: "battery" if 20 < second < 30 else "ac")
    before_and_after = [{"power_source": "ac"}, {"power_source": "battery"}]

    assert "power_lost" in kinds(during) & DISQUALIFYING
    assert "power_lost" in kinds(soak(60), conditions=before_and_after)
    assert {"on_battery"} == kinds(soak(60, power_source="battery"))


@pytest.mark.parametrize(
    ("before", "after", "kind", "disqualifies"),
    [
        ({"platform": "macos", "machine": "VirtualMac2,1"}, {}, "virtual_mac", True),
        ({"platform": "macos", "virtual": True}, {}, "virtual_mac", True),
        ({"platform": "linux", "virtual": True}, {}, "virtual_machine", False),
        ({"booted_at": "2026-01-01T00:00:00Z"}, {"booted_at": "2026-01-02T00:00:00Z"}, "host_restarted", True),
        ({"os_build": "25B70"}, {"os_build": "25B80"}, "host_restarted", True),
        ({"power_mode": "automatic"}, {"power_mode": "low"}, "power_mode_changed", True),
        ({"power_mode": "low"}, {"power_mode": "low"}, "low_power_mode", False),
        ({"translated": True}, {}, "translated", False),
    ],
)
def test_conditions_are_compared(before: dict[str, Any], after: dict[str, Any], kind: str, disqualifies: bool) -> None:
    """What the host was before and after the soak is told, and decides where it changed underneath."""
    found_kinds = kinds(soak(10), conditions=[before, after])

    assert kind in found_kinds
    assert disqualifies == bool(found_kinds & DISQUALIFYING)
    # Setting the clock moves a computed boot time by seconds.
    seconds_later = [{"booted_at": f"2026-01-01T00:00:0{second}Z"} for second in (0, 2)]
    assert set() == kinds(soak(10), conditions=seconds_later)


def test_other_incidents_are_told() -> None:
    """Swapping, the system's own jobs, a GPU reset and a killed process are findings."""
    samples = soak(
        60,
        swapin_bytes=lambda second: 10.0 * second,
        gpu_resets=lambda second: float(second > 30),
        oom_kills=lambda second: float(second > 30),
        background_cpu=1.5,
    )
    swapped = soak(60, swapin_bytes=0.0, swapout_bytes=lambda second: 10.0 * second)
    conditions = [{"heavy_processes": {"mds": 1.5}}]

    incidents = found_in(samples, conditions=conditions)

    assert {"swapped_in", "gpu_reset", "oom_kill", "background_busy"} == {finding.kind for finding in incidents}
    assert "mds" in next(finding.detail for finding in incidents if finding.kind == "background_busy")
    assert {"swapped_out"} == kinds(swapped)


@given(
    statuses=st.lists(st.sampled_from(["ok", "absent", "denied", "stale", "parse_error"]), min_size=1, max_size=80),
    gaps=st.lists(st.integers(0, 5), min_size=80, max_size=80),
)
def test_fewer_readings_never_prove_more(statuses: list[str], gaps: list[int]) -> None:
    """Whatever is missing where, taking readings away turns no missing metric into a fact."""
    at, samples = 0, []
    for status, gap in zip(statuses, gaps, strict=False):
        at += gap * SECOND
        samples.append(HostSample(stamp(START), at, {"memory_headroom": reading(1e9, status)}))
    end = at + SECOND
    memory_headroom = judged(samples, spans={0: (0, end)})["memory_headroom"]

    fewer = judged(samples[::2], spans={0: (0, end)})["memory_headroom"]

    assert isinstance(memory_headroom, Estimate) or isinstance(fewer, Missing)


HIDDEN = {scenario.name: scenario.script for scenario in scenarios() if scenario.leaks}


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(HIDDEN))
def test_twice_the_bound_is_never_promoted_and_no_leak_never_blocked(name: str) -> None:
    """Whatever hides it, a leak at twice its bound does not pass, and a process that does not grow does not fail."""
    twice, none = (run(Scenario(name, share, script=HIDDEN[name], leaks=True), 7) for share in (-1.0, 1.0))

    assert "promoted" != twice.gate
    assert "blocked" != none.gate


@pytest.mark.whole
def test_a_leak_in_the_open_is_decided_both_ways() -> None:
    """With little noise a tenth of the bound is enough: more is blocked, less is promoted."""
    quiet = {"memory": {"noise": 1e6}}

    above, below = (run(Scenario("quiet", share, script=quiet, leaks=True), 3) for share in (-0.1, 0.1))

    assert ("blocked", "promoted") == (above.gate, below.gate)
    assert (-0.1, 0.1) == (above.truth, below.truth)


@pytest.mark.parametrize(("machine", "seconds"), [("MacBookAir10,1", 60.0), ("Mac17,4", 60.0), ("Mac17,2", 0.0)])
def test_a_mac_without_a_fan_is_throttled_from_level_one(machine: str, seconds: float) -> None:
    """It is known by its model; a minute at level 1 is throttle time where no fan can help."""
    samples = soak(thermal_level=lambda second: 1.0 if second < 60 else 0.0)

    figures = judged(samples, baseline_held=True, fanless=is_fanless(machine))

    assert seconds == center(figures["throttle_time"])
