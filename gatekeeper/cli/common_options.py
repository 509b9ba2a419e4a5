"""The options that every command has: --json, --format, --output, --quiet, --verbose, --color."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.core.errors import did_you_mean
from gatekeeper.core.system.environment_variables import FORCE_COLOR, NO_COLOR

_VERBOSE = "gatekeeper.verbose"


class GlobalOption(click.Option):
    """An option that means the same in every command: only `gatekeeper --help` describes it."""

    def get_help_record(self, ctx: click.Context) -> None:
        """Return nothing: the help of a command does not repeat it."""


AS_JSON = click.option("--json", "as_json", is_flag=True, cls=GlobalOption, help="Print one JSON document on stdout.")
QUIET = click.option("--quiet", "-q", is_flag=True, cls=GlobalOption, help="Show no progress on stderr.")
GLOBAL_OPTIONS = {
    "-q, --quiet": "Print no progress, and less on stderr.",
    "-v, --verbose": "Print explanations too.",
    "--color WHEN": "auto (for a terminal, unless NO_COLOR is set), always, never.",
    "--json": "Print one JSON document on stdout, as --format json does.",
    "-o, --output": "Write to this file; its extension decides the format.",
    "-h, --help": "Show the help of the program, or of a command.",
    "-V, --version": "Show the versions for a bug report.",
}
"""What `gatekeeper --help` says of the options that commands have in common."""


def _name_global_options(command: click.Command) -> None:
    """Let the help of *command* name the global options that it takes, in its last line."""
    click.help_option("-h", "--help", cls=GlobalOption)(command)
    names = {min(option.opts, key=len) for option in command.params if isinstance(option, GlobalOption)}
    in_order = [name for name in ("-q", "-v", "--color", "--json", "--format", "-o") if name in names]
    command.epilog = f"Global options, see gatekeeper --help: {', '.join(in_order)}"


def add_common(command: click.Command) -> click.Command:
    """Add the common options that *command* lacks."""
    if isinstance(command, click.Group):
        for member in command.commands.values():
            add_common(member)
        return command
    names = {name for option in command.params for name in option.opts}
    if "--color" in names or command.context_settings.get("ignore_unknown_options"):
        return command  # it has them, or passes its options on to a remote host
    params = {str(option.name) for option in command.params}
    if "as_json" in params and "--format" not in names and command.name != "watch":  # its output has no end
        forms = click.Choice(["text", "json"])
        command.params.append(
            GlobalOption(["--format", "form"], type=forms, default="text", show_default=True, help="Output format.")
        )
        names.add("--format")
    if "--format" in names and "--output" not in names:
        path, about = (
            click.Path(path_type=Path),
            "Write to this file instead of stdout; its extension decides the format.",
        )
        command.params.append(GlobalOption(["-o", "--output", "output_file"], type=path, help=about))
    if "quiet" not in params:
        command.params.append(GlobalOption(["-q", "--quiet"], is_flag=True, help="Print less on stderr."))
    if command.callback is not None:
        from gatekeeper.cli.output_file import with_output

        command.callback = with_output(command.callback, own_format="form" in params, own_quiet="quiet" in params)
    add_display(command)
    _name_global_options(command)
    return command


def add_display(command: click.Command) -> None:
    """Add --verbose and --color, which may stand before the name of a command as well."""
    command.params += [
        GlobalOption(
            ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_set_verbose, help="Print explanations too."
        ),
        GlobalOption(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            expose_value=False,
            help="Colour the output [default: auto: on a terminal, unless NO_COLOR is set].",
        ),
    ]


def _set_verbose(context: click.Context, _option: click.Parameter, verbose: bool) -> None:
    context.meta[_VERBOSE] = verbose or context.meta.get(_VERBOSE, False)


def is_verbose() -> bool:
    """Return whether the user asked for explanations."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_VERBOSE))


def apply_color(arguments: Sequence[str]) -> bool | None:
    """Return whether to colour whatever the stream is; None leaves it to the stream.

    --color also goes into the environment, where other libraries look for it.
    """
    color = option_value(arguments, "--color")
    if color in {"always", "never"}:
        variable, opposite = (FORCE_COLOR, NO_COLOR) if color == "always" else (NO_COLOR, FORCE_COLOR)
        os.environ[variable] = "1"
        os.environ.pop(opposite, None)
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
