"""powermetrics: power, frequency, residency and thermal pressure, as an endless stream of property lists.

It needs root, so it is started through `sudo -n` with one fixed command line that a sudoers rule can allow.
"""

import os
import plistlib
import re
import shutil
from collections.abc import Mapping
from typing import Any

from gatekeeper.host.sources import MOST_FREQUENCY, MOST_POWER, Status, Stream, Values, number, reports_denial
from gatekeeper.host.tool_commands import Output

PROVIDES = (
    "cpu_power", "gpu_power", "package_power", "gpu_frequency", "gpu_active", "thermal_level_powermetrics",
    "thermal_level",
)  # fmt: skip

LEVELS = ("Nominal", "Moderate", "Heavy", "Trapping", "Sleeping")
"""The names of the thermal levels 0 to 4."""

BOUND = 3600
"""Samples after which it ends by itself and is restarted: we cannot signal a process of root's."""

ARGUMENTS = ("-f", "plist", "-b", "0", "-i", "1000", "-n", str(BOUND), "--samplers", "cpu_power,gpu_power,thermal")

FRAME_MOST = 4 << 20
"""Bytes of one sample; the largest seen is a quarter of a megabyte, with every process listed."""

HERTZ_LEAST = 1e6
"""A GPU frequency is printed in MHz under the key `freq_hz`; a number this large can only be Hz."""

LACKS_SAMPLER = "unrecognized sampler"
"""What it says where this system has no such sampler; permission would not help."""

ELAPSED_MOST = 1e12
"""Nanoseconds of one sample: one a second."""

_END = b"</plist>"
_START = b"<?xml"


def argv() -> list[str] | None:
    """Return the command; None where there is no powermetrics, or no permission to start it."""
    program = shutil.which("powermetrics")
    if program is None:
        return None
    if shutil.which("sudo") is None:
        return [program, *ARGUMENTS] if os.geteuid() == 0 else None
    return ["sudo", "-n", program, *ARGUMENTS]


def sudoers_line() -> str:
    """Return the rule that allows exactly this command, for `visudo -f /etc/sudoers.d/gatekeeper`."""
    command = " ".join(argument.replace(",", "\\,") for argument in ARGUMENTS)
    return f"%admin ALL=(root) NOPASSWD: /usr/bin/powermetrics {command}"


class PlistDecoder:
    """Cuts the stream at each `</plist>`: waiting for the NUL that follows would lag one sample behind."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, chunk: bytes) -> list[Values]:
        """Return the samples that *chunk* completes; an unfinished one is kept, and never parsed if cut off."""
        self._buffer += chunk
        samples: list[Values] = []
        while (end := self._buffer.find(_END, self._searched)) >= 0:
            frame = bytes(self._buffer[: end + len(_END)])
            del self._buffer[: end + len(_END)]
            self._searched = 0
            # A sample cut off by a restart may precede a whole one: begin at the last start mark.
            begin = frame.rfind(_START)
            sample = parse(frame[begin:] if begin >= 0 else b"")
            if sample is not None:
                samples.append(sample)
        self._searched = max(0, len(self._buffer) - len(_END))
        if len(self._buffer) > FRAME_MOST:
            self._buffer.clear()
            self._searched = 0
            samples.append(dict.fromkeys(PROVIDES, Status.PARSE_ERROR))
        return samples


def parse(frame: bytes) -> Values | None:
    """Return the values of one property list; None for a sample that is not the difference of two instants."""
    try:
        sample = plistlib.loads(frame, fmt=plistlib.FMT_XML)
    except Exception:  # noqa: BLE001  on garbage plistlib raises errors of many kinds
        return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    if not isinstance(sample, dict):
        return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    if sample.get("is_delta") is not True:
        return None
    processor, gpu = sample.get("processor", {}), sample.get("gpu", {})
    if not isinstance(processor, dict) or not isinstance(gpu, dict):
        return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    elapsed = number(sample.get("elapsed_ns"), most=ELAPSED_MOST)
    level = _level(sample)
    idle = number(gpu["idle_ratio"], most=1.0) if "idle_ratio" in gpu else Status.ABSENT
    return {
        "cpu_power": _watts(processor, "cpu", elapsed),
        "gpu_power": _watts(processor, "gpu", elapsed),
        "package_power": _watts(processor, "combined", elapsed, "package"),
        "gpu_frequency": _frequency(gpu),
        "gpu_active": idle if isinstance(idle, Status) else round(1.0 - idle, 9),
        "thermal_level_powermetrics": level,
        "thermal_level": level,
    }


def _watts(processor: Mapping[str, Any], part: str, elapsed: float | Status, older: str = "") -> float | Status:
    """Return a mean power in W, from `*_power` in mW, or where there is none from `*_energy` in mJ over time."""
    lacks_power = not any(key.endswith("_power") for key in processor)
    for name in filter(None, (part, older)):
        if f"{name}_power" in processor:
            milliwatts = number(processor[f"{name}_power"], most=MOST_POWER * 1000)
            return milliwatts if isinstance(milliwatts, Status) else milliwatts / 1000
        if lacks_power and f"{name}_energy" in processor and not isinstance(elapsed, Status) and elapsed >= 1:
            energy = number(processor[f"{name}_energy"])
            return energy if isinstance(energy, Status) else number(energy * 1e-3 / (elapsed * 1e-9), most=MOST_POWER)
    return Status.ABSENT


def _frequency(gpu: Mapping[str, Any]) -> float | Status:
    if "freq_hz" not in gpu:
        return Status.ABSENT
    written = number(gpu["freq_hz"])
    if isinstance(written, Status):
        return written
    return number(written if written >= HERTZ_LEAST else written * 1e6, most=MOST_FREQUENCY)


def _level(sample: Mapping[str, Any]) -> float | Status:
    if "thermal_pressure" not in sample:
        return Status.ABSENT
    word = sample["thermal_pressure"]
    return float(LEVELS.index(word)) if isinstance(word, str) and word in LEVELS else Status.PARSE_ERROR


def permanent_failure(output: Output) -> Status | None:
    """Return why it can never work: no permission, or an unknown sampler; None where it may be restarted.

    sudo may refuse in the user's language: with exit code 1, by its own name or that of the whole command.
    """
    if output.code == 0:
        return None
    if reports_denial(output.messages) or (output.code == 1 and re.search(r"\bsudo|/powermetrics\b", output.messages)):
        return Status.DENIED
    return Status.ABSENT if re.search(r"unrecognized|usage:|illegal option", output.messages) else None


STREAM = Stream("powermetrics", PROVIDES, argv, PlistDecoder, permanent_failure)
