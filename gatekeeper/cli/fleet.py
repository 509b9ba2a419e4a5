"""The commands of `gatekeeper fleet`: many SLOs on many hosts."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from gatekeeper.cli.common_options import AS_JSON, QUIET, add_common
from gatekeeper.cli.options import PATH, CommandGroup, SloPath, ends_with, parse_duration, show
from gatekeeper.core.exit_codes import ExitCode

HOSTS = click.option("--hosts", type=PATH, default=Path("soak/hosts.toml"), show_default=True, help="The hosts file.")
ONLY = click.option("--only", metavar="HOST", multiple=True, help="Use only this host of the file; repeatable.")
RUNS = click.option("--runs", type=PATH, default=Path("runs/fleet"), show_default=True, help="Folder of the fleet.")
SLOS = click.argument("slos", nargs=-1, required=True, type=SloPath(), metavar="SLO...")


AFTER_INTERRUPT = {
    "fleet": "started runs continue on their hosts: the same command attaches to them, "
    "gatekeeper remote cancel --on HOST stops one"
}


def _looks(command: Callable[..., Any]) -> Callable[..., Any]:
    return SLOS(HOSTS(ONLY(command)))


@click.group(cls=CommandGroup)
def fleet() -> None:
    """Certify many SLOs on many hosts, each by `gatekeeper remote`.

    \b
    gatekeeper fleet plan slos/*.toml --hosts soak/hosts.toml
    gatekeeper fleet certify slos/*.toml --hosts soak/hosts.toml --runs runs/fleet

    One run at a time on a host, hosts in parallel, the longest first.
    """


@fleet.command()
@_looks
@AS_JSON
@ends_with(
    ok="every host answered, and some SLO fits some host",
    unproven="a host gave no answer, or no SLO fits any host",
)
def plan(slos: Sequence[Path], hosts: Path, only: Sequence[str], *, as_json: bool) -> int:
    """Show which SLO fits which host, why the others do not, and the expected time.

    \b
    gatekeeper fleet plan m4-24gb m4-16gb --hosts soak/hosts.toml
    """
    from gatekeeper.fleet.cells import look_at_hosts, pair_slos_with_hosts, read_hosts, read_slos
    from gatekeeper.fleet.fleet_plan import plan_fleet
    from gatekeeper.fleet.fleet_report import plan_text

    entries = read_slos(slos)
    looks = look_at_hosts(read_hosts(hosts, only))
    plan = plan_fleet(pair_slos_with_hosts(entries, looks), looks)
    typed = _next("fleet", "certify", *slos, "--hosts", hosts, only=only) if plan.exit_code == ExitCode.OK else ""
    show(plan.document(), plan_text(plan) + typed, as_json=as_json)
    return plan.exit_code


@fleet.command()
@_looks
@RUNS
@click.option(
    "--retries", type=click.IntRange(0, 100), default=2, show_default=True,
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
    as_json: bool,
    quiet: bool,
) -> int:
    """Certify every SLO on every host that it fits. Run it again to attach to its runs.

    Exits with the worst code of all runs.

    \b
    gatekeeper fleet certify m4-24gb m4-16gb --hosts soak/hosts.toml
    """
    from gatekeeper.fleet import dispatch, fleet_run
    from gatekeeper.fleet.cell_task import FleetOptions
    from gatekeeper.fleet.fleet_report import NO_VERDICT, outcome, text
    from gatekeeper.fleet.fleet_view import FleetView

    if scheduler is not None and (exposed := dispatch.check_scheduler(scheduler)) is not None:
        click.echo(f"warning: {exposed}", err=True)
    patience_s = parse_duration(patience, "--patience", "10min")
    assert patience_s is not None
    options = FleetOptions(patience_s, tuple(send_env), baseline)
    with FleetView(quiet=quiet) as view:
        answer = fleet_run.certify_fleet(
            slos, hosts, runs, only=only, retries=retries, scheduler=scheduler, options=options,
            report=view.report, begin=view.begin,
        )  # fmt: skip
    lost = sorted({cell.cell.host for cell in answer.included if outcome(cell) == NO_VERDICT})
    typed = _next("fleet", "certify", *slos, "--hosts", hosts, "--runs", runs, only=lost) if lost else ""
    if answer.exit_code == ExitCode.OK and not any(cell.is_demo for cell in answer.included):
        typed = _next("admit", slos[0], "--fleet", runs)
    show(answer.document(), text(answer) + typed, as_json=as_json)
    return int(answer.exit_code)


@fleet.command()
@RUNS
@AS_JSON
def report(runs: Path, *, as_json: bool) -> int:
    """Show the answer of the fleet in --runs again; exits with its code.

    \b
    gatekeeper fleet report --runs runs/fleet
    """
    from gatekeeper.fleet.fleet_json import read_existing
    from gatekeeper.fleet.fleet_report import text

    answer = read_existing(runs)
    show(answer.document(), text(answer), as_json=as_json)
    return int(answer.exit_code)


@fleet.command()
@click.argument("slo")
@RUNS
@ONLY
@AS_JSON
def policy(slo: str, runs: Path, only: Sequence[str], *, as_json: bool) -> None:
    """Write the routes of SLO (its name) that hold on all hosts, and what one policy for all costs each host.

    \b
    gatekeeper fleet policy m4-24gb --runs runs/fleet
    """
    import tomli_w

    from gatekeeper.fleet.common_policy import common_policy
    from gatekeeper.fleet.fleet_json import read_existing

    document = common_policy(read_existing(runs), slo, only)
    show(document, tomli_w.dumps(document), as_json=as_json)


def _next(*words: str | Path, only: Sequence[str] = ()) -> str:
    """Return the line of the next command, with the hosts that it is for."""
    named = [word for host in only for word in ("--only", host)]
    return f"next: {shlex.join(['gatekeeper', *map(str, words), *named])}\n"


add_common(fleet)


COMMANDS = (fleet,)
