"""The reference page of the commands: what each does, its options, and those that several have, described once."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import click

from gatekeeper.cli.common_options import GLOBAL_OPTIONS, GlobalOption
from gatekeeper.cli.main import gatekeeper
from tools.reference_tables import listing

TYPES = re.compile(r" (INTEGER( RANGE)?|TEXT|FLOAT|PATH)$")
"""The type of an option's value, where its name says more."""
RANGE = re.compile(r"(; |\[)[\d.]+<=x<=\d+(\])|; x>=\d+(?=\])| \[x>=\d+\]")
"""The limits of a number, which the message of a wrong one says."""
IN_A_GROUP, IN_COMMANDS = 3, 2
"""How many commands of a group, or of all, have an option alike that is described once."""


def commands() -> str:
    """Return the page of every command with its options."""
    head = "# Commands\n\nEvery command; `--help` prints the same."
    context = click.Context(gatekeeper, info_name="gatekeeper", help_option_names=["-h", "--help"])
    everywhere = _alike(((path[0], command) for path, command, _ in _walk(gatekeeper, context, ())), IN_COMMANDS)
    rows = ((f"`{name}`", "", f"{text[0].upper()}{text[1:]}.") for name, text in GLOBAL_OPTIONS.items())
    parts = [
        f"{head}\n",
        f"## Global options\n\n{listing(rows)}",
        f"## Options of several commands\n\nA command names them after *Also*.\n\n{_options(everywhere)}",
    ]
    shared: dict[tuple[str, ...], list[click.Option]] = {}
    short: list[str] = []
    for path, command, above in _walk(gatekeeper, context, ()):
        of_command = click.Context(command, info_name=path[-1], parent=above, help_option_names=[])
        once = [*shared.get(path[:-1], ()), *everywhere]
        own = [option for option in command.params if not any(_is_same(option, other) for other in once)]
        names = [option.opts[0] for option in command.params if any(_is_same(option, one) for one in everywhere)]
        also = f"Also: `{'`, `'.join(names)}`." if names else ""
        section = _section(path, command, of_command, own)
        if len(path) > 1 and not any(
            isinstance(option, click.Option) and option.get_help_record(of_command) for option in own
        ):
            short.append(
                f"- `{' '.join((*path, *_arguments(command, of_command)))}`: {f'{_one_line(command)} {also}'.strip()}\n"
            )
            continue
        parts += ["".join(short)] if short else []
        short = []
        parts.append(section + (f"\n{also}\n" if also else ""))
        if isinstance(command, click.Group):
            members = [(name, command.get_command(of_command, name)) for name in command.list_commands(of_command)]
            alike = _alike(((name, member) for name, member in members if member), IN_A_GROUP)
            shared[path] = [option for option in alike if not any(_is_same(option, other) for other in everywhere)]
            if shared[path]:
                parts.append(f"Most of its commands have:\n\n{_options(shared[path])}")
    return "\n".join(parts)


def _section(
    path: Sequence[str], command: click.Command, context: click.Context, own: Sequence[click.Parameter]
) -> str:
    """Return the heading of a command, its arguments, what it does, and its *own* options."""
    arguments = _arguments(command, context)
    texts = [
        f"{'#' * (len(path) + 1)} {' '.join(path)}\n",
        f"`{' '.join((path[-1], *arguments))}`\n" if arguments else "",
    ]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        fixed = paragraph.startswith("\b\n")
        texts.append(f"```text\n{paragraph[2:]}\n```\n" if fixed else f"{' '.join(paragraph.split())}\n")
    records = [record for option in own if (record := option.get_help_record(context)) and record[1]]
    options = [(f"`{TYPES.sub('', names)}`", "", RANGE.sub("\\2", text).removesuffix(" ]")) for names, text in records]
    texts.append(listing(options))
    return "\n".join(text for text in texts if text)


def _arguments(command: click.Command, context: click.Context) -> list[str]:
    is_group = isinstance(command, click.Group)
    return [] if is_group else [text for text in command.collect_usage_pieces(context) if text != "[OPTIONS]"]


def _one_line(command: click.Command) -> str:
    return " ".join((command.help or "").split())


def _alike(commands: Iterable[tuple[str, click.Command]], least: int) -> list[click.Option]:
    """Return the options that *least* commands have alike; of a group that is named with each, all count as one."""
    owners: dict[tuple[object, ...], set[str]] = defaultdict(set)
    options: dict[tuple[object, ...], click.Option] = {}
    for owner, command in commands:
        for option in command.params:
            if isinstance(option, click.Option) and option.help and not isinstance(option, GlobalOption):
                owners[_signature(option)].add(owner)
                options.setdefault(_signature(option), option)
    return [option for signature, option in options.items() if len(owners[signature]) >= least]


def _options(options: Iterable[click.Option]) -> str:
    return listing((f"`{', '.join((*one.opts, *one.secondary_opts))}`", "", one.help) for one in options)


def _signature(option: click.Option) -> tuple[object, ...]:
    """Return what a reader sees of an option."""
    return tuple(option.opts), option.help, option.show_default and option.default, option.required


def _is_same(option: click.Parameter, shown: click.Option) -> bool:
    """Return whether *option* is the one that is *shown* already."""
    return isinstance(option, click.Option) and _signature(option) == _signature(shown)


def _walk(
    group: click.Group, context: click.Context, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield (*path, name), command, context
        if not isinstance(command, click.Group):
            loaded = getattr(command, "command", None)
            command = loaded() if callable(loaded) else command
        if isinstance(command, click.Group):
            yield from _walk(command, click.Context(command, info_name=name, parent=context), (*path, name))
