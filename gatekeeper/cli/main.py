"""The command line: its commands, error messages and exit codes. Heavy imports wait until a command runs."""

import errno
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import click

from gatekeeper.cli.common_options import add_display, apply_color, wants_json
from gatekeeper.cli.options import CommandGroup, LazyCommand, with_own_commands, wrapped
from gatekeeper.core.errors import ExitCode, GatekeeperError, did_you_mean


def _show_versions(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    """Print the versions a bug report needs and exit."""
    if not requested or context.resilient_parsing:
        return
    from gatekeeper.report.commands.version import versions_text
    from gatekeeper.run.start.versions import versions

    sys.stdout.write(versions_text(versions()))
    context.exit()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.option(
    "-V", "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_versions,
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


SECTIONS = {
    "Start": {
        "doctor": "Show what this machine lacks, and the command that fixes it.",
        "try": "Measure for 30 seconds whether drafting helps on this machine.",
        "init": "Write an SLO file for the models on this machine.",
        "plan": "Show every trial, the duration, and what cannot be proven.",
        "certify": "Sweep, soak and judge; then promote drafting or grade it back.",
    },
    "Read": {
        "open": "Open the report of a run in a browser.",
        "report": "Show a finished or interrupted run again, in any format.",
        "explain": "Explain a metric, an outcome, a finding or another word.",
        "history": "List the runs of a folder by SLO, with their trends.",
        "compare": "Show what is proven better or worse between runs.",
    },
    "Deploy": {
        "admit": "Admit a deploy only with a passing run of these artifacts.",
        "sign": "Sign a run's certificate.",
        "watch": "Check the guards of a deployed policy, round after round.",
        "proxy": "Route live requests by the certificate.",
    },
}
"""The commands that `--help` describes: at most fourteen."""
FURTHER = {
    "many hosts": ("remote", "fleet"),
    "one stage": ("sweep", "soak", "judge"),
    "two systems": ("versus", "bisect"),
    "data": ("canaries", "export", "prune"),
    "this machine": ("host", "selftest", "ceiling"),
    "your own worker": ("worker",),
}
"""The commands that `--help` only names. It hides `help`, `version`, `completion` and old names."""
MODULES = {
    "run": ("certify", "plan", "sweep", "soak"),
    "try_draft": ("try", "probe", "ceiling"),
    "read": ("open", "explain", "judge", "report", "metrics", "export"),
    "stored_runs": ("history", "compare", "prune"),
    "regression": ("versus", "bisect"),
    "deploy": ("admit", "sign"),
    "setup": ("init", "doctor", "selftest", "host", "worker", "completion", "help", "version"),
    **{name: (name,) for name in ("watch", "remote", "fleet", "canaries", "proxy")},
}
"""The commands by the module of cli/ that holds them: `--help` needs none of them."""
gatekeeper.sections, gatekeeper.further = SECTIONS, FURTHER
add_display(gatekeeper)
for _module, _names in MODULES.items():
    for _name in _names:
        gatekeeper.add_command(LazyCommand(_name, _module))


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
        hints = (getattr(failure, "hint", None) for failure in (error, error.__cause__))  # click makes an Abort of it
        hint = next(filter(None, hints), None) or _after_interrupt(arguments)
        return fail("interrupted", hint, ExitCode.INTERRUPTED)
    except (BrokenPipeError, SystemExit):
        # The reader of stdout closed it. Click exits with 1 then, which here means a failed objective.
        sys.stderr.close()  # Python would complain at exit
        return ExitCode.INTERNAL_ERROR
    except Exception as error:  # noqa: BLE001 (the last resort: a bug must not look like a verdict)
        return fail(*_describe_failure(error))


def _after_interrupt(arguments: Sequence[str]) -> str:
    """Return what to do after Ctrl-C; a run says it itself."""
    commands = (gatekeeper.commands[word] for word in arguments if word in gatekeeper.commands)
    command = next(commands, None)
    return command.after_interrupt() if isinstance(command, LazyCommand) else ""


def _usage_error(error: click.ClickException) -> tuple[str, str]:
    """Return the message of a mistake on the command line as all errors are written, and its hint."""
    message = error.format_message()
    suggested = ""
    if isinstance(error, click.NoSuchOption):
        options = [name for option in error.ctx.command.params for name in option.opts] if error.ctx is not None else []
        cased = [name for name in options if name.casefold() == error.option_name.casefold()]
        near = did_you_mean(error.option_name, cased or error.possibilities or ())
        suggested = near.removeprefix("did you mean ").removesuffix("?") if near.endswith("?") else ""
        message = error.message
    choice = getattr(getattr(error, "param", None), "type", None)
    if isinstance(choice, click.Choice):
        word = message.partition(": '")[2].partition("'")[0]
        message = message.replace(" is not ", "; allowed: ") if len(choice.choices) == 1 else message
        near = did_you_mean(word, map(str, choice.choices))
        suggested = near.removeprefix("did you mean ").removesuffix("?") if near.endswith("?") else ""
    context = getattr(error, "ctx", None)
    help_hint = f"see: {context.command_path if context is not None else 'gatekeeper'} --help"
    if isinstance(error, click.UsageError) and context is not None and " argument" in message:
        usage = " ".join(context.command.collect_usage_pieces(context))
        help_hint = f"usage: {context.command_path} {usage}; {help_hint}"
        help_hint = f"what follows -- is no option: leave -- out; {help_hint}" if "(-" in message else help_hint
    if isinstance(error, click.NoSuchOption) and (key := _key_of_a_file(error)):
        suggested, help_hint = "", key
    message = " ".join(message.split())
    message = message[:1].lower() + message[1:].removesuffix(".")
    help_hint = "check its permissions" if message.endswith("is not readable") else help_hint
    message = message.replace("is not a valid integer range", "is no whole number").replace(
        "is not a valid float range", "is no number"
    )
    return message, f"did you mean {suggested}? {help_hint}" if suggested else help_hint


def _key_of_a_file(error: click.NoSuchOption) -> str:
    """Return where to write what is no option: in the SLO file, or in the policy, that the command takes."""
    from gatekeeper.core.policy import Policy
    from gatekeeper.core.slo import Slo
    from gatekeeper.core.toml_file import allowed_keys

    parameters = {parameter.name for parameter in error.ctx.command.params} if error.ctx is not None else set()
    file, model = ("policy", Policy) if "policy" in parameters else ("SLO file", Slo)
    key = error.option_name.lstrip("-").replace("-", "_")
    if not parameters & {"policy", "slo"}:
        return ""
    tables = (table for table in model.model_fields if key in allowed_keys(model, (table,)))
    return next((f"it is a key of the {file}: {table}.{key}" for table in tables), "")


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
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("gatekeeper"):
        hint = f"install gatekeeper again, with what it needs: {sys.executable} -m pip install gatekeeper-slo"
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


def _print_error(message: str, hint: str, code: int, *, as_json: bool, color: bool | None) -> None:
    """Print an error on stderr, and with --json as one line of JSON on stdout, too."""
    import json

    from gatekeeper.core.text import printable_error

    message, hint = printable_error(message), printable_error(hint)
    says = with_own_commands(wrapped(message, sys.stderr, len("gatekeeper: ")), gatekeeper)
    advises = with_own_commands(wrapped(hint, sys.stderr, len("  hint: ")), gatekeeper)
    if as_json:
        with suppress(OSError):
            sys.stdout.write(json.dumps({"error": message, "hint": hint, "exit_code": int(code)}) + "\n")
            sys.stdout.flush()
    click.echo(f"{click.style('gatekeeper:', fg='red', bold=True)} {says}", err=True, color=color)
    if hint:
        click.echo(f"{click.style('  hint:', bold=True)} {advises}", err=True, color=color)
