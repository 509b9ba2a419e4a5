"""Output of the tools of a Mac, written from their grammars with numbers of our own, and the library of its calls."""

import functools
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.host.macos.system_calls import STAND_IN

MINI = "mac-mini"
"""Folder of the sysctl that all tests find first on PATH, but those of the Mac that runs them."""
LIBRARY = Path(__file__).parent / "stand_ins" / "mac" / "system_library.c"

VM_STAT_ROWS: dict[str, int] = {
    "Pages free": 90_000,
    "Pages active": 400_000,
    "Pages inactive": 390_000,
    "Pages speculative": 10_000,
    "Pages throttled": 0,
    "Pages wired down": 210_000,
    "Pages purgeable": 15_000,
    '"Translation faults"': 7_000_000_001,
    "Pages copy-on-write": 5_001,
    "Pages zero filled": 6_002,
    "Pages reactivated": 7_003,
    "Pages purged": 8_004,
    "File-backed pages": 250_000,
    "Anonymous pages": 550_000,
    "Pages stored in compressor": 300_000,
    "Pages occupied by compressor": 110_000,
    "Decompressions": 12_345,
    "Compressions": 23_456,
    "Pageins": 34_567,
    "Pageouts": 4_567,
    "Swapins": 321,
    "Swapouts": 654,
}

TAGGED_ROWS = {"Pages tagged": 1_000, "Bytes of compressed tags": 999_999, "Tagged compressions": 77}


def vm_stat(page: int = 16384, width: int = 35, **changed: int) -> str:
    """Print the rows as one shot of vm_stat does; *changed* names rows with underscores for spaces and hyphens."""
    rows = dict(VM_STAT_ROWS)
    row_names = {name.strip('"').replace(" ", "_").replace("-", "_"): name for name in rows}
    rows |= {row_names.get(name, name.replace("_", " ")): value for name, value in changed.items()}
    head = f"Mach Virtual Memory Statistics: (page size of {page} bytes)\n"
    return head + "".join(f"{name + ':':<{width}}{value:>16}.\n" for name, value in rows.items())


SYSCTL: dict[str, str] = {
    "hw.memsize": "25769803776",
    "iogpu.wired_limit_mb": "0",
    "hw.model": "Mac16,10",
    "hw.ncpu": "10",
    "machdep.cpu.brand_string": "Apple M4",
    "kern.osproductversion": "26.1",
    "kern.osversion": "25B70",
    "kern.osrelease": "25.1.0",
    "kern.boottime": "{ sec = 1790000000, usec = 12 } Mon Sep 21 14:13:20 2026",
    "kern.hv_vmm_present": "0",
    "sysctl.proc_translated": "0",
    "vm.loadavg": "{ 1.10 2.20 3.30 }",
}


def sysctl_script(**changed: str | None) -> str:
    """Return a script of sysctl: -n leaves out the keys, unknown ones are errors; *changed* uses `__` for dots."""
    values: dict[str, str | None] = {**SYSCTL, **{key.replace("__", "."): value for key, value in changed.items()}}
    cases = "\n".join(f"  {key}) echo \"$named\"'{value}';;" for key, value in values.items() if value is not None)
    return (
        'bare=no code=0\n[ "$1" = -n ] && bare=yes && shift\n'
        'for key in "$@"; do named="$key: "; [ "$bare" = no ] || named=; case "$key" in\n'
        + cases
        + "\n  *) echo \"sysctl: unknown oid '$key'\" >&2; code=1;;\nesac; done\nexit $code"
    )


def ioreg(busy: int = 41, memory: int = 626_000_000, resets: int = 0) -> str:
    """Print an accelerator as ioreg does."""
    return (
        "+-o AGXAcceleratorG16G  <class AGXAcceleratorG16G, id 0x100000abc, registered, matched, active, busy 0>\n"
        '    {\n      "IOClass" = "AGXAcceleratorG16G"\n'
        f'      "PerformanceStatistics" = {{"In use system memory (driver)"=0,"Alloc system memory"=1700000000,'
        f'"Device Utilization %"={busy},"recoveryCount"={resets},"In use system memory"={memory}}}\n    }}\n'
    )


PLIST_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" '
    '"http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n<plist version="1.0">\n<dict>\n'
)


def powermetrics(
    *,
    delta: bool = True,
    cpu: float = 2400.5,
    gpu: float = 9100.25,
    combined: float = 11500.75,
    mhz: float = 1380.0,
    idle: float = 0.03,
    pressure: str = "Nominal",
) -> str:
    """Print one sample as `powermetrics -f plist` does, without the NUL that separates samples."""
    return (
        PLIST_HEAD + f"<key>is_delta</key><{str(delta).lower()}/>\n<key>elapsed_ns</key><integer>1004000000</integer>\n"
        "<key>hw_model</key><string>Mac16,10</string>\n"
        f"<key>processor</key>\n<dict>\n<key>clusters</key>\n<array>\n</array>\n"
        f"<key>cpu_energy</key><integer>2410</integer>\n<key>cpu_power</key><real>{cpu}</real>\n"
        f"<key>gpu_energy</key><integer>9136</integer>\n<key>gpu_power</key><real>{gpu}</real>\n"
        f"<key>combined_power</key><real>{combined}</real>\n</dict>\n"
        f"<key>thermal_pressure</key><string>{pressure}</string>\n"
        f"<key>gpu</key>\n<dict>\n<key>freq_hz</key><real>{mhz}</real>\n<key>idle_ratio</key><real>{idle}</real>\n"
        "<key>gpu_energy</key><integer>9999</integer>\n</dict>\n</dict>\n</plist>\n"
    )


def macmon(
    version: str, *, rpm: int | None = 1320, cpu: float = 2.5, gpu: float = 8.5, system: float = 19.75
) -> dict[str, Any]:
    """Return one line of `macmon pipe` as an object, in the layout of 0.5, 0.6 or 0.8, with powers in W."""
    line: dict[str, Any] = {
        "temp": {"cpu_temp_avg": 61.5, "gpu_temp_avg": 58.25},
        "memory": {"ram_total": 25769803776, "ram_usage": 18000000000, "swap_total": 0, "swap_usage": 0},
        "ecpu_usage": [1100, 0.15],
        "pcpu_usage": [2500, 0.25],
        "gpu_usage": [1380, 0.875],
        "cpu_power": cpu,
        "gpu_power": gpu,
        "ane_power": 0.0,
        "all_power": cpu + gpu,
        "sys_power": system,
        "ram_power": 0.5,
        "gpu_ram_power": 0.125,
    }
    if version == "0.5":
        return line
    if version == "0.6":
        return dict(sorted((line | {"timestamp": "2026-11-20T09:12:00.5+00:00"}).items()))
    newer = {"gpu_freq_mhz": 1390, "gpu_scaled_ratio": 0.9, "gpu_active_ratio": 0.96875}
    fans = [{"name": "fan0", "rpm": rpm, "max_rpm": 4900}] if rpm is not None else []
    return line | newer | {"fans": fans}


def macmon_line(version: str) -> bytes:
    """Return the line as bytes."""
    return json.dumps(macmon(version)).encode() + b"\n"


def prints(text: str) -> str:
    """Return a script that prints *text*."""
    return f"printf %s {shlex.quote(text)}"


def _repeats(item: str, separator: str) -> str:
    return f"yes | while read -r _; do {prints(item)}; printf '{separator}'; sleep 0.05; done"


COMPILER = shutil.which("cc") or shutil.which("gcc")
"""Found before a test changes PATH."""


def build_library(folder: Path) -> Path:
    """Compile the library that answers Apple's calls into *folder*; skip the test where there is no C compiler."""
    if COMPILER is None:
        pytest.skip("no C compiler here")
    path = folder / STAND_IN
    path.write_bytes(_compiled())
    path.chmod(0o755)
    return path


@functools.cache
def _compiled() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STAND_IN
        # The compiler's own programs are on PATH, which may hold a test's tools alone.
        environment = {"PATH": os.defpath}
        argv = [str(COMPILER), "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(path), str(LIBRARY)]
        subprocess.run(argv, check=True, timeout=60, env=environment)
        return path.read_bytes()


def write_tools(folder: Path, scripts: Mapping[str, str]) -> None:
    """Write *scripts* into *folder* as programs, by their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)


def healthy() -> dict[str, str]:
    """Return a shell script for each tool of a healthy Mac, by the tool's name."""
    return {
        "vm_stat": prints(vm_stat()),
        "sysctl": sysctl_script(),
        "ioreg": prints(ioreg()),
        "pmset": "case \"$*\" in '-g batt') echo \"Now drawing from 'AC Power'\";; *) echo ' powermode 0';; esac",
        "ps": "echo ' 25.0 /usr/libexec/mdworker_shared'",
        "sudo": 'shift; exec "$@"',
        "powermetrics": _repeats(powermetrics(), "\\0"),
        "macmon": _repeats(json.dumps(macmon("0.8")), "\\n"),
    }


ROOMY = {"File_backed_pages": 800_000, "Anonymous_pages": 200_000, "Pages_inactive": 590_000}
"""14.8 GB to be had without swapping."""


def healthy_mini(folder: Path, **broken: str) -> dict[str, str]:
    """Write the tools of a healthy Mac mini, *broken* ones in place of some; return the variables that name them.

    The memory that can be had comes from vm_stat, because the call for it fails.
    """
    tools = healthy()
    scripts = {name: tools[name] for name in ("sysctl", "ioreg", "pmset", "sudo")} | {
        "vm_stat": prints(vm_stat(**ROOMY)),
        "powermetrics": f"while :; do {prints(powermetrics())}; printf '\\0'; sleep 0.2; done",
    }
    write_tools(folder, scripts | broken)
    build_library(folder)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "GATEKEEPER_HOST_AS": "macos", "STAND_IN": "no_pages"}
