"""Shared by the commands: options, printing, durations, and the command group that imports commands late."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gatekeeper.cli.common_options import add_common
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.system.environment_variables import GITHUB_ACTIONS

if TYPE_CHECKING:
    from gatekeeper.report.data.decision import Decision

LATEST = "latest"
"""In the place of a run: the newest one in the folder `runs`."""


PATH = click.Path(path_type=Path)


class RunPath(click.Path):
    """The folder of a run; `latest` is the newest one in `runs`."""

    name = "run"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the folder; one that is called `latest` itself is meant as it is written."""
        path = Path(str(super().convert(value, param, ctx)))
        if path != Path(LATEST) or path.is_dir():
            return path
        from gatekeeper.core.system.run_directory import RUNS, newest_run

        return newest_run(RUNS)


class SloPath(click.Path):
    """An SLO file; a bare name that is no file here is a shipped one: `smoke` is `slos/smoke.toml`."""

    name = "path"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path of the file."""
        path = Path(str(super().convert(value, param, ctx)))
        if path.suffix or len(path.parts) != 1 or path.exists():
            return path
        from gatekeeper.core.system.inputs import shipped_folder

        shipped = shipped_folder("slos") / f"{path}.toml"
        return shipped if shipped.is_file() else path


def out_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option of the folder that a command writes."""
    return click.option("--output", "-o", "--out", "out", type=PATH, help=text)


SLO = click.argument("slo", type=SloPath())
RUN_DIR = click.argument("run_dir", type=RunPath())
OUT = out_option("Run directory [default: runs/TIME-NAME-ID].")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
MOST = 1e9
"""The largest quantity of an option: thirty years, or a speed that no machine has."""
QUIET = click.option("--quiet", "-q", is_flag=True, help="Show no progress on stderr.")


def graded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that graded one SLO."""
    baseline = click.option(
        "--baseline", metavar="RUN",
        help='The certified run, or a folder of them, for objectives with against = "certified" [default: those '
        "beside --output]; none: there is none yet, leave them out.",
    )  # fmt: skip
    grade = click.option(
        "--grade", type=click.Choice(["demo", "certification"]), default="demo", show_default=True,
        help="The lowest grade that may exit 0; certification: a demo (soak under 600 s) exits 3.",
    )  # fmt: skip
    return baseline(grade(command))


def show(document: Any, text: str, *, as_json: bool) -> None:
    """Print the document or the text on stdout."""
    from gatekeeper.core.text import inert_json, printable_error

    written = json.dumps(document, indent=1, ensure_ascii=False) if as_json else ""
    sys.stdout.write(inert_json(written) + "\n" if as_json else printable_error(text))


def styled_printer(*, quiet: bool) -> Callable[[str, Mapping[str, Any]], None]:
    """Return what prints a line on stderr; when *quiet*, only one with a style. Text of a server may hold controls."""
    from gatekeeper.core.text import printable_error

    def say(text: str, style: Mapping[str, Any]) -> None:
        if style or not quiet:
            click.echo(click.style(printable_error(text.replace("\n", " ")), **style), err=True)

    return say


def annotate(decision: "Decision", run_dir: Path, slo: Path | None) -> None:
    """Inside GitHub Actions, annotate the SLO file's lines with the failed checks, on stderr."""
    if os.environ.get(GITHUB_ACTIONS) != "true":
        return
    from gatekeeper.core.slo import parse
    from gatekeeper.core.system.inputs import find_slo_file
    from gatekeeper.report import github_annotations

    file, text = find_slo_file(run_dir, slo)
    sys.stderr.write(github_annotations.render(decision, parse(text, str(file)), text, str(file)))


def parse_address(listen: str) -> tuple[str, int]:
    """Read --listen HOST:PORT."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) < 65536 or not host:
        raise InputError(f"--listen {listen} is not HOST:PORT", hint="for example --listen 127.0.0.1:8089")
    return host.strip("[]"), int(port)


def parse_duration(text: str | None, option: str, example: str = "7d") -> float | None:
    """Return the seconds of a duration such as *example*, given to *option*; None stays None."""
    return parse_quantity(text, option, "s", example)


def parse_quantity(text: str | None, option: str, unit: str, example: str) -> float | None:
    """Return a positive quantity in *unit*, a base unit of `units.UNITS_OF`, given to *option*; None stays None."""
    from gatekeeper.core.units import UNITS_OF, parse

    try:
        value = None if text is None else parse(text, UNITS_OF[unit])
    except ValueError as error:
        raise InputError(
            f"{option}: {str(error).partition(chr(10))[0]}", hint=f"for example {option} '{example}'"
        ) from error
    if value is not None and not 0 < value <= MOST:
        wrong = "must be greater than 0" if value <= 0 else "is too large"
        raise InputError(f"{option} {text}: {wrong}", hint=f"for example {option} '{example}'")
    return value


class SecondsRange(click.FloatRange):
    """A duration of an option, such as 60s or 2min, from *least* to a day; a bare number is seconds."""

    name = "duration"

    def __init__(self, least: float) -> None:
        super().__init__(min=least, max=86400)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; NaN, which every range of click lets pass, is refused like a number outside of it."""
        from gatekeeper.core.units import SECONDS, parse

        try:
            value = parse(value, SECONDS)
        except ValueError as error:
            self.fail(f"{str(error).partition(chr(10))[0]}; for example 60s", param, ctx)
        number: float = super().convert(value, param, ctx)
        return number if number == number else self.fail("nan is not a number", param, ctx)  # noqa: PLR0124


def seconds_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option of the time that a command takes."""
    return click.option(
        "--seconds", type=SecondsRange(1), default=default, show_default=True, help="Approximate duration."
    )


class LazyCommand(click.Command):
    """A command that `--help` lists without importing it: the module of its name holds it."""

    def load(self) -> click.Command:
        """Import and return the command itself, with the options that every command has."""
        command: click.Command = getattr(import_module(f"gatekeeper.cli.{self.name}"), str(self.name))
        return add_common(command)


class CommandGroup(click.Group):
    """Suggests the nearest command for a mistyped one, and lists each command with its whole first sentence."""

    sections: Mapping[str, Sequence[str]] = {}
    """The names of the commands under each heading of --help; the others follow under `Commands`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name; import it where it is lazy."""
        command = super().get_command(ctx, cmd_name)
        return command.load() if isinstance(command, LazyCommand) else command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the nearest one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            group = ctx.command_path.partition(" ")[2]
            raise InputError(f"unknown command '{f'{group} {name}'.strip()}'", hint=did_you_mean(name, self.commands))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (the signature is click's)
        """List the commands in the order of the sections, then in the order they were added; not by letter."""
        first = [name for names in self.sections.values() for name in names if name in self.commands]
        return [*first, *(name for name in self.commands if name not in first)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show each command with its whole first sentence; click cuts it off where the line ends."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        rows = {name: (name, command.get_short_help_str(limit=200)) for name, command in commands if not command.hidden}
        widest = max(map(len, rows), default=0)
        sections = {head: [rows.pop(name) for name in names if name in rows] for head, names in self.sections.items()}
        for head, rows_of_section in {**sections, "Commands": list(rows.values())}.items():
            if rows_of_section:
                with formatter.section(head):
                    formatter.write_dl([(name.ljust(widest), text) for name, text in rows_of_section])
