"""The group of commands: how one is found, and how they are listed."""

from importlib import import_module

import click

from gatekeeper.terms.errors import InputError, did_you_mean


class Later(click.Command):
    """A command that is listed, and imported only when it is asked for: *source* is its module, and holds its name."""

    def __init__(self, name: str, source: str, says: str) -> None:
        super().__init__(name, help=says)
        self._source = source

    def load(self) -> click.Command:
        """Return the command itself."""
        command: click.Command = getattr(import_module(self._source), str(self.name))
        return command


class Commands(click.Group):
    """Answers a mistyped command with the nearest one, and shows of each the whole sentence."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        found = super().get_command(ctx, cmd_name)
        return found.load() if isinstance(found, Later) else found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which was meant."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            group = ctx.command_path.partition(" ")[2]
            raise InputError(f"no command '{f'{group} {name}'.strip()}'", hint=did_you_mean(name, self.commands))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click asks with it)
        """List the commands as a newcomer meets them, not by letter."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show what each command does to the end of its sentence; click cuts it off where the line ends."""
        shown = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(limit=200)) for name, one in shown if not one.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
