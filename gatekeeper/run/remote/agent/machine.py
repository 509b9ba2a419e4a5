"""The machine: which start of it this is, and which Pythons it has."""

import contextlib
import glob
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from gatekeeper.run.remote.agent.processes import clean

PYTHONS = ("python3", "python3.13", "python3.12", "python3.11", "python3.14", "python")
"""The order in which a Python is looked for; the first that is new enough is taken."""
PLACES = ("/opt/homebrew/bin", "/usr/local/bin", "~/.local/bin")
ELSEWHERE = (
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "/Library/Frameworks/Python.framework/Versions/*/bin",
)
PROBE = """
import sys
print(".".join(map(str, sys.version_info[:3])))
import venv, ensurepip
print("venv")
"""


def boot_id() -> str:
    """Return what changes with every start of this machine; nothing where it can not be told."""
    named = os.environ.get("GATEKEEPER_BOOT_ID_FILE")
    with contextlib.suppress(OSError):
        return Path(named or "/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(asked, stdout=subprocess.PIPE, check=True, timeout=10).stdout.decode().strip()
    return ""


def pythons() -> "List[str]":
    """Return the Pythons there are, each once, in the order they are tried."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *PLACES]
    for pattern in ELSEWHERE:
        folders += sorted(glob.glob(os.path.expanduser(pattern)), reverse=True)
    found: Dict[str, str] = {}
    for name in PYTHONS:
        for folder in folders:
            path = os.path.join(os.path.expanduser(folder), name)
            if folder and os.access(path, os.X_OK) and not _is_stub(path):
                found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _is_stub(path: str) -> bool:
    """Tell whether *path* is what macOS keeps in a Python's place: it opens a window that asks to install one."""
    if path != "/usr/bin/python3" or sys.platform != "darwin":
        return False
    asked = ["/usr/bin/xcode-select", "-p"]
    return subprocess.call(asked, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0


def probe(path: str) -> "Tuple[Optional[str], bool]":
    """Return the version of a Python, if it is one, and whether it can make environments that have pip."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        ran = subprocess.run(
            [path, "-I", "-c", PROBE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            check=False, timeout=20, env=clean(),
        )  # fmt: skip
        said = ran.stdout.decode(errors="replace").split()
        if said and re.fullmatch(r"\d+\.\d+\.\d+", said[0]):
            return said[0], said[1:] == ["venv"]
    return None, False
