"""Commands that can be pasted: this program as the shell calls it, and what installs that which is missing beside it.

What is missing is installed by pip, or by uv where an environment has no pip.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Container
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

NAME = "gatekeeper"
DISTRIBUTION = "gatekeeper-slo"
HUB = "hf"
_COMMAND = re.compile(rf"(?<![\w./-]){NAME} (?=([a-z]+)\b)")
_EXTRA = re.compile(rf"""pip install (["'])?{DISTRIBUTION}\[(?P<extra>\w+)\]\1""")
_REQUIRED = re.compile(r"""(?P<library>[^;\s]+)\s*;.*\bextra == ["'](?P<extra>\w+)["']""")


def own_command() -> str:
    """Return what to type in the place of `gatekeeper`: its path where it is not on PATH."""
    program = Path(sys.argv[0])
    as_module = program.name == "__main__.py" and program.parent.name == NAME
    if as_module:
        program = Path(sys.executable).with_name(NAME)
    elif program.name != NAME:
        return NAME  # inside another program
    if not program.exists():
        return shlex.join([sys.executable, "-m", NAME]) if as_module else NAME
    on_path = shutil.which(NAME)
    if on_path is not None and Path(on_path).samefile(program):
        return NAME
    here, program = Path.cwd(), program.absolute()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))


def hub_command() -> str:
    """Return what to type in the place of `hf`, which downloads models: `uv tool install` puts it on no PATH."""
    if shutil.which(HUB) is not None:
        return HUB
    beside = shutil.which(HUB, path=str(Path(sys.executable).parent))
    return shlex.quote(beside) if beside is not None else f"uvx {HUB}"


def as_typed(command: str) -> str:
    """Return a *command* of this program as it must be typed here."""
    words = command.removeprefix(f"{NAME} ")
    return command if words == command else f"{own_command()} {words}"


def with_own_commands(text: str, names: Container[str]) -> str:
    """Return *text* with each command of this program in it, by its *names*, as it must be typed here."""
    text = _EXTRA.sub(lambda match: install_extra(match["extra"]) or match[0], text)
    if NAME not in text or (own := own_command()) == NAME:
        return text
    return _COMMAND.sub(lambda match: f"{own} " if match[1] in names else match[0], text)


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
