"""The command line: its commands, error messages and exit codes. Heavy imports wait until a command runs."""

import errno
import json
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import click

from gatekeeper.cli import deploy, probe, read, regression, setup, stored_runs, watch
from gatekeeper.cli import run as run_commands
from gatekeeper.cli.common_options import add_common, add_display, apply_color, wants_json
from gatekeeper.cli.options import CommandGroup, LazyCommand
from gatekeeper.core.errors import ExitCode, GatekeeperError


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.option(
    "-V", "--version", is_flag=True, expose_value=False, is_eager=True, callback=setup.show_versions,
    help="Show the versions for a bug report and exit.",
)  # fmt: skip
def gatekeeper() -> None:
    """Certify speculative decoding before you deploy it.

    gatekeeper measures plain decoding, sweeps one knob at a time, soaks the best setting and checks every objective of
    an SLO file. Then it promotes speculative decoding or grades it back, for each workload.

    \b
    Exit codes:
      0    safe to deploy policy.toml        3    unproven: evidence is missing
      1    an objective failed               4    gatekeeper itself failed
      2    wrong command line or input file  130  interrupted: see --resume
    """


AFTER_INTERRUPT = {
    **probe.AFTER_INTERRUPT,
    **regression.AFTER_INTERRUPT,
    **setup.AFTER_INTERRUPT,
    "watch": watch.AFTER_INTERRUPT,
    "remote": "a started run continues on the remote host: the same command attaches to it, "
    "gatekeeper remote cancel stops it",
    "fleet": "started runs continue on their hosts: the same command attaches to them, "
    "gatekeeper fleet cancel stops them",
}
"""What to do after Ctrl-C, by command; a run says it itself."""
LAZY = (
    LazyCommand("remote", help="Run a command on a remote host over your own ssh, as if it ran locally."),
    LazyCommand("fleet", help="Certify many SLOs on many hosts, each by `gatekeeper remote`."),
    LazyCommand("canaries", help="Make canary prompts from logs of your own requests, and check sets of them."),
    LazyCommand("proxy", help="Route live requests by the certificate: speculate where it holds, else decode plainly."),
)
SECTIONS = {
    "Measure": ("try", "certify", "plan", "probe", "sweep", "soak", "remote", "fleet"),
    "Decide": ("judge", "report", "open", "explain", "history", "compare", "versus", "bisect", "admit", "sign"),
    "Operate": ("watch", "proxy", "export", "prune"),
    "Machine": ("init", "canaries", "doctor", "selftest", "host", "metrics", "completion", "help", "version"),
}
"""The commands as `--help` groups them."""
_GROUPS = (run_commands, probe, read, stored_runs, regression, deploy, setup)
_COMMANDS = (*(command for group in _GROUPS for command in group.COMMANDS), watch.watch)
gatekeeper.sections = SECTIONS
add_display(gatekeeper)
for _command in (*_COMMANDS, *LAZY):
    gatekeeper.add_command(_command if isinstance(_command, LazyCommand) else add_common(_command))


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code. Errors go to stderr: what, where, and what to do next."""
    signal.signal(signal.SIGTERM, _terminate)
    command: Callable[..., Any] = gatekeeper.main
    color, as_json = apply_color(arguments), wants_json(arguments)

    def fail(message: str, hint: str, code: int, *, after_document: bool = False) -> int:
        _print_error(message, hint, code, as_json=as_json and not after_document, color=color)
        return code

    try:
        code = int(command(list(arguments), prog_name="gatekeeper", standalone_mode=False, color=color) or 0)
        if sys.stdout is not None:  # None: it was closed before Python started
            sys.stdout.flush()
        return code  # noqa: TRY300 (the flush may fail)
    except GatekeeperError as error:
        return fail(error.message, error.hint, error.exit_code, after_document=error.after_document)
    except click.ClickException as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
        else:
            fail(*_usage_error(error), ExitCode.BAD_INPUT)
        return ExitCode.BAD_INPUT
    except (KeyboardInterrupt, click.Abort) as error:
        command_word = next((word for word in arguments if word in gatekeeper.commands), "")
        hints = (getattr(failure, "hint", None) for failure in (error, error.__cause__))  # click makes an Abort of it
        return fail(
            "interrupted", next(filter(None, hints), AFTER_INTERRUPT.get(command_word, "")), ExitCode.INTERRUPTED
        )
    except (BrokenPipeError, SystemExit):
        # The reader of stdout closed it. Click exits with 1 then, which here means a failed objective.
        sys.stderr.close()  # Python would complain at exit
        return ExitCode.INTERNAL_ERROR
    except Exception as error:  # noqa: BLE001 (the last resort: a bug must not look like a verdict)
        return fail(*_describe_failure(error))


def _usage_error(error: click.ClickException) -> tuple[str, str]:
    """Return the message of a mistake on the command line as all errors are written, and its hint."""
    message = error.format_message()
    suggested = ""
    if isinstance(error, click.NoSuchOption):
        message, suggested = error.message, ", ".join(f"'{name}'" for name in error.possibilities or ())
    context = getattr(error, "ctx", None)
    help_hint = f"see: {context.command_path if context is not None else 'gatekeeper'} --help"
    message = message[:1].lower() + message[1:].removesuffix(".")
    return message, f"did you mean {suggested}? {help_hint}" if suggested else help_hint


def _describe_failure(error: Exception) -> tuple[str, str, ExitCode]:
    """Return which limit was reached, or what cannot be written or opened; any other unexpected error is a bug."""
    import traceback

    from gatekeeper.core.system.own_limits import own_limit
    from gatekeeper.core.text import printable_error

    if (reached := own_limit(error)) is not None:
        return reached.message, reached.hint, ExitCode.INTERNAL_ERROR
    if isinstance(error, OSError) and error.filename is None and (trouble := _output_trouble()):
        hint = "free disk space, or send the output to another file"
        return f"cannot write the output: {trouble}", hint, ExitCode.INTERNAL_ERROR
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"cannot open {error.filename}: {error.strerror}", "use a shorter path", ExitCode.BAD_INPUT
    sys.stderr.write(printable_error("".join(traceback.format_exception(error))))
    message = f"this is a bug: {type(error).__name__}: {error}"
    return message, "please report it with the traceback above", ExitCode.INTERNAL_ERROR


def _output_trouble() -> str:
    """Return why stdout cannot be written, by writing one more line end; an empty text where it can be."""
    try:
        if sys.stdout is not None:
            sys.stdout.write("\n")  # of an output that was too large for its buffer, nothing is left to write
            sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _print_error(message: str, hint: str, code: int, *, as_json: bool, color: bool | None) -> None:
    """Print an error on stderr, and with --json as one line of JSON on stdout, too."""
    from gatekeeper.core.text import printable_error

    message, hint = printable_error(message), printable_error(hint)
    if as_json and sys.stdout is not None:
        with suppress(OSError):
            sys.stdout.write(json.dumps({"error": message, "hint": hint, "exit_code": int(code)}) + "\n")
            sys.stdout.flush()
    click.echo(f"{click.style('gatekeeper:', fg='red', bold=True)} {_wrapped(message, 12)}", err=True, color=color)
    if hint:
        click.echo(f"{click.style('  hint:', bold=True)} {_wrapped(hint, 8)}", err=True, color=color)


def _wrapped(text: str, begun: int) -> str:
    """Return *text* broken between words where stderr is a terminal and has *begun* a line; commands stay whole."""
    if sys.stderr is None or not sys.stderr.isatty():
        return text
    columns = max(40, shutil.get_terminal_size().columns)
    lines: list[str] = []
    for line in text.split("\n"):
        prose, colon, command = line.rpartition(": gatekeeper ")
        line_of_prose = f"{prose}:" if colon else line
        lines += textwrap.wrap(
            line_of_prose,
            columns - 1,
            initial_indent=" " * (0 if lines else begun),
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
        lines += [f"    gatekeeper {command}"] if colon else []
    return "\n".join(lines).removeprefix(" " * begun)
