"""The footprint: the memory a host would see a scripted subject hold, reading by reading."""

import math
import random
from collections.abc import Sequence

from gatekeeper.backends.script import Script


def readings(script: Script, seconds: Sequence[float], process: str = "") -> list[float]:
    """Return the bytes held at each of *seconds* since the process began, as evenly apart as a sampler reads them.

    *process* names the draw of the noise: two processes of one script leak alike and wobble differently.
    """
    memory, noise, held = script.memory, 0.0, []
    begun = random.Random(f"{script.seed}|sawtooth|{process}").random()
    for number, at in enumerate(seconds):
        fresh = random.Random(f"{script.seed}|footprint|{process}|{number}").gauss(0, memory.noise)
        kept = memory.noise_kept if number else 0.0
        noise = kept * noise + math.sqrt(1 - kept**2) * fresh
        leaked = memory.leak * at
        if memory.step:
            leaked = memory.step * math.floor(leaked / memory.step)
        tooth = memory.sawtooth * math.modf(begun + at / memory.sawtooth_every)[0]
        held.append(max(0.0, memory.active + leaked + tooth + noise))
    return held
