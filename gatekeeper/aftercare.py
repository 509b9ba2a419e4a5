"""The commands that come after a run: admit, sign, history, compare, watch."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gatekeeper.options import AS_JSON, QUIET, RUN_DIR, SLO, show
from gatekeeper.terms.errors import InputError


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
    from gatekeeper.admit import Terms  # noqa: PLC0415
    from gatekeeper.admit import admit as ask  # noqa: PLC0415
    from gatekeeper.reports import gate  # noqa: PLC0415
    from gatekeeper.terms.clock import SystemClock  # noqa: PLC0415

    terms = Terms(_seconds(max_age, "--max-age"), grade == "demo", signed_by)
    answer = ask(slo, run=run_dir, runs=runs, terms=terms, now=SystemClock().wall())
    document = answer.document()
    show(document, gate.render(document), as_json=as_json)
    return answer.exit_code


@click.command()
@RUN_DIR
@click.option("--key", type=click.Path(path_type=Path), required=True, help="An ssh key; a .pub asks ssh-agent.")
@AS_JSON
def sign(run_dir: Path, key: Path, *, as_json: bool) -> int:
    """Sign a run's certificate with an ssh key, once the run is found to be what its records give."""
    from gatekeeper.proof import sign as do  # noqa: PLC0415

    document = do(run_dir, key)
    show(document, f"signed: {document['signature']} ({document['outcome']})\n", as_json=as_json)
    return 0


@click.command()
@click.argument("runs_dir", type=click.Path(path_type=Path), default="runs")
@AS_JSON
def history(runs_dir: Path, *, as_json: bool) -> int:
    """Show the runs of a folder over time, by SLO, with the trend of ratio, acceptance and footprint.

    Verdicts are shown as they were stored, beside whether their seals hold; `judge` derives one again.
    """
    from gatekeeper.history import history as told  # noqa: PLC0415
    from gatekeeper.reports import past  # noqa: PLC0415

    document = told(runs_dir)
    show(document, past.history(document), as_json=as_json)
    return 0


@click.command()
@click.argument("before", type=click.Path(path_type=Path), metavar="RUN_A")
@click.argument("after", type=click.Path(path_type=Path), metavar="RUN_B")
@AS_JSON
def compare(before: Path, after: Path, *, as_json: bool) -> int:
    """Lay two runs side by side; exits 3 where what differs between them makes them not comparable."""
    from gatekeeper.history import compare as laid  # noqa: PLC0415
    from gatekeeper.reports import past  # noqa: PLC0415

    document = laid(before, after)
    show(document, past.comparison(document), as_json=as_json)
    return 0 if document["comparable"] else 3


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
    from gatekeeper.watch import outfit  # noqa: PLC0415
    from gatekeeper.watch.outlet import Ears  # noqa: PLC0415

    if once and rounds is not None:
        raise InputError("--once and --rounds exclude each other", hint="--once is --rounds 1")
    options = outfit.Options(
        url=given["url"],
        plain_url=given["plain_url"],
        run=given["run_dir"],
        slo=given["slo"],
        interval=_seconds(given["interval"], "--interval", "60s"),
        duty=given["duty"],
        host=given["host"],
        overlay=given["overlay"],
        journal=given["journal"],
        commands=tuple(_words(command) for command in given["commands"]),
        limit=_seconds(given["limit"], "--limit", "30s") or 30.0,
    )

    def say(text: str, style: dict[str, Any]) -> None:
        if style or not quiet:
            click.echo(click.style(text, **style), err=True)

    def write(entry: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(json.dumps(entry, ensure_ascii=False))

    with outfit.session(policy, options, Ears(say, write, lambda _: None)) as session:
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


def _seconds(written: str | None, option: str, example: str = "7d") -> float | None:
    """Read a duration such as 7d; None stays None."""
    from gatekeeper.terms.units import SECONDS, parse  # noqa: PLC0415

    try:
        seconds = None if written is None else parse(written, SECONDS)
    except ValueError as error:
        raise InputError(f"{option}: {error}", hint=f"for example {option} {example}") from error
    if seconds is not None and seconds <= 0:
        raise InputError(f"{option} {written}: nothing is that short", hint=f"for example {option} {example}")
    return seconds


COMMANDS = (admit, sign, history, compare, watch)
