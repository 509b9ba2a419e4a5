"""notifyutil: the thermal pressure level; a key that does not exist prints 0 as well, so 0 alone proves nothing."""

import re

from gatekeeper.host.sources import Status, Tool, Values, failure
from gatekeeper.host.tool_commands import Output

KEY = "com.apple.system.thermalpressurelevel"
PROVIDES = ("thermal_level",)
LEVELS = ("Nominal", "Moderate", "Heavy", "Trapping", "Sleeping")
"""The names of levels 0 to 4."""


def parse(output: Output) -> Values:
    """Return the level 0 to 4; failures are printed on stdout with exit code 0."""
    if status := failure(output):
        return dict.fromkeys(PROVIDES, status)
    text = output.text or ""
    if re.fullmatch(rf"{re.escape(KEY)}: Failed with code \d+\s*", text):
        return dict.fromkeys(PROVIDES, Status.ABSENT)
    match = re.fullmatch(rf"{re.escape(KEY)} ([0-4])[ \t]*\n", text)
    return {"thermal_level": float(match.group(1)) if match else Status.PARSE_ERROR}


TOOL = Tool("notifyutil", PROVIDES, lambda: ["notifyutil", "-g", KEY], parse)
