"""The commands that come after a run: admit, sign, history, compare."""

from pathlib import Path

import click

from gatekeeper.options import AS_JSON, RUN_DIR, SLO, seconds, show


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

    terms = Terms(seconds(max_age, "--max-age"), grade == "demo", signed_by)
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


COMMANDS = (admit, sign, history, compare)
