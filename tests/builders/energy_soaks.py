"""Simulated soaks with a planted ratio of energy, and sensors that are bad."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from gatekeeper.analysis.metrics.host.energy import REST, answer_powers
from gatekeeper.analysis.metrics.host.host_series import Floats, HostSamples
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.plan.soak_schedule import REST_S
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, HostSample, Reading, Role
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.records.host_columns import HostColumns

CANARIES, TOKENS, SOAK_S = 12, 200, 600.0
PLAIN_S = 6.0
"""Seconds of a plain answer on average, of a 4B model on an M4."""
PLAIN_W, SPEED_UP, MORE_POWER = 18.0, 1.5, 1.2
STEP_S = 0.05
FIRST_S = 0.001
"""From a request to its first token."""


@dataclass(frozen=True)
class World:
    """What the machine and its sensor do."""

    rest: Callable[[Floats], Floats]
    """The watts at rest at each second of the soak."""
    noise: float = 0.05
    """Of the power from answer to answer."""
    sensor: str = "sound"
    """sound, stuck, zero, or GPU alone."""
    lag_s: float = 0.4
    """How old a reading is when it is sampled."""


def _drifting(watts: float, seconds: Floats) -> Floats:
    return 5.0 + watts * seconds / SOAK_S


WORLDS: Mapping[str, World] = {
    "steady at rest": World(partial(_drifting, 0.0)),
    "rest rises from 5 W to 8 W": World(partial(_drifting, 3.0)),
    "rest falls from 5 W to 3 W": World(partial(_drifting, -2.0)),
    "20 % noise from answer to answer": World(partial(_drifting, 0.0), noise=0.2),
    "readings 1.6 s old": World(partial(_drifting, 0.0), lag_s=1.6),
    "sensor is stuck": World(partial(_drifting, 0.0), sensor="stuck"),
    "sensor reads 0 W": World(partial(_drifting, 0.0), sensor="zero"),
    "sensor reads the GPU alone": World(partial(_drifting, 0.0), sensor="gpu"),
}


def simulate_soak(world: World, seed: int) -> tuple[PairedAnswers, float]:
    """Return the answers of one soak with their powers, and the true ratio of joules for these canaries."""
    rng = np.random.default_rng(seed)
    lengths = PLAIN_S * rng.lognormal(0, 0.3, CANARIES)
    speed_ups = SPEED_UP * rng.lognormal(0, 0.15, CANARIES)
    drawn = {"plain": PLAIN_W * np.ones(CANARIES), "candidate": PLAIN_W * MORE_POWER * rng.lognormal(0, 0.1, CANARIES)}
    seconds = {"plain": lengths, "candidate": lengths / speed_ups}
    truth = np.sum(drawn["candidate"] * seconds["candidate"]) / np.sum(drawn["plain"] * seconds["plain"])
    answers: list[Generation] = []
    at, pair, spans = REST_S, 0, []
    while at < REST_S + SOAK_S:
        canary = pair % CANARIES
        for arm in rng.permutation(["plain", "candidate"]):
            lasts = float(seconds[arm][canary] * rng.lognormal(0, 0.02))
            spans.append((at, at + lasts, float(drawn[arm][canary] * rng.lognormal(0, world.noise))))
            answers.append(simulated_answer(arm, f"c{canary}", str(pair), at, lasts, TOKENS))
            at += lasts + 0.05
        pair += 1
    samples = _samples(world, spans, at, rng)
    columns = HostColumns.of(samples)
    during, outside = (columns.select([(phase == "soak-1") == within for phase in columns.phase]) for within in (1, 0))
    host = HostSamples(during, 1.0, outside=outside)
    known = {f"c{number}": Canary.model_validate(_canary(f"c{number}")) for number in range(CANARIES)}
    candidate, plain = (tuple(answer for answer in answers if answer.arm == arm) for arm in ("candidate", "plain"))
    powers = partial(answer_powers, host, columns, answers)
    paired = PairedAnswers("easy", known, candidate, plain, 0.975, seed, greedy=True, powers=powers)
    return pair_answers(paired), float(truth)


def simulated_answer(arm: str, canary: str, pair: str, at_s: float, lasts_s: float, tokens: int) -> Generation:
    """Return an answer that is requested at *at_s*: its first token, then all others when it ends."""
    sent_ns, ended_ns = round(at_s * 1e9), round((at_s + lasts_s) * 1e9)
    arrivals = (Arrival(sent_ns + round(FIRST_S * 1e9), 1), Arrival(ended_ns, tokens - 1))
    answer = Answer(sent_ns, ended_ns, arrivals, output_tokens=tokens)
    role = Role.MEASURED if arm == "candidate" else Role.BASELINE
    return Generation("soak-1", f"{pair}/{arm}", "easy", canary, arm, (), role, 1, pair, 1, answer)


def _canary(name: str) -> dict[str, object]:
    return {"id": name, "messages": [{"role": "user", "content": name}], "max_tokens": TOKENS}


def _samples(
    world: World, spans: list[tuple[float, float, float]], end: float, rng: np.random.Generator
) -> list[HostSample]:
    """Sample the sensor once a second through a rest, the soak and a rest; a reading is the mean of its second."""
    moments = np.arange(0, end + REST_S, STEP_S)
    rest = world.rest(moments - REST_S)
    watts = rest.copy()
    for begun, ended, drawn in spans:
        watts[(moments >= begun) & (moments < ended)] += drawn
    totals = np.concatenate([[0.0], np.cumsum(watts)])
    samples = []
    for second in range(1, int(end + REST_S)):
        read = second - world.lag_s
        first, last = (max(0, round(moment / STEP_S)) for moment in (read - 1, read))
        mean = float((totals[last] - totals[first]) / max(1, last - first)) * (1 + rng.normal(0, 0.005))
        phase = REST if second <= REST_S or second > end else "soak-1"
        values = _readings(world.sensor, round(mean, 3), world.lag_s)
        samples.append(HostSample(at="", at_ns=second * 10**9, values=values, phase=phase))
    return samples


def _readings(sensor: str, watts: float, age_s: float) -> dict[str, Reading]:
    name, value = {
        "sound": ("package_power", watts), "stuck": ("package_power", 22.5), "zero": ("package_power", 0.0),
        "gpu": ("gpu_power", watts),
    }[sensor]  # fmt: skip
    return {name: Reading(value, "W", "macmon", "ok", age_s)}
