"""The options of `gatekeeper remote`: a host, how long to retry, and those of commands that start or fetch a run."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gatekeeper.cli.common_options import AS_JSON, QUIET
from gatekeeper.cli.options import LATEST, OUT, PATH
from gatekeeper.core.errors import InputError

PATIENCE = "10 min"
RUN = click.argument(
    "run_id", metavar="[RUN]", required=False,
    callback=lambda _context, _option, run_id: None if run_id == LATEST else run_id,
)  # fmt: skip


def _decorate(command: Callable[..., Any], *decorators: Callable[[Any], Any]) -> Callable[..., Any]:
    """Apply decorators, the last one outermost."""
    for decorator in decorators:
        command = decorator(command)
    return command


def on_host(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a host; the command gets them as one RemoteHost, *remote_host*."""

    @functools.wraps(command)
    def resolved(*arguments: Any, name: str, hosts: Path | None, python: str | None, **options: Any) -> Any:
        from gatekeeper.run.remote import hosts_file
        from gatekeeper.run.remote.remote_run import RemoteHost

        address, settings = hosts_file.find(name, hosts)
        settings = settings.model_copy(update={"python": python}) if python else settings
        return command(*arguments, remote_host=RemoteHost(name, address, settings), **options)

    return _decorate(
        resolved,
        click.option("--python", help="Its Python for new environments [default: the first new enough]."),
        click.option(
            "--hosts", type=PATH, help="A hosts file [default: soak/hosts.toml, then ~/.config/gatekeeper/hosts.toml]."
        ),
        click.option(
            "--on", "name", metavar="HOST", required=True, help="A name in the hosts file, or any host that ssh knows."
        ),
    )


def _patience_s(_context: click.Context, _parameter: click.Parameter, written: str) -> float:
    from gatekeeper.core.units import SECONDS, parse

    try:
        seconds = parse(written, SECONDS)
    except ValueError as error:
        raise InputError(f"--patience: {error}", hint="for example --patience 10min") from error
    if seconds < 0:
        raise InputError(f"--patience {written}: must not be negative", hint="for example --patience 10min")
    return seconds


_PATIENCE = click.option(
    "--patience", "patience_s", metavar="10min", default=PATIENCE, show_default=True, callback=_patience_s,
    help="How long to retry after the connection is lost.",
)  # fmt: skip


def starts_run(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that starts a run."""
    send_env = click.option(
        "--send-env", "send_env", metavar="NAME", multiple=True, help="An environment variable to pass on; repeatable."
    )
    ship = click.option("--ship-models", is_flag=True, help="Upload the models that the SLO names by path.")
    return _decorate(command, send_env, ship, OUT, AS_JSON, QUIET, _PATIENCE, on_host)


def downloads_run(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that downloads a run."""
    return _decorate(command, QUIET, AS_JSON, OUT, on_host, _PATIENCE, RUN)
