"""The commands that work on another machine, and those that ask what became of runs there."""

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gatekeeper.cli.options import AS_JSON, OUT, QUIET, SLO, CommandGroup, annotate, show
from gatekeeper.core.errors import InputError

if TYPE_CHECKING:
    from gatekeeper.run.remote.download import Homecoming
    from gatekeeper.run.remote.remote_run import Courier, Far

Command = TypeVar("Command", bound=Callable[..., Any])
PATIENCE = "10 min"
RUN = click.argument("run_id", metavar="[RUN]", required=False)


def _where(command: Command) -> Command:
    """Add the options that say which machine."""
    for option in (
        click.option(
            "--python", help="The Python there that environments are made with [default: the first that is new enough]."
        ),
        click.option(
            "--hosts",
            type=click.Path(path_type=Path),
            help="A hosts file [default: soak/hosts.toml, then ~/.config/gatekeeper/hosts.toml].",
        ),
        click.option(
            "--on", "name", metavar="HOST", required=True, help="A name of the hosts file, or what ssh knows."
        ),
    ):
        command = option(command)
    return command


def _patient(command: Command) -> Command:
    option = click.option(
        "--patience", default=PATIENCE, show_default=True, help="How long to try again after a lost connection."
    )
    return option(command)


def _ordered(command: Command) -> Command:
    """Add the options of a run that is begun there."""
    for option in (
        click.option(
            "--send-env", "send_env", metavar="NAME", multiple=True, help="A variable that travels; repeatable."
        ),
        click.option("--ship-models", is_flag=True, help="Copy models there that the SLO names by their path."),
        OUT,
        AS_JSON,
        QUIET,
    ):
        command = option(command)
    return _where(_patient(command))


def _bringing(command: Command) -> Command:
    """Add what a command takes that brings a run home."""
    for option in (QUIET, AS_JSON, OUT, _where, _patient, RUN):
        command = option(command)
    return command


@click.group(cls=CommandGroup)
def remote() -> None:
    """Run a command on another machine, over your own ssh, as if it were here.

    \b
    gatekeeper remote certify slos/m4-24gb.toml --on mini.local
    The run is detached there: it survives the connection, and the same command again attaches to it.
    What comes home is verified and judged again here. Connection trouble of any kind is exit code 3.
    """  # noqa: D301 (click reads the \b)


@remote.command()
@SLO
@_ordered
@click.option("--resume", is_flag=True, help="Go on there with the run of this command that did not finish.")
def certify(slo: Path, *, resume: bool, as_json: bool, **how: Any) -> int:
    """Do the whole job there, bring the run home and judge it again here."""
    from gatekeeper.report.terminal import summary  # noqa: PLC0415

    came = _carried_out(("certify",), slo, resume=resume, **how)
    if came.verdict is not None:
        annotate(came.verdict, came.path, slo)
        if as_json:
            sys.stdout.write(came.text)
        else:
            summary.show(came.verdict, run=came.path, promoted=came.promoted)
    _complain(came)
    assert came.verdict is not None
    return came.verdict.exit_code


@remote.command()
@SLO
@click.option("--set", "knobs", multiple=True, metavar="KNOB=VALUE", help="A knob of the setting to soak; repeatable.")
@_ordered
def soak(slo: Path, knobs: Sequence[str], *, as_json: bool, **how: Any) -> None:
    """Soak one setting there. Exits 0 when it finished, whatever it saw."""
    from gatekeeper.report.terminal import summary  # noqa: PLC0415

    came = _carried_out(("soak", *(word for knob in knobs for word in ("--set", knob))), slo, **how)
    if came.verdict is not None:
        if as_json:
            sys.stdout.write(came.text)
        else:
            summary.show(came.verdict, run=came.path, promoted=False)
    _complain(came)


@remote.command()
@SLO
@_ordered
def sweep(slo: Path, *, as_json: bool, **how: Any) -> None:
    """Run the sweep alone there and say what it would choose. Exits 0 when it finished, whatever it saw."""
    from gatekeeper.report import command_text  # noqa: PLC0415

    came = _carried_out(("sweep",), slo, **how)
    _complain(came)
    assert came.document is not None
    show(came.document, command_text.choices(came.document), as_json=as_json)


@remote.command()
@SLO
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True, help="About how long.")
@_ordered
def probe(slo: Path, *, seconds: float, as_json: bool, **how: Any) -> None:
    """Say in about thirty seconds if a draft helps on that machine. Exits 0 when it finished."""
    from gatekeeper.report import command_text  # noqa: PLC0415

    came = _carried_out(("probe", "--seconds", f"{seconds:g}"), slo, **how)
    _complain(came)
    assert came.document is not None
    document = came.document
    if how["out"] is None:  # as here: a probe keeps its records only where it is told to
        shutil.rmtree(came.path)
        document = document | {"run": None}
    document = _said_from_here(document, slo, how["name"])
    show(document, command_text.probe(document), as_json=as_json)


def _said_from_here(document: dict[str, Any], slo: Path, name: str) -> dict[str, Any]:
    """Have the next steps of a probe name the command that was given, and not the one it became over there."""
    there, here = re.compile(r"gatekeeper probe \S.*?\.toml"), f"gatekeeper remote probe {slo} --on {name}"
    workloads = {
        workload: found | {"next": there.sub(lambda _: here, str(found.get("next", "")))}
        for workload, found in document["workloads"].items()
    }
    return document | {"workloads": workloads}


def _there(verb: str, says: str) -> click.Command:
    """Return a command that runs *verb* there and shows what it writes; its own options are passed on."""

    @click.command(
        name=verb, help=says, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True}
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar=f"[OPTIONS OF {verb}]...")
    @_where
    def run(words: Sequence[str], name: str, hosts: Path | None, python: str | None) -> int:
        from gatekeeper.run.remote.remote_run import visit  # noqa: PLC0415

        return visit(_far(name, hosts, python), [verb, *words])

    return run


remote.add_command(_there("host", "Show what that host's telemetry says now: every value with its source and status."))
remote.add_command(_there("doctor", "Show what that machine lacks, and the command that fixes it."))


@remote.command(name="list")
@_where
@AS_JSON
def list_runs(name: str, hosts: Path | None, python: str | None, *, as_json: bool) -> None:
    """Show the runs that lie on that machine: whose they are, since when, and what became of them."""
    from gatekeeper.run.remote import run_list  # noqa: PLC0415

    document = run_list.listed(_far(name, hosts, python))
    show(document, run_list.render(document), as_json=as_json)


@remote.command()
@_bringing
def attach(run_id: str | None, *, as_json: bool, **how: Any) -> int:
    """Follow a run there to its end, bring it home and judge it here. Without RUN: the one that is under way."""
    return _brought(run_id, "running", as_json=as_json, **how)


@remote.command()
@_bringing
def fetch(run_id: str | None, *, as_json: bool, **how: Any) -> int:
    """Bring a run home that has ended there, and judge it here. Without RUN: the newest that was not fetched."""
    return _brought(run_id, "ended", as_json=as_json, **how)


@remote.command()
@RUN
@_where
@click.option(
    "--grace", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Seconds to end by itself."
)
@AS_JSON
def cancel(
    run_id: str | None, name: str, hosts: Path | None, python: str | None, *, grace: float, as_json: bool
) -> None:
    """End a run there: gatekeeper ends its servers and itself, and is killed only after --grace.

    Without RUN: the one that is under way, if it is yours.
    """
    from gatekeeper.run.remote import run_list  # noqa: PLC0415

    document = run_list.cancel(_far(name, hosts, python), run_id, grace)
    show(document, run_list.cancelled(document), as_json=as_json)


@remote.command()
@_where
@click.option(
    "--keep", type=click.IntRange(min=1), required=True, metavar="N", help="Keep the newest N that came home."
)
@click.option("--dry-run", "-n", is_flag=True, help="Say what would be removed, and remove nothing.")
@AS_JSON
def prune(name: str, hosts: Path | None, python: str | None, *, keep: int, dry_run: bool, as_json: bool) -> None:
    """Remove old runs of yours from that machine, once they came home; nothing else is touched."""
    from gatekeeper.run.remote import run_list  # noqa: PLC0415

    document = run_list.clear(_far(name, hosts, python), keep, dry_run=dry_run)
    show(document, run_list.render_pruned(document), as_json=as_json)


@remote.command(hidden=True)
@SLO
def inventory(slo: Path) -> None:
    """Print what this machine has for an SLO; gatekeeper on another machine asks."""
    from gatekeeper.run.remote.preflight import take  # noqa: PLC0415

    show(take(slo), "", as_json=True)


def _far(name: str, hosts: Path | None, python: str | None) -> "Far":
    from gatekeeper.run.remote import hosts_file as book  # noqa: PLC0415
    from gatekeeper.run.remote.remote_run import Far  # noqa: PLC0415

    address, host = book.find(name, hosts)
    return Far(name, address, host.model_copy(update={"python": python}) if python else host)


@contextmanager
def _courier(name: str, hosts: Path | None, python: str | None, patience: str, *, quiet: bool) -> "Iterator[Courier]":
    from gatekeeper.report.terminal import live  # noqa: PLC0415
    from gatekeeper.run.remote.reconnect import Tether  # noqa: PLC0415
    from gatekeeper.run.remote.remote_run import Courier  # noqa: PLC0415

    far = _far(name, hosts, python)
    with live.progress(quiet=quiet) as observer, Tether(far.connect, patience_s=_seconds(patience)) as tether:
        courier = Courier(far, tether, [observer] if observer is not None else [])
        tether.say = courier.say
        yield courier


def _carried_out(
    command: tuple[str, ...],
    slo: Path,
    *,
    out: Path | None,
    ship_models: bool,
    send_env: Sequence[str],
    resume: bool = False,
    **how: Any,
) -> "Homecoming":
    from gatekeeper.run.remote.remote_run import Order  # noqa: PLC0415

    order: Order = Order(command, slo, out, resume=resume, ship_models=ship_models, send_env=tuple(send_env))
    with _courier(**how) as courier:
        return courier.carry_out(order)


def _brought(run_id: str | None, state: str, *, out: Path | None, as_json: bool, **how: Any) -> int:
    from gatekeeper.report import command_text  # noqa: PLC0415
    from gatekeeper.report.terminal import summary  # noqa: PLC0415
    from gatekeeper.run.remote import run_list  # noqa: PLC0415

    with _courier(**how) as courier:
        verb, came = run_list.bring(courier, run_id, out, state)
    if came.verdict is not None:
        if as_json:
            sys.stdout.write(came.text)
        else:
            summary.show(came.verdict, run=came.path, promoted=came.promoted)
    _complain(came)
    if came.document is not None:
        render = command_text.probe if verb == "probe" else command_text.choices
        show(came.document, render(came.document), as_json=as_json)
    return came.verdict.exit_code if came.verdict is not None and verb == "certify" else 0


def _complain(came: "Homecoming") -> None:
    if came.trouble is not None:
        sys.stdout.flush()
        raise came.trouble


def _seconds(written: str) -> float:
    from gatekeeper.core.units import SECONDS, parse  # noqa: PLC0415

    try:
        seconds = parse(written, SECONDS)
    except ValueError as error:
        raise InputError(f"--patience: {error}", hint="for example --patience 10min") from error
    if seconds < 0:
        raise InputError(f"--patience {written}: less than none", hint="for example --patience 10min")
    return seconds
