"""Dead counters: values that read 0 although they cannot, and are left out of a sample."""

from collections.abc import Sequence

from gatekeeper.host.sources import Values

LOADED = 0.1
"""Share of active time from which a GPU must have a frequency and draw power, if one tool reads all of them."""
LOADED_APART = 0.5
"""The same if several tools read them: one may lag a second behind at the begin and the end of a request."""

LEFT_OUT = "left out: a power counter or the frequency is 0 although the machine is at work"
"""What the detail of a dead counter ends in."""


def dead_counters(values: Values, loaded: float = LOADED) -> tuple[str, ...]:
    """Return the names in *values* that read 0 W or 0 Hz although they cannot: their counters do not work.

    The processor that runs this program draws power, a GPU only if it is busy. Some power counters of macOS 27 read 0.
    A package power without its CPU or its GPU is none, so it is among them.
    """
    active = values.get("gpu_active")
    of_gpu = ("gpu_power", "gpu_frequency") if isinstance(active, float) and active >= loaded else ()
    dead = [name for name in ("cpu_power", "system_power", "package_power", *of_gpu) if values.get(name) == 0]
    if "package_power" in values and "package_power" not in dead and {"cpu_power", "gpu_power"} & {*dead}:
        dead.append("package_power")
    return tuple(dead)


def dead_detail(source: str, names: Sequence[str]) -> str:
    """Say why *names* of a source that answers are absent."""
    return f"{source}: {', '.join(names)} {LEFT_OUT}"
