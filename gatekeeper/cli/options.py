"""Shared by the commands: options, printing, durations, and the command group that imports commands late."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from gatekeeper.cli.common_options import add_common, unknown_command_hint
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.reasons import CERTIFICATION
from gatekeeper.core.system.environment_variables import GITHUB_ACTIONS

if TYPE_CHECKING:
    from gatekeeper.report.data.decision import Decision
    from gatekeeper.report.shown_document import Document

LATEST = "latest"
"""The word that stands for a run: the newest one in the folder `runs`."""
PATH = click.Path(path_type=Path)
LOG = click.option(
    "--log", "logs", type=PATH, multiple=True, metavar="LOG",
    help="Say how many requests of this log a certificate would cover; repeatable.",
)  # fmt: skip


class RunPath(click.Path):
    """The folder of a run; `latest` is the newest one in `runs`."""

    name = "run"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the folder; raise InputError, with the run that may be meant, where there is none."""
        from gatekeeper.core.system.run_directory import suggest_run

        path = run_folder(Path(str(super().convert(value, param, ctx))))
        suggest_run(path)
        return path


def run_folder(path: Path) -> Path:
    """Return the newest run in `runs` for `latest`; a folder that is called so itself is meant as it is written."""
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
MOST = 1e9
"""The largest quantity of an option: thirty years, or a speed that no machine has."""


def add_grade_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that graded one SLO."""
    baseline = click.option(
        "--baseline", metavar="RUN",
        help='Certified runs for objectives with against = "certified" [default: beside --output], or none.',
    )  # fmt: skip
    grade = click.option(
        "--grade", type=click.Choice(["demo", "certification"]), default="demo", show_default=True,
        help=f"The lowest grade that may exit 0; a demo has a soak under {CERTIFICATION}.",
    )  # fmt: skip
    return baseline(grade(command))


def show(result: object, shown: "str | Document", *, as_json: bool = False, form: str = "text") -> None:
    """Print a result as JSON, or what people are *shown* of it; on a terminal, its lines break between words."""
    if as_json or form == "json":
        import json

        from gatekeeper.core.document import document_of
        from gatekeeper.core.text import inert_json

        sys.stdout.write(inert_json(json.dumps(document_of(result), indent=1, ensure_ascii=False)) + "\n")
    elif isinstance(shown, str) or form == "text":
        from gatekeeper.core.text import printable_error
        from gatekeeper.report.document_text import render_text

        text = shown if isinstance(shown, str) else render_text(shown)
        sys.stdout.write(with_own_commands(wrap_text(printable_error(text), sys.stdout)))
    elif form == "markdown":
        from gatekeeper.report.document_markdown import render_markdown

        sys.stdout.write(with_own_commands(render_markdown(shown)))
    else:
        from gatekeeper.report.html.document_page import render_page

        sys.stdout.write(render_page(shown))


def with_own_commands(text: str, root: click.Command | None = None) -> str:
    """Return *text* with each command of *root*, the group of all, as it must be typed here."""
    from gatekeeper.core.system import own_command

    root = root or click.get_current_context().find_root().command
    return own_command.with_own_commands(text, root.commands if isinstance(root, click.Group) else ())


def wrap_text(text: str, stream: TextIO | None, begun: int = 0) -> str:
    """Return *text* broken between words where *stream* is a terminal; *begun* columns of its first line are in use.

    A command at the end of a line stays whole: it is pasted.
    """
    if stream is None or not stream.isatty():
        return text
    import shutil
    import textwrap

    columns = max(40, shutil.get_terminal_size().columns)
    lines: list[str] = []
    for line in text.split("\n"):
        prose, colon, command = line.rpartition(": gatekeeper ")
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        if line.startswith("next: "):
            lines.append(line)
            continue
        lines += textwrap.wrap(
            f"{prose}:" if colon else line,
            columns - 1,
            initial_indent=" " * (0 if lines else begun),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
        lines += [f"{indent}gatekeeper {command}"] if colon else []
    return "\n".join(lines).removeprefix(" " * begun)


def show_decision(
    decision: "Decision", run: Path, slo: object = "SLO.toml", *, verbose: bool = False, **known: bool
) -> None:
    """Print the last screen of a run, *verbose* after what stands behind it; what is *known*: see `summary.show`."""
    from gatekeeper.report.terminal import summary

    details = ""
    if verbose:
        from gatekeeper.report.run_document import render_evidence
        from gatekeeper.run.stored.stored_policy import stored_policy

        details = render_evidence(decision, stored_policy(run))
    summary.show(decision, run=run, slo=slo, details=details, **known)


def styled_printer(*, quiet: bool) -> Callable[[str, Mapping[str, Any]], None]:
    """Return what prints a line on stderr; when *quiet*, only one with a style. Text of a server may hold controls."""
    from gatekeeper.core.text import printable_error

    def say(text: str, style: Mapping[str, Any]) -> None:
        if style or not quiet:
            line = wrap_text(printable_error(text.replace("\n", " ")), sys.stderr)
            click.echo(click.style(line, **style), err=True)

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


def slo_of(run_dir: Path, slo: Path | None) -> Path | str:
    """Return the SLO file for the next command: *slo*, or a file with the text of the run's; without one, its name."""
    from gatekeeper.core.system.inputs import SLO_NAME, find_slo_file
    from gatekeeper.core.system.run_directory import MANIFEST, RunDirectory

    file, _ = find_slo_file(run_dir, slo)
    if slo is not None or file != run_dir / SLO_NAME:
        return file
    frozen = RunDirectory(run_dir).document(MANIFEST).get("slo")
    return str(frozen.get("name", "SLO.toml")) if isinstance(frozen, dict) else "SLO.toml"


def parse_address(listen: str, example: int) -> tuple[str, int]:
    """Read --listen HOST:PORT; *example* is the port of an example."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) < 65536 or not host:
        raise InputError(f"--listen {listen} is not HOST:PORT", hint=f"for example --listen 127.0.0.1:{example}")
    return host.strip("[]"), int(port)


def parse_duration(text: str | None, option: str, example: str = "7d") -> float | None:
    """Return the seconds of a duration such as *example*, given to *option*; None stays None."""
    return parse_quantity(text, option, "s", example)


def parse_quantity(text: str | None, option: str, unit: str, example: str) -> float | None:
    """Return a positive quantity in *unit*, a base unit of `units.UNITS_OF`, given to *option*; None stays None."""
    from gatekeeper.core.units import UNITS_OF, parse

    hint = f"for example {option} '{example}'"
    try:
        value = None if text is None else parse(text, UNITS_OF[unit])
    except ValueError as error:
        raise InputError(f"{option}: {str(error).partition(chr(10))[0]}", hint=hint) from error
    if value is not None and not 0 < value <= MOST:
        wrong = "must be greater than 0" if value <= 0 else "is too large"
        raise InputError(f"{option} {text}: {wrong}", hint=hint)
    return value


PAGE_PORT = 8765
"""The port of the page of a run, where `--serve` names none."""


class Port(click.IntRange):
    """A port of this machine; 0 takes any that is free."""

    name = "port"

    def __init__(self) -> None:
        super().__init__(0, 65535)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the port."""
        if not str(value).isdecimal() or int(value) > 65535:
            self.fail(f"{value!r} is no port: a number from 0 to 65535, as in --serve {PAGE_PORT}", param, ctx)
        return int(value)


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
    """A command that is known by its name: *module* of cli/, which holds it, is imported when it is called."""

    def __init__(self, name: str, module: str) -> None:
        super().__init__(name)
        self._module = module

    def load(self) -> click.Command:
        """Import and return the command itself, with the options that every command has."""
        commands: Sequence[click.Command] = self._import().COMMANDS
        return add_common(next(command for command in commands if command.name == self.name))

    def after_interrupt(self) -> str:
        """Return what to do after Ctrl-C; empty where the command says it itself."""
        texts: Mapping[str, str] = getattr(self._import(), "AFTER_INTERRUPT", {})
        return texts.get(str(self.name), "")

    def _import(self) -> Any:
        return import_module(f"gatekeeper.cli.{self._module}")


class CommandGroup(click.Group):
    """Suggests the nearest command for a mistyped one, and lists its commands with a whole sentence each."""

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
            raise InputError(
                f"unknown command '{f'{group} {name}'.strip()}'",
                hint=unknown_command_hint(name, [*self.commands], LATEST),
            )
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (the signature is click's)
        """List the commands in the order they were added; not by letter."""
        return [*self.commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show each command with its whole first sentence; click cuts it off where the line ends."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(limit=200)) for name, command in commands if not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def ends_with(**meanings: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what adds the exit codes to a command's help: each by its name, with its *meanings* or the general one."""

    def add_exit_codes(command: Callable[..., Any]) -> Callable[..., Any]:
        codes = [(ExitCode[name.upper()], meaning) for name, meaning in meanings.items()]
        lines = [f"  {code:<3}  {meaning or code.words}" for code, meaning in codes]
        command.__doc__ = f"{cleandoc(command.__doc__ or '')}\n\n\b\nExit codes:\n" + "\n".join(lines)
        return command

    return add_exit_codes
