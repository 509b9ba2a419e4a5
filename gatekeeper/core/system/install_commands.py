"""The commands that install what is missing beside this program, by pip, or by uv where an environment has no pip."""

import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

DISTRIBUTION = "gatekeeper-slo"


_REQUIRED = re.compile(r"""(?P<library>[^;\s]+)\s*;.*\bextra == ["'](?P<extra>\w+)["']""")


def install_extra(extra: str) -> str:
    """Return the command that installs what an *extra* brings beside this program; empty if it came from an index.

    A checkout or a wheel is not found on an index by its name: the libraries of the extra are.
    """
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return ""
    if installed.read_text("direct_url.json") is None:
        return ""
    required = filter(None, map(_REQUIRED.match, installed.requires or ()))
    libraries = [match["library"] for match in required if match["extra"] == extra]
    return install_command(*libraries) if libraries else ""


def install_command(*libraries: str) -> str:
    """Return the command that installs *libraries* into the environment of this program."""
    pip = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None:  # an environment of uv
        pip = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*pip, *libraries])
