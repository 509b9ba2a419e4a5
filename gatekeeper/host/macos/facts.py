"""Facts about a Mac for the manifest, from sysctl and pmset; nothing that identifies its owner or the machine."""

import re
import sys
from collections.abc import Mapping
from typing import Any

from gatekeeper.core.system.system_names import is_real_mac
from gatekeeper.host.macos import pmset, ps
from gatekeeper.host.macos.system_calls import value_of
from gatekeeper.host.sources import Status, find_agreed_text
from gatekeeper.host.tool_commands import Output, run

KEYS = (
    "machdep.cpu.brand_string", "hw.model", "hw.ncpu", "hw.memsize", "kern.osproductversion", "kern.osversion",
    "kern.osrelease", "kern.boottime", "kern.hv_vmm_present", "sysctl.proc_translated", "iogpu.wired_limit_mb",
    "vm.loadavg",
)  # fmt: skip

ARGV = ("sysctl", *KEYS)
"""Without -n, each line names its key, so that no value can be taken for that of another key."""

_LINE = re.compile(r"([\w.]+): (.*)")

MOST_CORES = 4096
CORE_GRAPHICS = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"
_ASLEEP = (
    "import ctypes, sys; calls = ctypes.CDLL(sys.argv[1]); "
    "displays, count = (ctypes.c_uint32 * 16)(), ctypes.c_uint32(); "
    "code = calls.CGGetOnlineDisplayList(16, displays, ctypes.byref(count)); "
    "print(*([calls.CGDisplayIsAsleep(display) for display in displays[:count.value]] if code == 0 else ['?']))"
)
"""Prints for each display whether it is asleep, in a process of its own: the library connects to the window server.

Apple Silicon has no IODisplayWrangler that tells it.
"""


def facts() -> dict[str, Any]:
    """Return the facts; those of a tool that is missing, fails or hangs are None."""
    line = read_keys(run(ARGV))
    boot = re.match(r"\{ sec = (\d{1,10}), ", line.get("kern.boottime", ""))
    load = re.fullmatch(r"\{ (\d{1,6}\.\d+) (\d{1,6}\.\d+) (\d{1,6}\.\d+) \}", line.get("vm.loadavg", ""))
    limit, memory = (_size(key, line) for key in ("iogpu.wired_limit_mb", "hw.memsize"))
    cores = _whole(line.get("hw.ncpu", ""))
    model = line.get("hw.model")
    return {
        "chip": line.get("machdep.cpu.brand_string"),
        "machine": model,
        "cores": cores if cores is not None and cores <= MOST_CORES else None,
        "memory_bytes": memory,
        "os": line.get("kern.osproductversion"),
        "os_build": line.get("kern.osversion"),
        "kernel": line.get("kern.osrelease"),
        "virtual": _virtual(model, line.get("kern.hv_vmm_present")),
        # The key exists only where translation does; Apple Silicon prints 0 for a native process.
        "translated": {"0": False, "1": True}.get(line.get("sysctl.proc_translated", "")),
        "gpu_wired_limit": limit,
        "power_source": _one(run(["pmset", "-g", "batt"]), pmset.parse_battery, "power_source"),
        "power_mode": _one(run(["pmset", "-g"]), pmset.parse_mode, "power_mode"),
        "booted_at": int(boot.group(1)) if boot else None,
        "display": display() if is_real_mac() else None,
        "heavy_processes": _heavy(run(command) if (command := ps.argv()) else None),
        "load_average": [float(part) for part in load.groups()] if load else None,
    }


def read_keys(output: Output | None) -> dict[str, str]:
    """Return what sysctl printed of each key; a last line without its end may be cut off, and is left out."""
    *lines, _ = ((output.text if output is not None else None) or "").split("\n")
    pairs = [match.groups() for match in map(_LINE.fullmatch, lines) if match]
    by_key = {name: find_agreed_text(value for key, value in pairs if key == name) for name in KEYS}
    return {name: value for name, value in by_key.items() if value is not None}


def display() -> str | None:
    """Return what `parse_display` makes of the window server's answer."""
    return parse_display(run([sys.executable, "-I", "-S", "-c", _ASLEEP, CORE_GRAPHICS]))


def parse_display(output: Output | None) -> str | None:
    """Return "on", "asleep" or "none", of the displays that this session sees; None where it cannot be told."""
    if output is None or output.code != 0 or not re.fullmatch(r"(?:[01]( [01])*)?\n", output.text or ""):
        return None
    asleep = (output.text or "").split()
    return "none" if not asleep else "on" if "0" in asleep else "asleep"


def _size(key: str, line: Mapping[str, str]) -> int | None:
    """Return a size in bytes; None for one that is not known, not set or not possible."""
    count = _whole(line.get(key, ""))
    value = value_of(key, count) if count is not None else None
    return int(value) if isinstance(value, float) else None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,19}", text) else None


def _virtual(model: str | None, present: str | None) -> bool | None:
    if (model is not None and model.startswith("VirtualMac")) or present == "1":
        return True
    return False if model is not None else None


def _one(output: Output | None, parse: Any, name: str) -> str | None:
    value = parse(output).get(name) if output is not None else None
    return value if isinstance(value, str) and not isinstance(value, Status) else None


def _heavy(output: Output | None) -> dict[str, float] | None:
    cores_by_job = (
        ps.cores_of_jobs(output.out.decode("utf-8", "replace")) if output is not None and output.code == 0 else None
    )
    return {name: round(cores, 3) for name, cores in sorted(cores_by_job.items())} if cores_by_job is not None else None
