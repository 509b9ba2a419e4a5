"""The command line: its commands, error messages and exit codes. Heavy imports wait until a command runs."""

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import click

from gatekeeper.cli import deploy, setup
from gatekeeper.cli import run as run_commands
from gatekeeper.cli.options import CommandGroup, LazyCommand
from gatekeeper.core.errors import ExitCode, GatekeeperError


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=setup.show_versions,
    help="Show the versions for a bug report and exit.",
)
def gatekeeper() -> None:
    """Certify speculative decoding before you deploy it.

    gatekeeper measures plain decoding, sweeps one knob at a time, soaks the best setting and checks every objective of
    an SLO file. Then it promotes speculative decoding or grades it back, for each workload.

    \b
    Exit codes:
      0    safe to deploy policy.toml           3    unproven: evidence is missing
      1    an objective failed                  4    gatekeeper itself failed
      2    wrong command line or input file     130  interrupted: see --resume
    """  # noqa: D301 (click reads the \b)


AFTER_INTERRUPT = {
    **run_commands.AFTER_INTERRUPT,
    **deploy.AFTER_INTERRUPT,
    "remote": "a started run continues on the remote host: the same command attaches to it, "
    "gatekeeper remote cancel stops it",
}
"""What to do after Ctrl-C, by command."""
REMOTE = LazyCommand(
    "remote", "gatekeeper.cli.remote", "Run a command on a remote host over your own ssh, as if it ran locally."
)
for _command in (*run_commands.COMMANDS, *setup.COMMANDS, *deploy.COMMANDS, REMOTE):
    gatekeeper.add_command(_command)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code. Errors go to stderr: what, where, and what to do next."""
    signal.signal(signal.SIGTERM, _terminate)
    command: Callable[..., Any] = gatekeeper.main
    try:
        code = int(command(list(arguments), prog_name="gatekeeper", standalone_mode=False) or 0)
        if sys.stdout is not None:  # None: it was closed before Python started
            sys.stdout.flush()
        return code  # noqa: TRY300 (the flush may fail)
    except GatekeeperError as error:
        _print_error(error.message, error.hint)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.BAD_INPUT
    except (KeyboardInterrupt, click.Abort):
        named = next((word for word in arguments if word in gatekeeper.commands), "")
        _print_error("interrupted", AFTER_INTERRUPT.get(named, ""))
        return ExitCode.INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader of stdout closed it. Click exits with 1 then, which here means a failed objective.
        sys.stderr.close()  # Python would complain at exit
        return ExitCode.INTERNAL_ERROR
    except Exception as error:  # noqa: BLE001 (the last resort: a bug must not look like a verdict)
        return _report_failure(error)


def _report_failure(error: Exception) -> ExitCode:
    """Print which limit was reached, or what cannot be written or opened; any other unexpected error is a bug."""
    import traceback  # noqa: PLC0415

    from gatekeeper.core.system.own_limits import own_limit  # noqa: PLC0415

    if (reached := own_limit(error)) is not None:
        _print_error(reached.message, reached.hint)
        return ExitCode.INTERNAL_ERROR
    if isinstance(error, OSError) and error.filename is None and (trouble := _output_trouble()):
        _print_error(f"cannot write the output: {trouble}", "free disk space, or send the output to another file")
        return ExitCode.INTERNAL_ERROR
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        _print_error(f"cannot open {error.filename}: {error.strerror}", "use a shorter path")
        return ExitCode.BAD_INPUT
    traceback.print_exception(error)
    _print_error(f"this is a bug: {type(error).__name__}: {error}", "please report it with the traceback above")
    return ExitCode.INTERNAL_ERROR


def _output_trouble() -> str:
    """Return why stdout cannot be written, by writing one more line end; an empty text where it can be."""
    try:
        if sys.stdout is not None:
            sys.stdout.write("\n")  # of an output that was too large for its buffer, nothing is left to write
            sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _print_error(message: str, hint: str) -> None:
    from gatekeeper.core.text import printable_error  # noqa: PLC0415

    message, hint = printable_error(message), printable_error(hint)
    color = False if os.environ.get("NO_COLOR") else None  # click looks at the terminal alone
    click.echo(f"{click.style('gatekeeper:', fg='red', bold=True)} {message}", err=True, color=color)
    if hint:
        click.echo(f"{click.style('  hint:', bold=True)} {hint}", err=True, color=color)
