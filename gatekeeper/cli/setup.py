"""The commands that come before a run: init, doctor, completion; and the versions."""

import sys
from pathlib import Path

import click

from gatekeeper.cli.options import AS_JSON, show


def show_versions(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    """Print what a bug report needs and leave."""
    if not requested or context.resilient_parsing:
        return
    from gatekeeper.report import command_text  # noqa: PLC0415
    from gatekeeper.run.doctor import versions  # noqa: PLC0415

    sys.stdout.write(command_text.versions(versions()))
    context.exit()


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("slos/this-host.toml"),
    show_default=True,
    help="The file to write.",
)
@click.option("--force", is_flag=True, help="Overwrite the file where it exists.")
@AS_JSON
def init(output: Path, *, force: bool, as_json: bool) -> int:
    """Write an SLO file for this machine, from the backends and models found on it.

    Exits 3 where the pair it names has yet to be fetched, or its backend to be installed: the commands are printed.
    """
    from gatekeeper.report import command_text  # noqa: PLC0415
    from gatekeeper.run.init_slo import propose  # noqa: PLC0415

    document, exit_code = propose(output, force=force)
    show(document, command_text.proposal(document), as_json=as_json)
    return exit_code


@click.command()
@AS_JSON
def doctor(*, as_json: bool) -> None:
    """Show what this machine lacks, for which objective or backend, and the command that fixes it. Exits 0."""
    from gatekeeper.report import command_text  # noqa: PLC0415
    from gatekeeper.run.doctor import examine  # noqa: PLC0415

    document = examine()
    show(document, command_text.checkup(document), as_json=as_json)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and files in a shell.

    \b
    bash 4.4 or newer  eval "$(gatekeeper completion bash)"  in ~/.bashrc
    zsh                eval "$(gatekeeper completion zsh)"   in ~/.zshrc, after compinit
    fish               gatekeeper completion fish | source   in ~/.config/fish/config.fish
    """  # noqa: D301 (click reads the \b)
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    script = get_completion_class(shell)
    assert script is not None
    # Only the script is wanted: whether this machine's own bash is new enough is for the one that reads it.
    whole = click.get_current_context().find_root().command
    made = script(whole, {}, "gatekeeper", "_GATEKEEPER_COMPLETE")
    sys.stdout.write(made.source_template % made.source_vars() + "\n")


COMMANDS = (init, doctor, completion)
