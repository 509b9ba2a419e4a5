"""The command line: its commands, error messages and exit codes. Heavy imports wait until a command runs."""

import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import click

from gatekeeper.cli.common_options import GLOBAL_OPTIONS, is_colored
from gatekeeper.cli.options import CommandGroup, LazyCommand
from gatekeeper.core.exit_codes import ExitCode


def _show_versions(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    """Print the versions a bug report needs and exit."""
    if not requested or context.resilient_parsing:
        return
    from gatekeeper.report.commands.doctor_document import versions_text
    from gatekeeper.run.start.versions import versions

    sys.stdout.write(versions_text(versions()))
    context.exit()


class Program(CommandGroup):
    """All commands; its help is one screen."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (the signature is click's)
        """List the commands in the order of --help."""
        return [*(name for rows in SECTIONS.values() for name in rows), *FURTHER]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command in a line, then the options of most commands and the exit codes."""
        formatter.write(f"Usage: {ctx.command_path} COMMAND [OPTIONS]\n\n{(self.help or '').strip()}\n\n")
        for head, rows in SECTIONS.items():
            for number, (name, text) in enumerate(rows.items()):
                formatter.write(f"{'' if number else f'{head}:':<9}{name:<9}{text}\n")
        formatter.write(f"{'More:':<9}{', '.join(FURTHER)}\n")
        options = "; ".join(f"{names.partition(',')[0]}: {text}" for names, text in GLOBAL_OPTIONS.items())
        codes = ", ".join(f"{code} {code.words}" for code in ExitCode)
        for head, text in (("Options", options), ("Exit codes", codes)):
            formatter.write_text(f"{head}: {text}")


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.option(
    "-V", "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_versions,
    help="Show the versions for a bug report and exit.",
)  # fmt: skip
def gatekeeper() -> None:
    """Certify speculative decoding before you deploy it: gatekeeper certify smoke."""


SECTIONS = {
    "Start": {
        "doctor": "Show what this machine lacks, and the command that fixes it.",
        "try": "Measure for 30 seconds whether drafting helps on this machine.",
        "init": "Write an SLO file for the models on this machine.",
        "plan": "Show every trial, the duration, and what cannot be proven.",
        "certify": "Sweep, soak and judge; promote drafting or grade it back.",
    },
    "Read": {
        "open": "Open the report of a run in a browser.",
        "report": "Show a finished or interrupted run again, in any format.",
        "explain": "Explain a metric, an outcome, an exit code or another word.",
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
FURTHER = ("remote", "fleet", "judge", "versus", "canaries", "selftest", "worker")
"""The commands that `--help` only names."""
MODULES = {
    "certify_and_plan": ("certify", "plan"),
    "try_draft": ("try",),
    "judge_and_report": ("open", "explain", "judge", "report"),
    "admit_and_history": ("admit", "sign", "history", "compare"),
    "init_and_doctor": ("init", "doctor", "selftest", "worker"),
    "watch_and_proxy": ("watch", "proxy"),
    **{name: (name,) for name in ("versus", "remote", "fleet", "canaries")},
}
"""The commands by the module of cli/ that holds them: `--help` needs none of them."""
for _module, _names in MODULES.items():
    for _name in _names:
        gatekeeper.add_command(LazyCommand(_name, _module))


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code. Errors go to stderr: what, where, and what to do next."""
    signal.signal(signal.SIGTERM, _terminate)
    command: Callable[..., Any] = gatekeeper.main
    color = is_colored()
    try:
        code = int(command(list(arguments), prog_name="gatekeeper", standalone_mode=False, color=color) or 0)
        sys.stdout.flush()
        return code  # noqa: TRY300 (the flush may fail)
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code == 0:  # click has completed a word for a shell
            return ExitCode.OK
        # The reader of stdout closed it. Click exits with 1 then, which here means a failed objective.
        sys.stderr.close()  # Python would complain at exit
        return ExitCode.INTERNAL_ERROR
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the last resort: a bug must not look like a verdict)
        from gatekeeper.cli.error_messages import report_error

        return report_error(error, arguments, gatekeeper, color=color)
