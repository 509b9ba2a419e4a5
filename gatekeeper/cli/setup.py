"""The commands on this machine and this program: init, doctor, selftest, host, metrics, completion, help, version."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from gatekeeper.cli.options import AS_JSON, PATH, QUIET, SecondsRange, show, styled_printer
from gatekeeper.core.errors import ExitCode, InputError


def show_versions(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    """Print the versions a bug report needs and exit."""
    if not requested or context.resilient_parsing:
        return
    from gatekeeper.report.commands.version import versions_text
    from gatekeeper.run.start.doctor import versions

    sys.stdout.write(versions_text(versions()))
    context.exit()


@click.command()
@AS_JSON
def version(*, as_json: bool) -> None:
    """Show the versions for a bug report."""
    from gatekeeper.report.commands.version import versions_text
    from gatekeeper.run.start.doctor import versions

    version_numbers = versions()
    show(version_numbers, versions_text(version_numbers), as_json=as_json)


@click.command(name="help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def show_help(context: click.Context, words: Sequence[str]) -> None:
    """Show the help of a command; without one, the list of all."""
    parent = context.find_root()
    command = parent.command
    for word in words:
        if not isinstance(command, click.Group):
            path = parent.command_path
            raise InputError(f"'{path}' has no commands of its own", hint=f"see: {path} --help")
        _, subcommand, _ = command.resolve_command(parent, [word])
        assert subcommand is not None
        command, parent = subcommand, click.Context(subcommand, info_name=word, parent=parent)
    click.echo(command.get_help(parent))


@click.command()
@click.option(
    "-o", "--output", "--out", "output", type=click.Path(path_type=Path, dir_okay=False),
    default=Path("slos/this-host.toml"), show_default=True, help="The file to write.",
)  # fmt: skip
@click.option("--backend", help="Write it for this serving system [default: the one installed with the heaviest pair].")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@AS_JSON
def init(output: Path, *, backend: str | None, force: bool, as_json: bool) -> int:
    """Write an SLO file for this machine, from the backends and models found on it.

    Exits 3 if the models must be downloaded or the backend installed first, and prints the commands.
    """
    from gatekeeper.report.commands.init import init_text
    from gatekeeper.run.start.init_slo import propose

    document, exit_code = propose(output, force=force, backend=backend)
    show(document, init_text(document), as_json=as_json)
    return exit_code


@click.command()
@AS_JSON
def doctor(*, as_json: bool) -> int:
    """Show what this machine lacks, for which objective or backend, and the command that fixes it.

    Exits 2 if a variable of the environment would make speculation lossy, otherwise 0.
    """
    from gatekeeper.report.commands.doctor import doctor_text
    from gatekeeper.run.start.doctor import examine

    document = examine()
    show(document, doctor_text(document), as_json=as_json)
    lossy = any(item["kind"] == "variable" for item in document["items"])
    return ExitCode.BAD_INPUT if lossy else ExitCode.OK


AFTER_INTERRUPT = {"selftest": "what was gathered until then is in the file of --output"}
"""What to do after Ctrl-C, by command."""


@click.command()
@click.option(
    "-o", "--output", "--out", "output", type=click.Path(path_type=Path, dir_okay=False),
    default=Path("gatekeeper-selftest.json"), show_default=True, help="The file to write.",
)  # fmt: skip
@click.option("--read", "file", type=PATH, metavar="FILE", help="Show such a file instead of making one.")
@QUIET
def selftest(output: Path, *, file: Path | None, quiet: bool) -> None:
    """Try out gatekeeper on this machine and write one file for a bug report.

    It takes three to five minutes and needs no model but the little pair that comes with gatekeeper. The file holds
    what each tool of the host printed, what was made of it, and short measurements; names of users and hosts, home
    folders and serial numbers are cut out. Ctrl-C leaves what was gathered.
    """
    from gatekeeper.report.commands.selftest import selftest_text
    from gatekeeper.run.start import selftest as trying

    report = styled_printer(quiet=quiet)
    document = trying.read_selftest(file) if file else trying.selftest(output, lambda name: report(f"{name} …", {}))
    show(document, selftest_text(document, file or output, sources=file is not None), as_json=False)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell script that completes commands, options and files.

    \b
    bash 4.4+, in ~/.bashrc:
      eval "$(gatekeeper completion bash)"
    zsh, in ~/.zshrc after compinit:
      eval "$(gatekeeper completion zsh)"
    fish, in ~/.config/fish/config.fish:
      gatekeeper completion fish | source
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    # Not completion_script.source(): that refuses where this machine's own bash is too old.
    completion_script = script(
        click.get_current_context().find_root().command, {}, "gatekeeper", "_GATEKEEPER_COMPLETE"
    )
    sys.stdout.write(completion_script.source_template % completion_script.source_vars() + "\n")


@click.command()
@click.option("--samples", type=click.IntRange(min=1), default=1, show_default=True, help="Number of samples.")
@click.option("--interval", type=SecondsRange(0.05), default="1s", show_default=True, help="Time between samples.")
@click.option("--as", "platform", type=click.Choice(["macos", "linux"]), help="Use this platform's sources.")
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON, one object per sample.")
def host(samples: int, interval: float, platform: str | None, *, as_json: bool) -> None:
    """Show this host's telemetry now: every value with its source and status."""
    from gatekeeper.host.sampler import watch
    from gatekeeper.report.host_table import table

    write_hint = partial(click.echo, err=True)
    watch(samples, interval, platform, json_output=as_json, write=click.echo, write_hint=write_hint, table=table)


@click.command()
@AS_JSON
def metrics(*, as_json: bool) -> None:
    """List every metric an objective may name: unit, direction, unit of analysis, what it needs."""
    from gatekeeper.report.commands.metrics import metrics_document, metrics_text

    show(metrics_document(), metrics_text(), as_json=as_json)


COMMANDS = (init, doctor, selftest, host, metrics, completion, show_help, version)
