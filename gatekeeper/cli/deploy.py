"""The commands around a deploy: admit, sign, history, compare, watch, prune."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gatekeeper.cli.options import AS_JSON, QUIET, RUN_DIR, SLO, parse_duration, show
from gatekeeper.core.errors import ExitCode, InputError


@click.command()
@SLO
@click.option("--run", "run_dir", type=click.Path(path_type=Path), help="The run to admit.")
@click.option("--runs", type=click.Path(path_type=Path), help="A folder of runs; the newest that matches decides.")
@click.option("--max-age", metavar="7d", help="Refuse an older run, whatever its policy says; never prolongs it.")
@click.option("--grade", type=click.Choice(["certification", "demo"]), default="certification", show_default=True)
@click.option("--signed-by", type=click.Path(path_type=Path), help="An allowed-signers file: one of them has signed.")
@AS_JSON
def admit(
    slo: Path,
    run_dir: Path | None,
    runs: Path | None,
    max_age: str | None,
    grade: str,
    signed_by: Path | None,
    *,
    as_json: bool,
) -> int:
    """Say if there is a passing, unexpired, untampered run for exactly these artifacts: the deploy gate.

    \b
    Exit codes: 0 the newest run that matches passes; 1 it broke a promise; 3 there is no proof.
    """  # noqa: D301 (click reads the \b)
    from gatekeeper.core.clock import SystemClock  # noqa: PLC0415
    from gatekeeper.deploy.admit import Requirements  # noqa: PLC0415
    from gatekeeper.deploy.admit import admit as ask  # noqa: PLC0415
    from gatekeeper.report import command_text  # noqa: PLC0415

    required = Requirements(parse_duration(max_age, "--max-age"), grade == "demo", signed_by)
    answer = ask(slo, run=run_dir, runs=runs, required=required, now=SystemClock().wall())
    document = answer.document()
    show(document, command_text.admission(document), as_json=as_json)
    return answer.exit_code


@click.command()
@RUN_DIR
@click.option("--key", type=click.Path(path_type=Path), required=True, help="An ssh key; a .pub asks ssh-agent.")
@AS_JSON
def sign(run_dir: Path, key: Path, *, as_json: bool) -> None:
    """Sign a run's certificate with an ssh key, once the run is found to be what its records give."""
    from gatekeeper.run.verify import sign as do  # noqa: PLC0415

    document = do(run_dir, key)
    show(document, f"signed: {document['signature']} ({document['outcome']})\n", as_json=as_json)


@click.command()
@click.argument("runs_dir", type=click.Path(path_type=Path), default="runs")
@AS_JSON
def history(runs_dir: Path, *, as_json: bool) -> None:
    """Show the runs of a folder over time, by SLO, with the trend of ratio, acceptance and footprint.

    Verdicts are shown as they were stored, beside whether their seals hold; `judge` derives one again.
    """
    from gatekeeper.deploy.history import history as told  # noqa: PLC0415
    from gatekeeper.report import command_text  # noqa: PLC0415

    document = told(runs_dir)
    show(document, command_text.history(document), as_json=as_json)


@click.command()
@click.argument("before", type=click.Path(path_type=Path), metavar="RUN_A")
@click.argument("after", type=click.Path(path_type=Path), metavar="RUN_B")
@AS_JSON
def compare(before: Path, after: Path, *, as_json: bool) -> int:
    """Lay two runs side by side; exits 3 where what differs between them makes them not comparable."""
    from gatekeeper.deploy.history import compare as laid  # noqa: PLC0415
    from gatekeeper.report import command_text  # noqa: PLC0415

    document = laid(before, after)
    show(document, command_text.comparison(document), as_json=as_json)
    return ExitCode.OK if document["comparable"] else ExitCode.UNPROVEN


@click.command()
@click.argument("policy", type=click.Path(path_type=Path))
@click.option("--url", help="Where the server answers [default: the url of the SLO].")
@click.option("--plain-url", help="Its twin without a draft, for answers to compare with.")
@click.option("--run", type=click.Path(path_type=Path), help="The run that certified [default: beside it].")
@click.option("--slo", type=click.Path(path_type=Path), help="The SLO file, where its models are not found otherwise.")
@click.option("--interval", metavar="60s", help="From look to look [default: the policy's].")
@click.option("--duty", type=float, help="Largest share of the server's time for canaries [default: the policy's].")
@click.option("--host/--no-host", default=None, help="Sample this host [default: where the policy guards it].")
@click.option("--once", is_flag=True, help="Look once and exit.")
@click.option("--rounds", type=click.IntRange(min=1), help="Look so often and exit.")
@click.option("--overlay", type=click.Path(path_type=Path), help="[default: policy.live.toml beside the policy]")
@click.option("--journal", "log", type=click.Path(path_type=Path), help="[default: watch.jsonl beside the policy]")
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
    from gatekeeper.core.text import printable  # noqa: PLC0415
    from gatekeeper.deploy.watch.config import WatchConfig  # noqa: PLC0415
    from gatekeeper.deploy.watch.session import open_session  # noqa: PLC0415

    if once and rounds is not None:
        raise InputError("--once and --rounds exclude each other", hint="--once is --rounds 1")
    given["interval"] = parse_duration(given["interval"], "--interval", "60s")
    given["limit"] = parse_duration(given["limit"], "--limit", "30s")
    given["commands"] = tuple(_words(command) for command in given["commands"])

    def say(text: str, style: Mapping[str, Any]) -> None:
        if style or not quiet:
            # A server may call itself anything, escape sequences included.
            click.echo(click.style(printable(text.replace("\n", " ")), **style), err=True)

    def write(entry: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(json.dumps(entry, ensure_ascii=False))

    with open_session(WatchConfig(policy, **given), say=say, write=write) as session:
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


@click.command()
@click.argument("runs_dir", type=click.Path(path_type=Path), default="runs")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="Keep the newest N runs of each SLO on each kind of host.",
)
@click.option("--within", metavar="30d", help="Keep every run that is younger, too.")
@click.option("--keep-promoted", is_flag=True, help="Keep every run that was promoted, too.")
@click.option(
    "--unfinished", metavar="14d", help="Remove unfinished runs that are older, too; without it none is removed."
)
@click.option("--dry-run", "-n", is_flag=True, help="Say what would be removed, and remove nothing.")
@AS_JSON
def prune(
    runs_dir: Path,
    keep: int,
    within: str | None,
    unfinished: str | None,
    *,
    keep_promoted: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove old runs from a folder; the deploy gate never answers better for it.

    Whatever the options say, these stay: the newest run of the same promises and artifacts and the newest of them that
    passed, as long as they may count for a deploy; a run that is being written, can not be read or holds files that no
    run writes; and whatever is no run.
    """
    from gatekeeper.core.clock import SystemClock  # noqa: PLC0415
    from gatekeeper.deploy.prune import RetentionRules  # noqa: PLC0415
    from gatekeeper.deploy.prune import prune as do  # noqa: PLC0415
    from gatekeeper.report import command_text as told  # noqa: PLC0415

    young = parse_duration(within, "--within") or 0.0
    rules = RetentionRules(keep, young, keep_promoted, parse_duration(unfinished, "--unfinished"))
    done = do(runs_dir, rules, dry_run=dry_run, now=SystemClock().wall())
    document = done.document()
    show(document, told.pruned(document), as_json=as_json)
    return done.exit_code


COMMANDS = (admit, sign, history, compare, watch, prune)
