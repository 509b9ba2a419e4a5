"""The device that computes: the GPU or the processor, its memory, and how much of it may be wired for the GPU."""

import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.host.tool_commands import Output, run

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
            **(metal(_told_by_mlx()) if sys.platform == "darwin" else {}),
        }
    if platform == "linux":
        return {"kind": "cpu", **common, **cuda(run(_NVIDIA))}
    return {"kind": "unknown", **common}


def wired_limit(facts: Mapping[str, Any]) -> float | None:
    """Return what the GPU of the Mac with these *facts* may wire: as set, or as Metal recommends; None elsewhere."""
    limit: float | None = facts.get("gpu_wired_limit")
    return limit or (device(facts)["wired_limit"] if facts.get("platform") == "macos" else None)


@cache
def _told_by_mlx() -> Output | None:
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
