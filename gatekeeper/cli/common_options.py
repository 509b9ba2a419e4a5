"""The options that every command has: --json, --format, --output, --quiet, --verbose, --color; and what they do."""

import errno
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from gatekeeper.core.errors import GatekeeperError, InputError, did_you_mean
from gatekeeper.core.system.environment_variables import FORCE_COLOR, NO_COLOR

STREAMS = frozenset({"host", "watch"})
"""Commands whose output has no end of its own, so that no file holds all of it."""
FORMAT_OF = {
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".xml": "junit",
    ".yaml": "openslo",
    ".yml": "openslo",
    ".txt": "text",
    ".sarif": "sarif",
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".parquet": "parquet",
}
"""The format of an output file, by its extension."""
TEXTS = ("text/", "application/json", "application/toml", "application/yaml", "application/xml")
"""Media types that our output may have."""
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
    if "as_json" in params and "--format" not in names and command.name not in STREAMS:
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
        command.callback = _with_output(command.callback, own_format="form" in params, own_quiet="quiet" in params)
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


def _with_output(callback: Callable[..., Any], *, own_format: bool, own_quiet: bool) -> Callable[..., Any]:
    """Return *callback* with --format and --output carried out around it."""

    def call(*words: Any, **options: Any) -> Any:
        output: Path | None = options.pop("output_file", None)
        quiet = options["quiet"] if own_quiet else options.pop("quiet")
        if output is not None and (chosen := _format_by_extension(output)) is not None:
            options["form"] = chosen
        if own_format:
            if options.get("as_json"):
                options["form"] = "json"
        elif options.pop("form", "text") == "json":
            options["as_json"] = True
        if output is None:
            return callback(*words, **options)
        from gatekeeper.core.system.run_directory import check_outside_of_runs

        check_outside_of_runs(output)
        if not output.parent.is_dir():  # said before the work, not after it
            hint = f"make it: mkdir -p {shlex.quote(str(output.parent))}; or choose another --output"
            raise InputError(f"cannot write {output}: there is no folder {output.parent}", hint=hint)
        written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")
        with redirect_stdout(written):
            code = callback(*words, **options)
        written.flush()
        _write(output, written.buffer.getvalue())
        if not quiet:
            _note_other_format(output, options.get("form", "text"))
            sys.stdout.write(f"wrote {output}\n")
        return code

    call.__name__, call.__doc__ = callback.__name__, callback.__doc__
    return call


def _write(output: Path, content: bytes) -> None:
    """Write a file, whole or not at all; raise what is wrong with its place."""
    try:
        output.write_bytes(content)
    except IsADirectoryError:
        raise InputError(f"--output {output} is a folder", hint="name a file in it") from None
    except OSError as error:
        from gatekeeper.core.system.files import why_not_written

        hint = "choose another --output"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            if output.is_file():  # no device, such as /dev/full
                output.unlink()  # a part of a report may look like all of it
            hint = f"free disk space, or {hint}"
        raise GatekeeperError(f"cannot write {output}: {why_not_written(output, error)}", hint=hint) from error


def _note_other_format(output: Path, form: str) -> None:
    """Say where a file holds another format than its extension names, because --format goes first.

    Any format may be kept as .txt; SARIF is JSON; a format without an extension of its own is never wrong.
    """
    extension = FORMAT_OF.get(output.suffix.lower())
    if extension in {None, "text", form} or form not in FORMAT_OF.values() or (form, extension) == ("sarif", "json"):
        return
    click.echo(f"gatekeeper: note: {output} holds {form}, as --format says, not {extension}", err=True)


def _is_of_a_program(output: Path) -> bool:
    """Return whether a file's extension names what no format of ours is: a PDF, a picture, an archive."""
    import mimetypes

    kind, encoding = mimetypes.guess_type(output.name)
    return encoding is not None or (kind is not None and not kind.startswith(TEXTS))


def _format_by_extension(output: Path) -> str | None:
    """Return the format that the file's extension names; None where --format was given, or no extension is known."""
    context = click.get_current_context()
    if context.get_parameter_source("form") is not click.core.ParameterSource.DEFAULT:
        return None
    form = FORMAT_OF.get(output.suffix.lower())
    if form is None and not _is_of_a_program(output):
        return None
    (option,) = (parameter for parameter in context.command.params if parameter.name == "form")
    choices = list(getattr(option.type, "choices", ()))
    if form not in choices:
        raise InputError(
            f"--output {output}: {context.info_name} has no format for {output.suffix}",
            hint=f"its formats: {', '.join(choices)}; name one with --format",
        )
    return form
