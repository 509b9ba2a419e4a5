"""The commands `watch`, which checks the guards of a deployed policy, and `proxy`, which routes live requests by it."""

import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from gatekeeper.cli.common_options import QUIET
from gatekeeper.cli.options import PATH, RunPath, SloPath, ends_with, parse_address, parse_duration, styled_printer
from gatekeeper.core.errors import InputError

AFTER_INTERRUPT = {
    "watch": "the overlay is valid until its next_look_before; the same command continues from watch.jsonl"
}
METRICS_PORT, PROXY_PORT = 9477, 8089
"""The port of an example of `watch --listen`, and the one that a proxy serves on by default."""
MISSING = "gatekeeper proxy needs the extra `proxy`"


def watching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a watch, which the proxy has built in."""
    options = (
        click.option("--run", type=RunPath(), help="The run that certified it [default: its folder]."),
        click.option("--slo", type=SloPath(), help="The SLO file, if its models are not found otherwise."),
        click.option("--interval", metavar="60s", help="Time from round to round [default: the policy's]."),
        click.option(
            "--duty", type=float, help="Largest share of the server's time for canaries [default: the policy's]."
        ),
        click.option("--host/--no-host", default=None, help="Sample this host [default: if the policy guards it]."),
        click.option("--overlay", type=PATH, help="The overlay [default: policy.live.toml beside it]."),
        click.option("--log", type=PATH, help="The log [default: watch.jsonl beside it]."),
        click.option("--textfile", type=PATH, metavar="DIR", help="Write the state as Prometheus text here, too."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("policy", type=PATH)
@click.option("--url", metavar="URL", help="The deployed server [default: the SLO's url].")
@click.option("--plain-url", metavar="URL", help="Address of the same server without a draft.")
@watching
@click.option("--rounds", type=click.IntRange(min=1), metavar="N", help="Run this many rounds and exit.")
@click.option(
    "--on-change", "commands", multiple=True, metavar="COMMAND",
    help="Command to run when a route changes, without a shell, for 30 s at most; repeatable.",
)  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", help="Serve the state at /metrics, for Prometheus.")
@click.option(
    "--host-name", "host_names", multiple=True, metavar="NAME",
    help="Accept this Host header at --listen too; repeatable.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON, one object per event.")
@QUIET
@ends_with(
    ok="every route is as certified",
    objective_failed="a route was moved down the ladder or turned off, or a guard is violated",
    bad_input=None,
    unproven="no answer came, another watch runs, or the run is of other rules",
    internal_error="the overlay or the log cannot be written",
    interrupted="interrupted; the same command continues",
)
def watch(policy: Path, *, rounds: int | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Check the guards of a deployed policy round after round; turn speculation off when one is violated.

    With --rounds it ends; the exit code says how the last round was.

    \b
    gatekeeper watch policy.toml --url http://127.0.0.1:8080/v1
    """
    import json

    from gatekeeper.core.system.own_limits import raise_descriptor_limit
    from gatekeeper.core.text import inert_json
    from gatekeeper.live.session import open_session
    from gatekeeper.live.watch_config import WatchConfig

    options["interval"] = parse_duration(options["interval"], "--interval", "60s")
    options["commands"] = tuple(_argv(command) for command in options["commands"])
    options["listen"] = None if options["listen"] is None else parse_address(options["listen"], METRICS_PORT)

    def write(entry: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(inert_json(json.dumps(entry, ensure_ascii=False)))

    raise_descriptor_limit()
    with open_session(WatchConfig(policy, **options), say=styled_printer(quiet=quiet), write=write) as session:
        return session.run(rounds)


@click.command()
@click.argument("policy", type=PATH)
@click.option("--url", metavar="URL", required=True, help="Address of the server that speculates.")
@click.option(
    "--plain-url",
    metavar="URL",
    help="Address of the same server without a draft; needed unless requests switch drafting.",
)
@watching
@click.option(
    "--listen", metavar="HOST:PORT", default=f"127.0.0.1:{PROXY_PORT}", show_default=True, help="Address to serve on."
)
@click.option(
    "--host-name", "hosts", multiple=True, metavar="NAME", help="Accept this name in Host and Origin too; repeatable."
)
@click.option("--records", type=PATH, help="Records [default: live.jsonl next to the policy].")
@click.option("--keep-prompts", type=PATH, help="Also keep requests and answers, with mode 600.")
@click.option("--drain", default="60s", show_default=True, metavar="60s", help="Longest wait for requests at the end.")
@QUIET
@ends_with(
    ok="stopped by SIGTERM or Ctrl-C",
    bad_input=None,
    unproven="a watch or another proxy uses this policy, or its run is of other rules",
    internal_error="a file cannot be written",
)
def proxy(
    policy: Path,
    *,
    listen: str,
    hosts: tuple[str, ...],
    records: Path | None,
    keep_prompts: Path | None,
    drain: str,
    quiet: bool,
    **options: Any,
) -> None:
    """Route live requests by the certificate: speculate where it holds, else decode plainly.

    An OpenAI-compatible reverse proxy with `gatekeeper watch` built in. A random holdout is decoded plainly, to prove
    the gain on live traffic: see /, /metrics and live.jsonl.

    \b
    gatekeeper proxy policy.toml --url http://127.0.0.1:8080/v1
    """
    from gatekeeper.core.system.own_limits import raise_descriptor_limit
    from gatekeeper.live.watch_config import WatchConfig

    try:
        from gatekeeper.live import serve
    except ModuleNotFoundError as error:
        raise InputError(f"{MISSING}: no module {error.name}", hint='pip install "gatekeeper-slo[proxy]"') from error

    options["interval"] = parse_duration(options["interval"], "--interval", "60s")
    drain_s = parse_duration(drain, "--drain", "60s") or 0.0
    host, port = parse_address(listen, PROXY_PORT)

    def listening(address: str) -> None:
        click.echo(f"proxy: listening on {address} (page: {address}/, metrics: {address}/metrics)", err=True)

    watch = WatchConfig(policy, **options)
    config = serve.ProxyConfig(watch, host, port, keep_prompts, records, hosts, drain_s=drain_s)
    raise_descriptor_limit()
    serve.run(config, say=styled_printer(quiet=quiet), listening=listening)


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


COMMANDS = (watch, proxy)
