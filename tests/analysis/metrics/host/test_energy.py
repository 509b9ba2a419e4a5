"""The energy of the same work: planted ratios are held, a sensor that cannot be believed gives none."""

from dataclasses import replace

import pytest

from gatekeeper.analysis.metrics.host.energy import answer_powers, energy_ratio
from gatekeeper.analysis.metrics.host.host_series import STRETCHES, HostSamples, host_segment
from gatekeeper.core.judgement import Estimate
from gatekeeper.core.records import HostSample, Reading
from gatekeeper.core.records.host_columns import HostColumns
from tests.builders.energy_soaks import WORLDS, simulate_soak, simulated_answer
from tests.builders.golden_words import says
from tests.builders.slo import because

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
    weighed = [(ratio, truth) for paired, truth in soaks if isinstance(ratio := energy_ratio(paired), Estimate)]

    assert len(weighed) >= 10
    assert sum(ratio.lo <= truth <= ratio.hi for ratio, truth in weighed) >= len(weighed) - 2
    assert all(ratio.hi - ratio.lo < 0.3 for ratio, _ in weighed)
    assert {*WORLDS} == {*SOUND, *REFUSED}


@pytest.mark.parametrize("world", REFUSED)
def test_a_sensor_that_cannot_be_believed_gives_no_value(world: str) -> None:
    """The reason names the sensor and what is wrong with it."""
    paired, _ = simulate_soak(WORLDS[world], 1)

    says("estimates", REFUSED[world], because(energy_ratio(paired)))


def test_what_power_shows_no_ratio() -> None:
    """No more than at rest, one that was not sampled, and readings that span two answers and are of neither."""
    paired, _ = simulate_soak(WORLDS["steady at rest"], 1)
    powers = paired.powers()
    assert not isinstance(powers, str)
    high = replace(powers, rest=(5.0, 1000.0))
    few = replace(powers, watts=dict([*powers.watts.items()][:10]))

    says("estimates", "an answer takes more than rest", because(energy_ratio(replace(paired, powers=lambda: high))))
    says("estimates", "short answers are not weighed", because(energy_ratio(replace(paired, powers=lambda: few))))
    assert "the reason" == because(energy_ratio(replace(paired, powers=lambda: "the reason")))


def test_plain_blocks_cut_no_answer_off_from_its_power() -> None:
    """Answers of all stretches between plain blocks are weighed, and none of another run's segment."""
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
