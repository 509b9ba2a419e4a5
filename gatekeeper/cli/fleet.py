"""The commands of `gatekeeper fleet`: many SLOs on many hosts."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gatekeeper.cli.common_options import AS_JSON, QUIET, add_common
from gatekeeper.cli.options import PATH, CommandGroup, SloPath, ends_with, parse_duration, show
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.text import printable_error

if TYPE_CHECKING:
    from gatekeeper.report.shown_document import Command

HOSTS = click.option("--hosts", type=PATH, default=Path("soak/hosts.toml"), show_default=True, help="The hosts file.")
ONLY = click.option("--only", metavar="HOST", multiple=True, help="Use only this host of the file; repeatable.")
RUNS = click.option("--runs", type=PATH, default=Path("runs/fleet"), show_default=True, help="Folder of the fleet.")
SLOS = click.argument("slos", nargs=-1, required=True, type=SloPath(), metavar="SLO...")


AFTER_INTERRUPT = {
    "fleet": "started runs continue on their hosts: the same command attaches to them, "
    "gatekeeper remote cancel --on HOST stops one"
}


@click.group(cls=CommandGroup)
def fleet() -> None:
    """Certify many SLOs on many hosts, each by `gatekeeper remote`.

    \b
    gatekeeper fleet plan slos/*.toml --hosts soak/hosts.toml
    gatekeeper fleet certify slos/*.toml --hosts soak/hosts.toml --runs runs/fleet

    One run at a time on a host, hosts in parallel, the longest first.
    """


@fleet.command()
@SLOS
@HOSTS
@ONLY
@AS_JSON
@ends_with(
    ok="every host answered, and some SLO fits some host",
    unproven="a host gave no answer, or no SLO fits any host",
)
def plan(slos: Sequence[Path], hosts: Path, only: Sequence[str], *, as_json: bool) -> int:
    """Show which SLO fits which host, why the others do not, and the expected time; starts nothing of an SLO here.

    \b
    gatekeeper fleet plan m4-24gb m4-16gb --hosts soak/hosts.toml
    """
    from gatekeeper.fleet.cells import find_cells
    from gatekeeper.fleet.fleet_plan import FleetPlan

    cells, looks = find_cells(slos, hosts, only)
    plan = FleetPlan(looks, cells)
    ready = plan.exit_code == ExitCode.OK
    following = [_next("fleet", "certify", *slos, "--hosts", hosts, only=only)] if ready else []
    show(plan.document(), plan.describe(following), as_json=as_json)
    return plan.exit_code


@fleet.command()
@SLOS
@HOSTS
@ONLY
@RUNS
@click.option(
    "--retries", type=click.IntRange(0, 1000), default=2, show_default=True,
    help="Retries after a lost connection or on a busy host.",
)  # fmt: skip
@click.option(
    "--patience",
    metavar="10min",
    default="10 min",
    show_default=True,
    help="How long to retry after the connection is lost.",
)
@click.option(
    "--scheduler", metavar="tls://…",
    help="A running Dask scheduler, whose workers see all files under the same paths.",
)  # fmt: skip
@click.option("--send-env", metavar="NAME", multiple=True, help="An environment variable to pass on; repeatable.")
@click.option(
    "--baseline", metavar="RUN",
    help='A certified run on each host for objectives with against = "certified" [default: its own runs], or none.',
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue the fleet in --runs: what has a verdict stays.")
@AS_JSON
@QUIET
def certify(
    slos: Sequence[Path],
    hosts: Path,
    only: Sequence[str],
    runs: Path,
    *,
    retries: int,
    patience: str,
    scheduler: str | None,
    send_env: Sequence[str],
    baseline: str | None,
    resume: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Certify every SLO on every host that it fits.

    Exits with the worst code of all runs. After Ctrl-C the same command attaches to its runs.

    \b
    gatekeeper fleet certify m4-24gb m4-16gb --hosts soak/hosts.toml
    """
    from gatekeeper.fleet import dispatch, fleet_run
    from gatekeeper.fleet.fleet_document import fleet_document
    from gatekeeper.fleet.fleet_record import NO_VERDICT

    if scheduler is not None and (exposed := dispatch.check_scheduler(scheduler)) is not None:
        click.echo(f"warning: {exposed}", err=True)
    patience_s = parse_duration(patience, "--patience", "10min")
    options = ["--patience", f"{patience_s:g} s"]
    for name in send_env:
        options += ["--send-env", name]
    if baseline is not None:
        options += ["--baseline", baseline]

    def say(line: str) -> None:
        if not quiet:
            click.echo(printable_error(line), err=True)

    record = fleet_run.certify_fleet(
        slos, hosts, runs, only=only, options=options, retries=retries, resume=resume, scheduler=scheduler, say=say
    )
    following: list[Command] = []
    if any(cell.outcome == NO_VERDICT for cell in record.included):
        following = [_next("fleet", "certify", *slos, "--hosts", hosts, "--runs", runs, "--resume", only=only)]
    elif record.exit_code == ExitCode.OK and not any(cell.is_demo for cell in record.included):
        following = [_next("admit", slos[0], "--fleet", runs)]
    show(record.document(), fleet_document(record, following), as_json=as_json)
    return int(record.exit_code)


def _next(*words: str | Path, only: Sequence[str] = ()) -> "Command":
    """Return the next command, with the hosts that it is for."""
    from gatekeeper.report.shown_document import Command

    named = [word for host in only for word in ("--only", host)]
    return Command(shlex.join(["gatekeeper", *map(str, words), *named]))


add_common(fleet)


COMMANDS = (fleet,)
