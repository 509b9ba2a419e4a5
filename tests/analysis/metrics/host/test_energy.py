"""The energy of the same work: planted ratios are held, a sensor that cannot be believed gives none."""

from dataclasses import replace

import pytest

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.host.energy import answer_powers, energy_ratio
from gatekeeper.analysis.metrics.host.host_series import STRETCHES, HostSamples, host_segment
from gatekeeper.core.judgement import Estimate
from gatekeeper.core.records import HostSample, Reading
from gatekeeper.core.records.host_columns import HostColumns
from tests.builders.energy_soaks import WORLDS, simulate_soak, simulated_answer
from tests.builders.golden_words import says
from tests.builders.slo import because, known

SOUND = [name for name, world in WORLDS.items() if world.sensor == "sound"]
REFUSED = {
    "sensor is stuck": "no energy where the sensor is stuck",
    "sensor reads 0 W": "no energy where the sensor reads 0 W",
    "sensor reads the GPU alone": "no energy where the sensor reads the GPU alone",
}


@pytest.mark.whole
@pytest.mark.parametrize("world", SOUND)
def test_a_planted_ratio_is_inside_the_interval(world: str) -> None:
    """With rest that drifts, noise from answer to answer, and readings as old as two samples."""
    soaks = [simulate_soak(WORLDS[world], seed) for seed in range(12)]
    estimates = [(energy_ratio(paired), truth) for paired, truth in soaks]
    weighed = [(ratio, truth) for ratio, truth in estimates if isinstance(ratio, Estimate)]

    assert len(weighed) >= 10
    assert sum(ratio.lo <= truth <= ratio.hi for ratio, truth in weighed) >= len(weighed) - 2
    assert all(ratio.hi - ratio.lo < 0.3 for ratio, _ in weighed)


def test_every_bad_sensor_is_in_the_table() -> None:
    """Stuck, 0 W, and one that leaves the processor out."""
    assert {*WORLDS} == {*SOUND, *REFUSED}


@pytest.mark.parametrize("world", REFUSED)
def test_a_sensor_that_cannot_be_believed_gives_no_value(world: str) -> None:
    """The reason names the sensor and what is wrong with it."""
    paired, _ = simulate_soak(WORLDS[world], 1)

    says("estimates", REFUSED[world], because(energy_ratio(paired)))


def test_no_more_power_than_at_rest_is_no_ratio() -> None:
    """An answer that takes no power is no answer that takes less; nor is one whose power nobody sampled."""
    paired, _ = simulate_soak(WORLDS["steady at rest"], 1)
    powers = paired.powers()
    assert not isinstance(powers, str)
    high = replace(powers, rest=(5.0, 1000.0))

    says("estimates", "an answer takes more than rest", because(energy_ratio(replace(paired, powers=lambda: high))))
    assert "the reason" == because(energy_ratio(replace(paired, powers=lambda: "the reason")))


def test_answers_shorter_than_two_samples_are_not_weighed() -> None:
    """A reading that spans two answers is of neither."""
    paired, _ = simulate_soak(WORLDS["steady at rest"], 1)
    powers = paired.powers()
    assert not isinstance(powers, str)
    few = replace(powers, watts=dict([*powers.watts.items()][:10]))

    says("estimates", "short answers are not weighed", because(energy_ratio(replace(paired, powers=lambda: few))))


def test_plain_blocks_cut_no_answer_off_from_its_power() -> None:
    """Samples number the stretches between plain blocks; the answers of all of them are weighed, and none of another
    run's
    segment.
    """
    answers = [simulated_answer("plain", "c0", str(at), 60.0 * at + 5, 50.0, 200) for at in range(STRETCHES)]
    samples = [
        HostSample("", at * 10**9, {"package_power": Reading(9.0 + at % 7, "W", "macmon", "ok", 0.0)}, "soak-1", number)
        for at in range(60 * STRETCHES)
        for number in [host_segment(answers[0].segment, at // 60)]
    ]

    powers = answer_powers(HostSamples(samples, 1.0), HostColumns.of(samples), answers, rested=False)
    resumed = [replace(answer, segment=answer.segment + 1) for answer in answers]
    others = answer_powers(HostSamples(samples, 1.0), HostColumns.of(samples), resumed, rested=False)

    assert not isinstance(powers, str)
    assert not isinstance(others, str)
    assert {answer.key for answer in answers} == {key for _, key in powers.watts}
    assert {} == others.watts


def test_it_is_estimated_as_every_metric_of_a_pair() -> None:
    """By its name, with bounds for these canaries, and for prompts like them beside those."""
    paired, _ = simulate_soak(WORLDS["steady at rest"], 1)
    ratio = known(estimate("energy_ratio", paired))

    says("estimates", "the basis of the energy is said", ratio.notes[0])
    assert ("frozen", True) == (ratio.scope, ratio.population is not None)
