"""The commands that plan and make a run: certify, plan."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gatekeeper.cli.common_options import AS_JSON, QUIET, VERBOSE
from gatekeeper.cli.options import (
    LOG,
    OUT,
    PAGE_PORT,
    SLO,
    Port,
    SloPath,
    add_grade_options,
    annotate,
    ends_with,
    parse_duration,
    parse_quantity,
    run_folder,
    show,
    show_decision,
    with_own_commands,
)
from gatekeeper.core.errors import InputError, InterruptedRun
from gatekeeper.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from gatekeeper.core.interfaces import Observer
    from gatekeeper.core.records import Event
    from gatekeeper.run.publish import Finished

SWEEP, SOAK = "sweep", "soak"
STAGES = (SWEEP, SOAK)
"""The stages that `certify --only` runs."""


@contextmanager
def observers(slo: Path | None = None, *, quiet: bool, serve: int | None = None) -> "Iterator[list[Observer]]":
    """Show progress on stderr, and on a page at the port *serve*; yield the observers of the run.

    An interrupt of a run of *slo* says how to continue it.
    """
    from gatekeeper.core.records import EventKind
    from gatekeeper.report.terminal import progress_lines
    from gatekeeper.run import live_page

    run: list[str] = []
    served = ""

    def note_run(event: "Event") -> None:
        if event.kind == EventKind.BEGIN and not run:
            run.append(str(event.detail["run"]))

    try:
        with ExitStack() as stack:
            watching: list[Observer | None] = [note_run]
            if serve is not None:
                tell, address = stack.enter_context(live_page.serve_page(serve))
                served = f"page: {address}"
                watching.append(tell)
                if quiet:
                    click.echo(served, err=True)
            watching.append(stack.enter_context(progress_lines.progress(served, quiet=quiet)))
            yield [observer for observer in watching if observer is not None]
    except KeyboardInterrupt as error:
        if slo is None:
            raise
        raise InterruptedRun(_after_interrupt(slo, run)) from error


def _after_interrupt(slo: Path, run: Sequence[str]) -> str:
    if not run:
        return "nothing was measured yet: run the same command again"
    command = shlex.join(["gatekeeper", "certify", str(slo), "--resume", "--output", run[0]])
    return f"all measurements are kept; to continue: {command}"


def _show_finished(finished: "Finished", slo: Path, *, as_json: bool, verbose: bool) -> None:
    """Print the verdict of a run; on stderr, even with --quiet, report what was not delivered or recorded."""
    if finished.telemetry is not None:
        retry = with_own_commands(f"retry with: gatekeeper report {shlex.quote(str(finished.path))} --to otlp")
        click.echo(f"telemetry was not delivered: {finished.telemetry}; {retry}", err=True)
    if finished.tries is not None:
        click.echo(finished.tries, err=True)
    if as_json:
        sys.stdout.write(finished.text)
    else:
        show_decision(finished.decision, finished.path, slo, verbose=verbose)


@click.command()
@SLO
@OUT
@click.option("--resume", is_flag=True, help="Continue the run in --output.")
@click.option("--extend", metavar="TIME", help="Continue the soak of the unproven run in --output.")
@click.option("--only", type=click.Choice(STAGES), help="Run this stage alone; exits 0 once it has finished.")
@click.option(
    "--set", "knobs", multiple=True, metavar="KNOB=VALUE", help="A knob of what --only soak soaks; repeatable."
)
@click.option(
    "--serve", type=Port(), is_flag=False, flag_value=PAGE_PORT, metavar="[PORT]",
    help=f"Show the page of the run on 127.0.0.1 [default port: {PAGE_PORT}; 0: any].",
)  # fmt: skip
@add_grade_options
@AS_JSON
@QUIET
@VERBOSE
@ends_with(ok=None, objective_failed=None, bad_input=None, unproven=None, internal_error=None, interrupted=None)
def certify(
    slo: Path,
    out: Path | None,
    extend: str | None,
    only: str | None,
    knobs: Sequence[str],
    *,
    serve: int | None,
    resume: bool,
    grade: str,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> int:
    """Certify an SLO file: freeze, baseline, sweep, soak, judge, then promote or grade back.

    \b
    gatekeeper certify smoke --output runs/first
    """
    _check_stage_options(only, knobs, resume=resume, extend=extend, grade=grade)
    if sys.stderr.isatty() and not quiet:
        click.echo("starting\r", nl=False, err=True)  # loading takes ten seconds on a busy machine; overwritten
    from gatekeeper.run import certify as run
    from gatekeeper.run.open_run import RunRequest

    if only == SWEEP:
        from gatekeeper.report.commands.certify_document import sweep_document

        with observers(slo, quiet=quiet, serve=serve) as watching:
            conclusion = run.sweep_alone(RunRequest(slo, out, watching, **options))
        show(conclusion, sweep_document(conclusion), as_json=as_json)
        return ExitCode.OK
    out = run_folder(out) if out is not None and (resume or extend) else out
    with observers(slo, quiet=quiet, serve=serve) as watching:
        seconds = parse_duration(extend, "--extend", "30m")
        request = RunRequest(slo, out, watching, **options)
        if only == SOAK:
            finished = run.soak_alone(request, knobs=_parse_knobs(knobs))
        elif seconds is not None:
            finished = run.extend(request, seconds)
        elif resume:
            finished = run.resume(request)
        else:
            finished = run.certify(request)
    if only == SOAK:  # one setting without a sweep promotes nothing, so that its exit code decides no deploy
        _show_finished(finished, slo, as_json=as_json, verbose=verbose)
        return ExitCode.OK
    if grade == "certification":
        finished = replace(finished, decision=finished.decision.requiring_certificate())
    annotate(finished.decision, finished.path, slo)
    _show_finished(finished, slo, as_json=as_json, verbose=verbose)
    return finished.decision.exit_code


@click.command()
@click.argument("slos", nargs=-1, required=True, type=SloPath(), metavar="SLO...")
@click.option("--assume", metavar="SPEED", help='Speed of plain decoding, such as "40 tok/s".')
@click.option("--lint", is_flag=True, help="Only check the files, start nothing; exits 2 for one that can never pass.")
@LOG
@AS_JSON
def plan(slos: Sequence[Path], assume: str | None, *, lint: bool, logs: Sequence[Path], as_json: bool) -> int:
    """Show every trial, the expected duration, and what this plan cannot prove; with --log, for which requests.

    Sends no request, and needs no models. It starts the SLO's program for its version (PROGRAM --version), or its
    worker for its greeting.

    \b
    gatekeeper plan smoke
    """
    from gatekeeper.report.commands.plan_document import coverage_hint, lint_document, plan_document
    from gatekeeper.report.shown_document import Command, Listing, Node, Note
    from gatekeeper.run.plan import forecast

    speed = parse_quantity(assume, "--assume", "tok/s", "40 tok/s")
    if lint:
        if logs:
            raise InputError("--lint reads SLO files alone", hint="leave out --log or --lint")
        from gatekeeper.run.plan import lint as check

        document, exit_code = check(slos, speed)
        show(document, lint_document(document), as_json=as_json)
        return exit_code
    if len(slos) > 1:
        raise InputError("plan takes one SLO file", hint="--lint checks several")
    document, exit_code = forecast(slos[0], speed)
    name = shlex.quote(str(slos[0]))
    following: list[Node] = []
    if logs:
        from gatekeeper.live.log_coverage import cover_logs, coverage_text

        document["coverage"] = cover_logs(slos[0], logs)
        following.append(Listing(coverage_text(document["coverage"]).splitlines()))
    elif not exit_code:
        following.append(Note(coverage_hint(name)))
    following += [] if exit_code else [Command(f"gatekeeper certify {name}")]
    show(document, plan_document(document, following), as_json=as_json)
    return exit_code


def _check_stage_options(
    only: str | None, knobs: Sequence[str], *, resume: bool, extend: str | None, grade: str
) -> None:
    """Refuse options that contradict --only: a stage alone is a new run, and its exit code says nothing of a grade."""
    if knobs and only != SOAK:
        raise InputError("--set goes with --only soak", hint="the sweep chooses the setting of a whole run")
    if only is None:
        return
    if resume or extend is not None:
        option = "--resume" if resume else "--extend"
        raise InputError(f"--only {only} and {option} exclude each other", hint="to continue a run, leave out --only")
    if grade != "demo":
        raise InputError(f"--only {only} and --grade exclude each other", hint="a stage alone is no certificate")


def _parse_knobs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse KNOB=VALUE pairs; a value is JSON, or else a bare word such as a draft's name."""
    from gatekeeper.core.parse import ParseError, json_value

    knobs: dict[str, Any] = {}
    for pair in pairs:
        knob, equals, value = pair.partition("=")
        if not equals or not knob:
            raise InputError(f"--set {pair}: expected KNOB=VALUE", hint="for example --set num_draft_tokens=4")
        try:
            knobs[knob] = json_value(value)
        except ParseError:
            knobs[knob] = value
    return knobs


COMMANDS = (certify, plan)
