"""The command `watch`: check the guards of a deployed policy."""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gatekeeper.cli.common_options import QUIET
from gatekeeper.cli.options import PATH, RunPath, SloPath, parse_address, parse_duration, styled_printer
from gatekeeper.core.errors import InputError

AFTER_INTERRUPT = {
    "watch": "the overlay is valid until its next_look_before; the same command continues from watch.jsonl"
}


@click.command()
@click.argument("policy", type=PATH)
@click.option("--url", metavar="URL", help="Address of the deployed server [default: the SLO's url].")
@click.option("--plain-url", metavar="URL", help="Address of the same server without a draft.")
@click.option("--run", type=RunPath(), help="The run that certified it [default: the policy's folder].")
@click.option("--slo", type=SloPath(), help="The SLO file, if its models are not found otherwise.")
@click.option("--interval", metavar="60s", help="Time from round to round [default: the policy's].")
@click.option("--duty", type=float, help="Largest share of the server's time for canaries [default: the policy's].")
@click.option("--host/--no-host", default=None, help="Sample this host [default: if the policy guards it].")
@click.option("--once", is_flag=True, help="Run one round and exit.")
@click.option("--rounds", type=click.IntRange(min=1), help="Run this many rounds and exit.")
@click.option("--overlay", type=PATH, help="Overlay file [default: policy.live.toml next to the policy].")
@click.option("--journal", "log", type=PATH, help="Log file [default: watch.jsonl next to the policy].")
@click.option(
    "--on-change", "commands", multiple=True, metavar="COMMAND",
    help="Command to run when a route changes, without a shell; repeatable.",
)  # fmt: skip
@click.option("--limit", metavar="30s", help="Time limit of one command [default: 30s].")
@click.option(
    "--textfile", type=PATH, metavar="DIR",
    help="Also write the state as Prometheus text into this folder.",
)  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", help="Also serve the state at /metrics, for Prometheus to fetch.")
@click.option(
    "--host-name", "host_names", multiple=True, metavar="NAME",
    help="Accept this Host header at --listen too; repeatable.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON, one object per event.")
@QUIET
def watch(policy: Path, *, once: bool, rounds: int | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Check the guards of a deployed policy round after round; turn speculation off when one is violated.

    \b
    Exit codes, after --once or --rounds:
      0    every route is as certified
      1    a route was moved down the ladder or turned off, or a guard is violated
      2    wrong command line or input file
      3    no answer came, or another watch uses the overlay
      4    the overlay or the log cannot be written
      130  interrupted; the same command continues
    """
    import json

    from gatekeeper.core.system.own_limits import raise_descriptor_limit
    from gatekeeper.core.text import inert_json
    from gatekeeper.deploy.watch.config import WatchConfig
    from gatekeeper.deploy.watch.open_session import open_session

    if once and rounds is not None:
        raise InputError("--once and --rounds cannot be combined", hint="--once is the same as --rounds 1")
    options["interval"] = parse_duration(options["interval"], "--interval", "60s")
    if options["limit"] is None:
        del options["limit"]
    else:
        options["limit"] = parse_duration(options["limit"], "--limit", "30s")
    options["commands"] = tuple(_argv(command) for command in options["commands"])
    options["listen"] = None if options["listen"] is None else parse_address(options["listen"], 9477)

    def write(entry: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(inert_json(json.dumps(entry, ensure_ascii=False)))

    raise_descriptor_limit()
    with open_session(WatchConfig(policy, **options), say=styled_printer(quiet=quiet), write=write) as session:
        return session.run(1 if once else rounds)


def _argv(command: str) -> tuple[str, ...]:
    """Split a command into its words as a shell would."""
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise InputError(f"--on-change {command}: {error}", hint="quote it as for a shell") from error
    if not argv:
        raise InputError("--on-change names no program", hint="for example --on-change '/usr/local/bin/reload --now'")
    if shutil.which(argv[0]) is None:
        hint = "name a program on PATH, or its path from the current folder; make it executable: chmod +x"
        raise InputError(f"--on-change {command}: there is no program {argv[0]}", hint=hint)
    return argv


COMMANDS = (watch,)
