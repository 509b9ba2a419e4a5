"""Errors on the command line: each as a message and what to do next, whether of the user, of this machine or a bug."""

import errno
import json
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from gatekeeper.cli.common_options import wants_json
from gatekeeper.cli.options import LazyCommand, with_own_commands, wrap_text
from gatekeeper.core.errors import GatekeeperError, nearest_word
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.system.own_limits import own_limit
from gatekeeper.core.text import printable_error


def report_error(error: BaseException, arguments: Sequence[str], root: click.Group, *, color: bool | None) -> int:
    """Print *error* on stderr, and with --json as one line of JSON on stdout, too; return its exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return ExitCode.BAD_INPUT
    described = _describe_error(error, arguments, root)
    message, code = printable_error(described[0]), described[2]
    hint = printable_error(described[1])
    if wants_json(arguments) and not (isinstance(error, GatekeeperError) and error.after_document):
        with suppress(OSError):
            sys.stdout.write(json.dumps({"error": message, "hint": hint, "exit_code": int(code)}) + "\n")
            sys.stdout.flush()
    shown, advice = (
        with_own_commands(wrap_text(text, sys.stderr, columns), root)
        for text, columns in ((message, len("gatekeeper: ")), (hint, len("  hint: ")))
    )
    click.echo(f"{click.style('gatekeeper:', fg='red', bold=True)} {shown}", err=True, color=color)
    if hint:
        click.echo(f"{click.style('  hint:', bold=True)} {advice}", err=True, color=color)
    return code


def _describe_error(error: BaseException, arguments: Sequence[str], root: click.Group) -> tuple[str, str, int]:
    """Return the message of an error, what to do next, and the exit code."""
    if isinstance(error, GatekeeperError):
        return error.message, error.hint, error.exit_code
    if isinstance(error, click.ClickException):
        message, hint = _usage_error(error)
        return message, hint, ExitCode.BAD_INPUT
    if isinstance(error, KeyboardInterrupt | click.Abort):
        hints = (getattr(failure, "hint", None) for failure in (error, error.__cause__))  # click makes an Abort of it
        hint = next(filter(None, hints), None) or _after_interrupt(arguments, root)
        return "interrupted", hint, ExitCode.INTERRUPTED
    return _failure(error)


def _after_interrupt(arguments: Sequence[str], root: click.Group) -> str:
    """Return what to do after Ctrl-C; a run says it itself."""
    command = next((root.commands[word] for word in arguments if word in root.commands), None)
    return command.after_interrupt() if isinstance(command, LazyCommand) else ""


def _usage_error(error: click.ClickException) -> tuple[str, str]:
    """Return the message of a mistake on the command line as all errors are written, and its hint."""
    message, suggested = error.format_message(), None
    choice = getattr(getattr(error, "param", None), "type", None)
    if isinstance(error, click.NoSuchOption):
        options = [name for option in error.ctx.command.params for name in option.opts] if error.ctx is not None else []
        # Without the dashes, which all have in common.
        near = nearest_word(error.option_name.lstrip("-"), (name.lstrip("-") for name in options if name[:2] == "--"))
        message, suggested = error.message, f"--{near}" if near is not None else None
    elif isinstance(choice, click.Choice):
        word = message.partition(": '")[2].partition("'")[0]
        suggested = nearest_word(word, map(str, choice.choices))
    hint = _help_hint(error, message)
    message = " ".join(message.split())
    message = message[:1].lower() + message[1:].removesuffix(".")
    message = message.replace("is not a valid integer range", "is no whole number")
    message = message.replace("is not a valid float range", "is no number")
    message = re.sub(r"is not in the range x>=(\S+)$", r"must be at least \1", message)
    message = re.sub(r"is not in the range (\S+)<=x<=(\S+)$", r"must be from \1 to \2", message)
    return message, f"did you mean '{suggested}'? {hint}" if suggested else hint


def _help_hint(error: click.ClickException, message: str) -> str:
    """Return where the command is explained; of a missing or superfluous argument, first which it takes."""
    context: click.Context | None = getattr(error, "ctx", None)
    if context is None:
        return "see: gatekeeper --help"
    hint = f"see: {context.command_path} --help"
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Option):
        name, about = error.param.get_help_record(context) or ("", "")
        return f"{name}: {about.partition(' [')[0].strip().removesuffix('.')}; {hint}"
    if " argument" not in message:
        return hint
    return f"usage: {context.command_path} {' '.join(context.command.collect_usage_pieces(context))}; {hint}"


def _failure(error: BaseException) -> tuple[str, str, ExitCode]:
    """Return which limit was reached, or what cannot be written or opened; any other unexpected error is a bug."""
    if (reached := own_limit(error)) is not None:
        return reached.message, reached.hint, ExitCode.INTERNAL_ERROR
    if isinstance(error, OSError) and error.filename is None and (trouble := _output_trouble()):
        hint = "free disk space, or send the output to another file"
        return f"cannot write the output: {trouble}", hint, ExitCode.INTERNAL_ERROR
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"cannot open {error.filename}: {error.strerror}", "use a shorter path", ExitCode.BAD_INPUT
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("gatekeeper"):
        from gatekeeper.core.system.own_command import DISTRIBUTION, install_command

        hint = f"install gatekeeper again, with what it needs: {install_command(DISTRIBUTION)}"
        return f"this installation lacks the module {error.name}", hint, ExitCode.INTERNAL_ERROR
    sys.stderr.write(printable_error("".join(traceback.format_exception(error))))
    message = f"this is a bug: {type(error).__name__}: {error}"
    return message, "please report it with the traceback above", ExitCode.INTERNAL_ERROR


def _output_trouble() -> str:
    """Return why stdout cannot be written, by writing one more line end; an empty text where it can be."""
    try:
        sys.stdout.write("\n")  # of an output that was too large for its buffer, nothing is left to write
        sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""
