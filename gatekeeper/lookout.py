"""The command that comes after a promotion: watch."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gatekeeper.options import QUIET, seconds
from gatekeeper.terms.errors import InputError


@click.command()
@click.argument("policy", type=click.Path(path_type=Path))
@click.option("--url", help="Where the server answers [default: the url of the SLO].")
@click.option("--plain-url", help="Its twin without a draft, for answers to compare with.")
@click.option("--run", "run_dir", type=click.Path(path_type=Path), help="The run that certified [default: beside it].")
@click.option("--slo", type=click.Path(path_type=Path), help="The SLO file, where its models are not found otherwise.")
@click.option("--interval", metavar="60s", help="From look to look [default: the policy's].")
@click.option("--duty", type=float, help="Largest share of the server's time for canaries [default: the policy's].")
@click.option("--host/--no-host", default=None, help="Sample this host [default: where the policy guards it].")
@click.option("--once", is_flag=True, help="Look once and exit.")
@click.option("--rounds", type=click.IntRange(min=1), help="Look so often and exit.")
@click.option("--overlay", type=click.Path(path_type=Path), help="[default: policy.live.toml beside the policy]")
@click.option("--journal", type=click.Path(path_type=Path), help="[default: watch.jsonl beside the policy]")
@click.option(
    "--on-change", "commands", multiple=True, metavar="COMMAND", help="Run on a change; repeatable, no shell."
)
@click.option("--limit", metavar="30s", default="30s", show_default=True, help="What one command may take.")
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON, one object an event.")
@QUIET
def watch(policy: Path, *, once: bool, rounds: int | None, as_json: bool, quiet: bool, **given: Any) -> int:
    """Look whether a deployed policy still holds, and turn speculation off where it does not.

    \b
    Exit codes: 0 the looks ended with every route as certified; 1 a route was turned down; 2 a wrong file or
    option; 3 no answer came, or another watch keeps the overlay; 130 interrupted.
    """  # noqa: D301 (click reads the \b)
    from gatekeeper.reports.plaintext import clean  # noqa: PLC0415
    from gatekeeper.watch import outfit  # noqa: PLC0415
    from gatekeeper.watch.outlet import Ears  # noqa: PLC0415

    if once and rounds is not None:
        raise InputError("--once and --rounds exclude each other", hint="--once is --rounds 1")
    options = outfit.Options(
        url=given["url"],
        plain_url=given["plain_url"],
        run=given["run_dir"],
        slo=given["slo"],
        interval=seconds(given["interval"], "--interval", "60s"),
        duty=given["duty"],
        host=given["host"],
        overlay=given["overlay"],
        journal=given["journal"],
        commands=tuple(_words(command) for command in given["commands"]),
        limit=seconds(given["limit"], "--limit", "30s") or 30.0,
    )

    def say(text: str, style: dict[str, Any]) -> None:
        if style or not quiet:
            # A server may call itself anything, escape sequences included.
            click.echo(click.style(clean(text.replace("\n", " ")), **style), err=True)

    def write(entry: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(json.dumps(entry, ensure_ascii=False))

    with outfit.session(policy, options, Ears(say, write)) as session:
        return session.run(1 if once else rounds)


def _words(command: str) -> tuple[str, ...]:
    """Split a command into its words, as a shell would and without one."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise InputError(f"--on-change {command}: {error}", hint="quote it as for a shell") from error
    if not words:
        raise InputError("--on-change names no program", hint="for example --on-change '/usr/local/bin/reload --now'")
    return words


COMMANDS = (watch,)
