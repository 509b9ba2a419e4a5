"""Facts about the host and the device that computes, None where unknown, never a serial number.

They are for the manifest and around each soak.
"""

import os
import platform as python_platform
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.system.system_names import (
    is_real_mac,
    linux_names,
    text_of,
    this_platform,
    tools_stand_in,
)
from gatekeeper.host import linux
from gatekeeper.host.macos import facts as macos_facts
from gatekeeper.host.sources import Status
from gatekeeper.host.tool_commands import Output, run

KEYS = (
    "platform", "chip", "machine", "cores", "memory_bytes", "os", "os_build", "kernel", "virtual", "translated",
    "gpu_wired_limit", "power_source", "power_mode", "booted_at", "uptime_s", "heavy_processes", "load_average",
)  # fmt: skip


def facts(platform: str | None = None) -> dict[str, Any]:
    """Return the facts as plain JSON. Taken before and after a soak, they show what changed during it."""
    name = platform or this_platform()
    tool_facts: Mapping[str, Any] = macos_facts.facts() if name == "macos" else _linux() if name == "linux" else {}
    host_facts: dict[str, Any] = dict.fromkeys(KEYS) | {"platform": name} | dict(tool_facts)
    if tools_stand_in():
        host_facts["replayed"] = True
    if host_facts["booted_at"] is not None and host_facts["uptime_s"] is None:
        host_facts["uptime_s"] = round(datetime.now(UTC).timestamp() - host_facts["booted_at"], 1)
    if isinstance(host_facts["booted_at"], float | int):
        host_facts["booted_at"] = datetime.fromtimestamp(host_facts["booted_at"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return host_facts


def _linux(proc: Path = linux.PROC, sysfs: Path = linux.SYS, etc: Path = Path("/etc")) -> dict[str, Any]:
    cpuinfo = text_of(proc / "cpuinfo") or ""
    uptime = re.match(r"(\d{1,12}\.\d+) ", text_of(proc / "uptime") or "")
    boot = re.search(r"^btime (\d{1,10})$", text_of(proc / "stat") or "", re.MULTILINE)
    vendor = " ".join(filter(None, (text_of(sysfs / "class/dmi/id" / key) for key in ("sys_vendor", "product_name"))))
    supply = linux.PowerSupply(sysfs).read().get("power_source")
    load = re.match(r"(\d{1,6}\.\d+) (\d{1,6}\.\d+) (\d{1,6}\.\d+) ", text_of(proc / "loadavg") or "")
    return {
        **linux_names(proc, etc),
        "machine": text_of(sysfs / "class/dmi/id/product_name"),
        "cores": os.cpu_count() if sys.platform == "linux" else None,
        "memory_bytes": _memory(proc),
        "kernel": text_of(proc / "sys/kernel/osrelease") or python_platform.release() or None,
        "virtual": _virtual(cpuinfo, vendor),
        "power_source": supply if isinstance(supply, str) and not isinstance(supply, Status) else None,
        "power_mode": text_of(sysfs / "firmware/acpi/platform_profile"),
        "booted_at": int(boot.group(1)) if boot else None,
        "uptime_s": float(uptime.group(1)) if uptime else None,
        "load_average": [float(part) for part in load.groups()] if load else None,
    }


def _memory(proc: Path) -> int | None:
    try:
        total = linux.Meminfo(proc).read()["memory_total"]
    except (OSError, ValueError):
        return None
    return round(total) if isinstance(total, float) and not isinstance(total, Status) else None


def _virtual(cpuinfo: str, vendor: str) -> bool | None:
    """Recognise a virtual machine by the processor's flag or the board's vendor; None where neither is known."""
    if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE):
        return True
    if re.search(r"QEMU|KVM|VMware|VirtualBox|Xen|Virtual Machine|Google Compute|Amazon EC2|Parallels", vendor):
        return True
    return False if vendor or re.search(r"^flags\s*:", cpuinfo, re.MULTILINE) else None


_MLX = (
    "import json, mlx.core as mx; tell = getattr(mx, 'device_info', None) or mx.metal.device_info; "
    "print(json.dumps(tell()))"
)
"""Metal is asked through MLX, in a process of its own: it takes memory that is measured later."""
FIRST_IMPORT_S = 60.0
"""A library that was just installed is scanned when it is first imported, for 10 to 20 s."""
_NVIDIA = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
FROM_METAL, FROM_SYSCTL = "Metal's recommended working set", "iogpu.wired_limit_mb"


def device(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device of the host that *facts* describe; a value that is not known is None."""
    common: dict[str, Any] = {"name": facts.get("chip"), "memory_bytes": facts.get("memory_bytes")}
    common |= {"wired_limit": None, "wired_limit_from": None}
    platform = facts.get("platform")
    if platform == "macos":
        if limit := facts.get("gpu_wired_limit"):
            common |= {"wired_limit": limit, "wired_limit_from": FROM_SYSCTL}
        return {
            "kind": "metal",
            **common,
            **(metal(_ask_metal()) if is_real_mac() else {}),
        }
    if platform == "linux":
        return {"kind": "cpu", **common, **cuda(run(_NVIDIA))}
    return {"kind": "unknown", **common}


def wired_limit(facts: Mapping[str, Any]) -> float | None:
    """Return what the GPU of the Mac with these *facts* may wire: as set, or as Metal recommends; None elsewhere."""
    limit: float | None = facts.get("gpu_wired_limit")
    return limit or (device(facts)["wired_limit"] if facts.get("platform") == "macos" else None)


@cache
def _ask_metal() -> Output | None:
    return run([sys.executable, "-c", _MLX], FIRST_IMPORT_S)


def metal(output: Output | None) -> dict[str, Any]:
    """Return what Metal says of itself; nothing where it was not asked or does not say it."""
    try:
        info = json_value(output.out) if output is not None and output.code == 0 else {}
    except ParseError:
        info = {}
    if not isinstance(info, dict) or not _whole(info.get("max_recommended_working_set_size")):
        return {}
    facts = {"wired_limit": info["max_recommended_working_set_size"], "wired_limit_from": FROM_METAL}
    facts |= {"memory_bytes": info["memory_size"]} if _whole(info.get("memory_size")) else {}
    name = info.get("device_name")
    return facts | ({"name": name[:200]} if isinstance(name, str) and name.isprintable() else {})


def cuda(output: Output | None) -> dict[str, Any]:
    """Return the CUDA devices that nvidia-smi lists, the first one's memory; nothing where there is none."""
    text = output.text if output is not None and output.code == 0 else None
    rows = [re.fullmatch(r"(.{1,200}), (\d{1,9})", line.strip()) for line in (text or "").splitlines()[:64]]
    devices = [row for row in rows if row is not None and row[1].isprintable()]
    if not devices:
        return {}
    names = ", ".join(row[1] for row in devices)
    return {"kind": "cuda", "name": names, "memory_bytes": int(devices[0][2]) << 20}


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
