"""The names of this system and its chip, read without a package: they are in what `gatekeeper --version` prints."""

import os
import re
import subprocess
from pathlib import Path

from gatekeeper.core.system.environment_variables import GATEKEEPER_HOST_AS

_MAC_KEYS = {"chip": "machdep.cpu.brand_string", "os": "kern.osproductversion", "os_build": "kern.osversion"}


def this_platform() -> str:
    """Return the name of this platform: `macos`, `linux`, or what its kernel calls itself."""
    kernel = os.uname().sysname
    return os.environ.get(GATEKEEPER_HOST_AS) or ("macos" if kernel == "Darwin" else kernel.lower())


def tools_stand_in() -> bool:
    """Return whether the tools on PATH are a test's: they describe no real machine, and its system calls another."""
    return bool(os.environ.get(GATEKEEPER_HOST_AS))


def is_real_mac() -> bool:
    """Return whether this is a Mac whose own tools are on PATH."""
    return this_platform() == "macos" and not tools_stand_in()


def system_names() -> dict[str, str | None]:
    """Return `chip`, `os` and `os_build`; None for one that is not known here."""
    match this_platform():
        case "linux":
            return linux_names()
        case "macos":
            return _mac_names()
        case _:
            return dict.fromkeys(_MAC_KEYS)


def linux_names(proc: Path = Path("/proc"), etc: Path = Path("/etc")) -> dict[str, str | None]:
    """Return the same names of a Linux system, from cpuinfo and os-release."""
    chip = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text_of(proc / "cpuinfo") or "", re.MULTILINE)
    release = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', text_of(etc / "os-release") or "", re.MULTILINE))
    return {
        "chip": chip.group(1).strip() if chip else None,
        "os": " ".join(filter(None, (release.get("NAME"), release.get("VERSION_ID")))) or None,
        "os_build": release.get("BUILD_ID") or None,
    }


def text_of(path: Path) -> str | None:
    """Return the text of a small file without what surrounds it; None where there is none."""
    try:
        return path.read_text("utf-8", "replace").strip("\0\n ") or None
    except OSError:
        return None


def _mac_names() -> dict[str, str | None]:
    argv = ["sysctl", "-n", *_MAC_KEYS.values()]
    try:
        lines = subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        lines = []
    complete = len(lines) == len(_MAC_KEYS)  # `-n` prints no names: a missing line could be any of them
    return dict(zip(_MAC_KEYS, lines, strict=True)) if complete else dict.fromkeys(_MAC_KEYS)
