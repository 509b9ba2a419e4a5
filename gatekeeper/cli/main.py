"""The command line: its commands, error messages and exit codes. Heavy imports wait until a command runs."""

import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import click

from gatekeeper.cli.common_options import add_display, apply_color
from gatekeeper.cli.options import CommandGroup, LazyCommand
from gatekeeper.core.exit_codes import ExitCode


def _show_versions(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    """Print the versions a bug report needs and exit."""
    if not requested or context.resilient_parsing:
        return
    from gatekeeper.report.commands.version_text import versions_text
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
    "stored records": ("judge",),
    "two systems": ("versus",),
    "your prompts": ("canaries",),
    "this machine": ("selftest",),
    "your own worker": ("worker",),
}
"""The commands that `--help` only names. It hides `help` and `version`."""
MODULES = {
    "certify_and_plan": ("certify", "plan"),
    "try_draft": ("try",),
    "judge_and_report": ("open", "explain", "judge", "report"),
    "admit_and_history": ("admit", "sign", "history", "compare"),
    "init_and_doctor": ("init", "doctor", "selftest", "worker", "help", "version"),
    "watch_and_proxy": ("watch", "proxy"),
    **{name: (name,) for name in ("versus", "remote", "fleet", "canaries")},
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
    color = apply_color(arguments)
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
