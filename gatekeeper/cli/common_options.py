"""The options that mean the same in every command that has them: --json, --output, --quiet, --verbose; and colour."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.core.errors import did_you_mean
from gatekeeper.core.system.environment_variables import FORCE_COLOR, NO_COLOR


class GlobalOption(click.Option):
    """An option that means the same in every command: only `gatekeeper --help` describes it."""

    def get_help_record(self, ctx: click.Context) -> None:
        """Return nothing: the help of a command does not repeat it."""


AS_JSON = click.option("--json", "as_json", is_flag=True, cls=GlobalOption, help="Print one JSON document on stdout.")
QUIET = click.option("--quiet", "-q", is_flag=True, cls=GlobalOption, help="Show no progress on stderr.")
VERBOSE = click.option("--verbose", "-v", is_flag=True, cls=GlobalOption, help="Print explanations too.")
GLOBAL_OPTIONS = {
    "-o FILE, --output FILE": "write to a file, in the format of its extension",
    "--json": "print one document",
    "-q, --quiet": "no progress",
    "-v, --verbose": "explain more",
    "-h, --help": "show the help",
    "-V, --version": "show the versions",
}
"""The options that mean the same in many commands, as `gatekeeper --help` and the reference list them."""


def add_common(command: click.Command) -> click.Command:
    """Add --output to a command that prints a document; let the last line of its help name the global options."""
    if isinstance(command, click.Group):
        for member in command.commands.values():
            add_common(member)
        return command
    if command.epilog is not None or command.context_settings.get("ignore_unknown_options"):
        return command  # it has them, or passes its options on to a remote host
    names = {name for option in command.params for name in option.opts}
    if "--json" in names and command.name != "watch":  # whose output has no end
        if "--output" not in names:
            about = "Write to this file instead of stdout; its extension decides the format."
            path = click.Path(path_type=Path)
            command.params.append(GlobalOption(["-o", "--output", "output_file"], type=path, help=about))
        if command.callback is not None:
            from gatekeeper.cli.output_file import with_output

            command.callback = with_output(command.callback, has_format="--format" in names)
    click.help_option("-h", "--help", cls=GlobalOption)(command)
    names = {min(option.opts, key=len) for option in command.params if isinstance(option, GlobalOption)}
    command.epilog = (
        f"See gatekeeper --help: {', '.join(name for name in ('-o', '--json', '-q', '-v', '-h') if name in names)}"
    )
    return command


def is_colored() -> bool | None:
    """Return whether to colour whatever the stream is; None leaves it to the stream."""
    if os.environ.get(NO_COLOR):
        return False
    return True if os.environ.get(FORCE_COLOR) else None


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether the command line asks for JSON on stdout, even where it is wrong otherwise."""
    return "--json" in arguments or option_value(arguments, "--format") == "json"


def unknown_command_hint(word: str, commands: Sequence[str], latest: str) -> str:
    """Return what is meant by a *word* in the place of a command: a run, an SLO file, or a command near to it."""
    from gatekeeper.core.system.run_directory import is_run

    if word == latest or is_run(Path(word)):
        return f"it is a run: gatekeeper report {shlex.quote(word)}"
    if word.endswith(".toml"):
        return f"it is an SLO file: gatekeeper certify {shlex.quote(word)}"
    return did_you_mean(word, commands)


def option_value(arguments: Sequence[str], option: str) -> str | None:
    """Return the last value given to *option*, before the command line is parsed."""
    value = None
    for number, word in enumerate(arguments):
        if word.startswith(f"{option}="):
            value = word.partition("=")[2]
        elif word == option and number + 1 < len(arguments):
            value = arguments[number + 1]
    return value
