"""The command `proxy`: route live requests by the certificate."""

from pathlib import Path
from typing import Any

import click

from gatekeeper.cli.common_options import QUIET
from gatekeeper.cli.options import PATH, RunPath, SloPath, parse_address, parse_duration, styled_printer
from gatekeeper.core.errors import InputError

MISSING = "gatekeeper proxy needs the extra `proxy`"


@click.command()
@click.argument("policy", type=PATH)
@click.option("--url", metavar="URL", required=True, help="Address of the server that speculates.")
@click.option(
    "--plain-url",
    metavar="URL",
    help="Address of the same server without a draft; needed unless requests switch drafting.",
)
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:8089", show_default=True, help="Address to serve on.")
@click.option(
    "--host-name", "hosts", multiple=True, metavar="NAME", help="Accept this name in Host and Origin too; repeatable."
)
@click.option("--run", type=RunPath(), help="The run that certified it [default: the policy's folder].")
@click.option("--slo", type=SloPath(), help="The SLO file, if its models are not found otherwise.")
@click.option("--interval", metavar="60s", help="Time from round to round [default: the policy's].")
@click.option("--duty", type=float, help="Largest share of the server's time for canaries [default: the policy's].")
@click.option("--host/--no-host", default=None, help="Sample this host [default: if the policy guards it].")
@click.option("--overlay", type=PATH, help="Overlay file [default: policy.live.toml next to the policy].")
@click.option("--journal", "log", type=PATH, help="Log file [default: watch.jsonl next to the policy].")
@click.option("--textfile", type=PATH, metavar="DIR", help="Also write the state as Prometheus text into this folder.")
@click.option("--records", type=PATH, help="Records [default: live.jsonl next to the policy].")
@click.option("--keep-prompts", type=PATH, help="Also keep requests and answers, with mode 600.")
@click.option("--drain", default="60s", show_default=True, metavar="60s", help="Longest wait for requests at the end.")
@QUIET
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
    Exit codes:
      0    stopped by SIGTERM or Ctrl-C
      2    wrong command line or input file
      3    a watch or another proxy uses this policy
      4    a file cannot be written
    """
    from gatekeeper.core.system.own_limits import raise_descriptor_limit
    from gatekeeper.deploy.watch.config import WatchConfig

    try:
        from gatekeeper.proxy import serve
    except ModuleNotFoundError as error:
        raise InputError(f"{MISSING}: no module {error.name}", hint='pip install "gatekeeper-slo[proxy]"') from error

    options["interval"] = parse_duration(options["interval"], "--interval", "60s")
    drain_s = parse_duration(drain, "--drain", "60s") or 0.0
    host, port = parse_address(listen, 8089)

    def listening(address: str) -> None:
        click.echo(f"proxy: listening on {address} (page: {address}/, metrics: {address}/metrics)", err=True)

    watch = WatchConfig(policy, **options)
    config = serve.ProxyConfig(watch, host, port, keep_prompts, records, hosts, drain_s=drain_s)
    raise_descriptor_limit()
    serve.run(config, say=styled_printer(quiet=quiet), listening=listening)


COMMANDS = (proxy,)
