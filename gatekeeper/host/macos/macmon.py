"""macmon pipe: power, GPU frequency and activity, and fans, without root, where it is installed.

The Rust tool of that name; a package called macmon on PyPI has nothing to do with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.host.sources import (
    MOST_FAN_SPEED,
    MOST_FREQUENCY,
    MOST_POWER,
    Status,
    Stream,
    Values,
    number,
    reports_denial,
    scale_value,
)
from gatekeeper.host.tool_commands import Output

POWERS = {
    "cpu_power": "cpu_power",
    "gpu_power": "gpu_power",
    "package_power": "all_power",
    "system_power": "sys_power",
}

PROVIDES = (*POWERS, "gpu_frequency", "gpu_active", "fan_speed")

LINE_MOST = 1 << 20
"""Bytes of one line; real ones are under ten thousand."""


class LineDecoder:
    """Cuts the stream at line ends; an unfinished last line yields nothing."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, chunk: bytes) -> list[Values]:
        """Return the readings of the lines that *chunk* completes."""
        *lines, self._tail = (self._tail + chunk).split(b"\n")
        if len(self._tail) > LINE_MOST:
            self._tail = b""
            lines.append(b"endless")
        return [parse(line) for line in lines if line.strip()]


def parse(line: bytes) -> Values:
    """Return the values of one line, of any version from 0.5 to 0.8."""
    try:
        document = json_object(line)
    except ParseError:
        return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    powers: Values = {
        name: number(document[key], most=MOST_POWER) if key in document else Status.ABSENT
        for name, key in POWERS.items()
    }
    return powers | _gpu(document) | {"fan_speed": _fans(document)}


def _gpu(document: Mapping[str, Any]) -> Values:
    """Return frequency and activity.

    Before version 0.8 the pair holds the frequency-scaled ratio, a lower bound of the activity. It never overstates how
    busy the GPU is, so it can only make a thermal host check harder to prove.
    """
    pair = document.get("gpu_usage")
    frequency, active = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
    frequency = document.get("gpu_freq_mhz", frequency)
    active = document.get("gpu_active_ratio", active)
    return {
        "gpu_frequency": scale_value(number(frequency), 1e6, most=MOST_FREQUENCY)
        if frequency is not None
        else Status.ABSENT,
        "gpu_active": number(active, most=1.0) if active is not None else Status.ABSENT,
    }


def _fans(document: Mapping[str, Any]) -> float | Status:
    fans = document.get("fans")
    if fans is None or fans == []:
        return Status.ABSENT
    if not isinstance(fans, Sequence) or not all(isinstance(fan, dict) for fan in fans):
        return Status.PARSE_ERROR
    speeds = [number(fan.get("rpm"), most=MOST_FAN_SPEED) for fan in fans]
    valid = [speed for speed in speeds if not isinstance(speed, Status)]
    return max(valid) if len(valid) == len(speeds) else Status.PARSE_ERROR


def permanent_failure(output: Output) -> Status | None:
    """Return why it can never work: no permission, or unknown arguments; None where it may be restarted."""
    if reports_denial(output.messages):
        return Status.DENIED
    return Status.ABSENT if output.code != 0 and "unrecognized" in output.messages else None


STREAM = Stream("macmon", PROVIDES, lambda: ["macmon", "pipe", "-i", "1000"], LineDecoder, permanent_failure)
