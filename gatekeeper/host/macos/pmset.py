"""pmset and caffeinate: the power supply, the power mode, and sleep."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator

from gatekeeper.core.system.system_names import this_platform
from gatekeeper.host.sources import Status, Tool, Values, failure, find_agreed_text
from gatekeeper.host.tool_commands import Output, run, running

_SUPPLIES = {"AC Power": "ac", "Battery Power": "battery", "UPS Power": "battery"}
_MODES = {"0": "automatic", "1": "low", "2": "high"}


def parse_battery(output: Output) -> Values:
    """Return the power source; a UPS in use counts as a battery."""
    if status := failure(output):
        return dict.fromkeys(("power_source",), status)
    supply = find_agreed_text(re.findall(r"^Now drawing from '([A-Za-z ]+)'", output.text or "", re.MULTILINE))
    return {"power_source": _SUPPLIES.get(supply or "", Status.PARSE_ERROR)}


def parse_mode(output: Output) -> Values:
    """Return "automatic", "low" or "high"; older systems know only "automatic" and "low"."""
    if status := failure(output):
        return dict.fromkeys(("power_mode",), status)
    rows = re.findall(r"^\s*(powermode|lowpowermode)[ \t]+(\d+)[ \t]*\n", output.text or "", re.MULTILINE)
    newer = [mode for key, mode in rows if key == "powermode"]
    if not rows:
        return {"power_mode": Status.ABSENT}
    return {"power_mode": _MODES.get(find_agreed_text(newer or [mode for _, mode in rows]) or "", Status.PARSE_ERROR)}


def parse_sleep(output: Output) -> float | None:
    """Return the idle seconds after which the system sleeps; 0 for never, None where the output has no such row."""
    text = output.text if failure(output) is None else None
    minutes = find_agreed_text(re.findall(r"^\s*sleep[ \t]+(\d{1,5})(?:[ \t]+\(.*)?[ \t]*\n", text or "", re.MULTILINE))
    return float(minutes) * 60 if minutes is not None else None


SUPPLY = Tool("pmset -g batt", ("power_source",), lambda: ["pmset", "-g", "batt"], parse_battery, period=10.0)
MODE = Tool("pmset -g", ("power_mode",), lambda: ["pmset", "-g"], parse_mode, period=30.0)


@contextlib.contextmanager
def keep_awake(platform: str | None = None) -> Iterator[None]:
    """Hold `caffeinate` for this process on macOS; nothing elsewhere.

    It watches our process id, so it ends with us even if we are killed. If the host sleeps all the same, the samples
    show it: the time of day jumps against the monotonic clock.
    """
    if (platform or this_platform()) != "macos" or shutil.which("caffeinate") is None:
        yield
        return
    with running(["caffeinate", "-i", "-m", "-s", "-w", str(os.getpid())]):
        yield


def idle_sleep_seconds() -> float | None:
    """Return the idle seconds after which this host goes to sleep; None for never and for unknown."""
    output = run(["pmset", "-g"]) if this_platform() == "macos" else None
    return (parse_sleep(output) or None) if output is not None else None
