"""What a bug report needs: the versions of this program and its packages, the system and the chip."""

import platform
import re
import sys
from pathlib import Path

from gatekeeper import __version__
from gatekeeper.core.rules import RULES
from gatekeeper.core.system.system_names import system_names, text_of, this_platform

PACKAGES = ("mlx", "mlx-lm", "numpy")
"""Packages of this environment whose versions influence the measurements."""


def versions() -> dict[str, str | None]:
    """Return what a bug report needs: versions of gatekeeper, its rules, Python and PACKAGES, the system, the chip."""
    names = system_names()
    system = " ".join(filter(None, ("macOS" if this_platform() == "macos" else None, names["os"], names["os_build"])))
    return {
        "gatekeeper": __version__,
        "rules": str(RULES),
        "python": f"{platform.python_version()} ({platform.machine()})",
        **{name: _version(name) for name in PACKAGES},
        "os": system or None,
        "chip": names["chip"],
    }


def _version(package: str) -> str | None:
    """Return a package's version from its metadata file: `importlib.metadata` takes longer than all the rest."""
    name = package.replace("-", "_")
    patterns = (f"{name}-[0-9]*.dist-info/METADATA", f"{name}-[0-9]*.egg-info/PKG-INFO", f"{name}.egg-info/PKG-INFO")
    files = (file for folder in sys.path for pattern in patterns for file in Path(folder).glob(pattern))
    lines = (re.search(r"^Version: (.+)$", text_of(file) or "", re.MULTILINE) for file in files)
    return next((line.group(1).strip() for line in lines if line), None)
