"""What this machine is, by its own tools: what an SLO's `[host]` asks for, before anything is installed here."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional, Union

from gatekeeper.run.remote.agent.frames import Header

TOOL_S = 10.0
"""Time limit of one tool."""
RELEASE_VALUE = r'="?([^"\n]*)"?$'
CACHE = "~/.cache/huggingface/hub"
LM_STUDIO = "~/.lmstudio/models"


class Machine:
    """Answers what the machine is and which models it seems to have."""

    def do_facts(self, models: "List[str]") -> Header:
        """Return chip, memory, OS and power source, and which of *models* (paths or hub names) are there at all."""
        facts = _macos() if is_mac() else _linux()
        return dict(facts, absent=[name for name in models if not _is_there(name)])


def is_mac() -> bool:
    """Return whether this is a Mac, or is taken for one in a test."""
    return sys.platform == "darwin" or os.environ.get("GATEKEEPER_HOST_AS") == "macos"


def _is_there(name: str) -> bool:
    if os.path.exists(os.path.expanduser(name)):
        return True
    home = os.environ.get("HF_HOME")
    cache = os.environ.get("HF_HUB_CACHE") or (os.path.join(home, "hub") if home else os.path.expanduser(CACHE))
    if os.path.isdir(os.path.join(cache, "models--" + name.replace("/", "--"), "snapshots")):
        return True
    return "/" in name and os.path.exists(os.path.join(os.path.expanduser(LM_STUDIO), name))


def _macos() -> "Dict[str, Union[str, int, None]]":
    memory = _output("sysctl", "-n", "hw.memsize")
    battery = _output("pmset", "-g", "batt") or ""
    return {
        "chip": _output("sysctl", "-n", "machdep.cpu.brand_string"),
        "memory_bytes": int(memory) if memory and memory.isdigit() else None,
        "os": _output("sysctl", "-n", "kern.osproductversion"),
        "power_source": "ac" if "'AC Power'" in battery else "battery" if "'Battery Power'" in battery else None,
    }


def _output(*command: str) -> "Optional[str]":
    try:
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=TOOL_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.decode(errors="replace").strip() or None


def _linux() -> "Dict[str, Union[str, int, None]]":
    memory = _found(r"^MemTotal:\s*(\d+) kB", "/proc/meminfo")
    name, version = (_found("^" + key + RELEASE_VALUE, "/etc/os-release") for key in ("NAME", "VERSION_ID"))
    supplies = Path("/sys/class/power_supply").glob("*/online")
    online = [supply.read_text().strip() for supply in supplies]
    return {
        "chip": _found(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", "/proc/cpuinfo"),
        "memory_bytes": int(memory) * 1024 if memory else None,
        "os": " ".join(part for part in (name, version) if part) or None,
        "power_source": ("ac" if "1" in online else "battery") if online else None,
    }


def _found(pattern: str, path: str) -> "Optional[str]":
    try:
        text = Path(path).read_text(errors="replace")
    except OSError:
        return None
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1).strip() if match else None
