"""The commands of `gatekeeper fleet`: many SLOs on many hosts."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gatekeeper.cli.common_options import AS_JSON, add_common
from gatekeeper.cli.options import PATH, CommandGroup, SloPath, parse_duration, show
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from gatekeeper.fleet.cells import Cell, HostLook

HOSTS = click.option("--hosts", type=PATH, default=Path("soak/hosts.toml"), show_default=True, help="The hosts file.")
ONLY = click.option("--only", metavar="HOST", multiple=True, help="Use only this host of the file; repeatable.")
RUNS = click.option("--runs", type=PATH, default=Path("runs/fleet"), show_default=True, help="Folder of the fleet.")
SLOS = click.argument("slos", nargs=-1, required=True, type=SloPath(), metavar="SLO...")


AFTER_INTERRUPT = {
    "fleet": "started runs continue on their hosts: the same command attaches to them, "
    "gatekeeper fleet cancel stops them"
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
@click.option(
    "--assume", metavar="MODEL=SIZE", multiple=True, help='Size of a model that is not here, "X=4.6 GB"; repeatable.'
)
@AS_JSON
def plan(slos: Sequence[Path], hosts: Path, only: Sequence[str], assume: Sequence[str], *, as_json: bool) -> int:
    """Show which SLO fits which host, why the others do not, what each host needs, and the expected time.

    \b
    Exit codes:
      0    every host answered, and some SLO fits some host
      3    a host gave no answer, or no SLO fits any host
    """
    from gatekeeper.fleet.fleet_plan import plan_fleet
    from gatekeeper.fleet.fleet_report import plan_text

    plan = plan_fleet(*_cells(slos, hosts, only, dict(map(_size, assume))))
    typed = _next("fleet", "certify", *slos, "--hosts", hosts, only=only) if plan.exit_code == ExitCode.OK else ""
    show(plan.document(), plan_text(plan) + typed, as_json=as_json)
    return plan.exit_code


@fleet.command()
@_looks
def matrix(slos: Sequence[Path], hosts: Path, only: Sequence[str]) -> None:
    """Print the same pairs of SLO and host as JSON for strategy.matrix in GitHub Actions."""
    import json

    from gatekeeper.fleet.cells import matrix as matrix_of

    cells, _ = _cells(slos, hosts, only)
    sys.stdout.write(json.dumps(matrix_of(cells)) + "\n")


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
@click.option("--ship-models", is_flag=True, help="Upload the models that the SLOs name by path.")
@click.option("--send-env", metavar="NAME", multiple=True, help="An environment variable to pass on; repeatable.")
@click.option(
    "--baseline", metavar="RUN",
    help='Certified runs for objectives with against = "certified" [default: --runs], or none.',
)  # fmt: skip
@AS_JSON
@click.option("-q", "--quiet", is_flag=True, help="Show no progress on stderr.")
def certify(
    slos: Sequence[Path],
    hosts: Path,
    only: Sequence[str],
    runs: Path,
    *,
    retries: int,
    patience: str,
    scheduler: str | None,
    ship_models: bool,
    send_env: Sequence[str],
    baseline: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Certify every SLO on every host that it fits. Run it again to attach to its runs.

    Exits with the worst code of all runs.
    """
    from gatekeeper.fleet import dispatch, fleet_run
    from gatekeeper.fleet.cell_task import FleetOptions
    from gatekeeper.fleet.fleet_report import NO_VERDICT, outcome, text
    from gatekeeper.fleet.fleet_view import FleetView

    if scheduler is not None and (exposed := dispatch.check_scheduler(scheduler)) is not None:
        click.echo(f"warning: {exposed}", err=True)
    if baseline is not None and Path(baseline).is_dir():
        baseline = str(Path(baseline).resolve())
    patience_s = parse_duration(patience, "--patience", "10min")
    assert patience_s is not None
    options = FleetOptions(patience_s, ship_models, tuple(send_env), baseline)
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
    """Show the answer of the fleet in --runs again; exits with its code."""
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
    """Write the routes of SLO (its name) that hold on all hosts, and what one policy for all costs each host."""
    import tomli_w

    from gatekeeper.fleet.common_policy import common_policy
    from gatekeeper.fleet.fleet_json import read_existing

    document = common_policy(read_existing(runs), slo, only)
    show(document, tomli_w.dumps(document), as_json=as_json)


@fleet.command()
@HOSTS
@ONLY
@RUNS
@AS_JSON
def cancel(hosts: Path, only: Sequence[str], runs: Path, *, as_json: bool) -> int:
    """Stop the runs of the fleet in --runs on their hosts."""
    from gatekeeper.fleet.on_hosts import cancel_all

    document = cancel_all(runs, hosts, only)
    lines = [f"{row['host']}: {row['run']}: {row['says']}\n" for row in document["runs"]]
    show(document, "".join(lines) or "nothing runs\n", as_json=as_json)
    return ExitCode.UNPROVEN if any(row["error"] for row in document["runs"]) else ExitCode.OK


@fleet.command()
@HOSTS
@ONLY
@click.option(
    "--keep", type=click.IntRange(min=1), required=True, metavar="N", help="Keep the newest N downloaded runs."
)
@AS_JSON
def prune(hosts: Path, only: Sequence[str], keep: int, *, as_json: bool) -> int:
    """Remove your old downloaded runs from every host; nothing else is touched."""
    from gatekeeper.fleet.on_hosts import prune_all

    document = prune_all(hosts, keep, only)
    show(document, "".join(f"{row['host']}: {row['says']}\n" for row in document["hosts"]), as_json=as_json)
    return ExitCode.UNPROVEN if any(row["error"] for row in document["hosts"]) else ExitCode.OK


def _next(*words: str | Path, only: Sequence[str] = ()) -> str:
    """Return the line of the next command, with the hosts that it is for."""
    named = [word for host in only for word in ("--only", host)]
    return f"next: {shlex.join(['gatekeeper', *map(str, words), *named])}\n"


def _size(written: str) -> tuple[str, int]:
    from gatekeeper.core.units import BYTES, parse

    model, _, size = written.rpartition("=")
    try:
        return model, round(parse(size, BYTES))
    except ValueError as error:
        raise InputError(f"--assume {written}: {error}", hint='for example --assume "Qwen/Qwen3-8B=16 GB"') from error


def _cells(
    slos: Sequence[Path], hosts: Path, only: Sequence[str], assumed: Mapping[str, int] | None = None
) -> "tuple[list[Cell], dict[str, HostLook]]":
    from gatekeeper.fleet.cells import look_at_hosts, pair_slos_with_hosts, read_hosts, read_slos

    entries = read_slos(slos)
    looks = look_at_hosts(read_hosts(hosts, only), entries)
    return pair_slos_with_hosts(entries, looks, assumed), looks


add_common(fleet)


COMMANDS = (fleet,)
