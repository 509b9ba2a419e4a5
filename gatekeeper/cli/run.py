"""The commands that create or read a run: certify, plan, sweep, soak, probe, judge, report, export, host, metrics."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gatekeeper.cli.common_options import is_verbose
from gatekeeper.cli.options import (
    AS_JSON,
    OUT,
    QUIET,
    RUN_DIR,
    SLO,
    RunPath,
    SecondsRange,
    SloPath,
    annotate,
    graded,
    parse_duration,
    parse_quantity,
    show,
)
from gatekeeper.core.backend_registry import PROBED
from gatekeeper.core.errors import InputError, InterruptedRun
from gatekeeper.report import FORMATS

if TYPE_CHECKING:
    from gatekeeper.core.interfaces import Observer
    from gatekeeper.core.records import Event
    from gatekeeper.run.publish import Finished

AFTER_INTERRUPT = {
    "try": "it keeps nothing: run it again, with a lower --seconds if it took too long",
    "probe": "a probe cannot be resumed: run it again, with a lower --seconds if it took too long",
}
"""What to do after Ctrl-C, by command; a run says itself how it is continued, the other commands here keep nothing."""


@contextmanager
def observers(slo: Path | None = None, *, quiet: bool, serve: int | None = None) -> "Iterator[list[Observer]]":
    """Show progress on stderr, and on a page at the port *serve*; yield the observers of the run.

    An interrupt of a run of *slo* says how to continue it.
    """
    from gatekeeper.report.terminal import live  # noqa: PLC0415
    from gatekeeper.run import events, live_page  # noqa: PLC0415

    run: list[str] = []
    served = ""

    def note_run(event: "Event") -> None:
        if event.kind == "begin" and not run:
            run.append(str(event.detail["run"]))

    try:
        with ExitStack() as stack:
            watching = [note_run, events.relay_observer()]
            if serve is not None:
                tell, address = stack.enter_context(live_page.served(serve))
                served = f"page: {address}"
                watching.append(tell)
                if quiet:
                    click.echo(served, err=True)
            watching.append(stack.enter_context(live.progress(served, quiet=quiet)))
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


def _show_finished(finished: "Finished", slo: Path, *, as_json: bool) -> None:
    """Print the verdict of a run; on stderr, even with --quiet, report what was not delivered or recorded."""
    from gatekeeper.report.terminal import summary  # noqa: PLC0415

    if finished.telemetry is not None:
        retry = f"retry with: gatekeeper export {finished.path}"
        click.echo(f"telemetry was not delivered: {finished.telemetry}; {retry}", err=True)
    if finished.tries is not None:
        click.echo(finished.tries, err=True)
    if as_json:
        sys.stdout.write(finished.text)
    else:
        summary.show(finished.decision, run=finished.path, slo=slo, verbose=is_verbose())


@click.command()
@SLO
@OUT
@click.option("--resume", is_flag=True, help="Continue the unfinished run in --output.")
@click.option("--extend", metavar="TIME", help="Continue the soak of the finished, unproven run in --output: 30m.")
@click.option(
    "--serve",
    type=click.IntRange(0, 65535),
    is_flag=False,
    flag_value=8765,
    metavar="[PORT]",
    help="Show the page of the run on 127.0.0.1 while it runs [default port: 8765; 0: any].",
)
@graded
@AS_JSON
@QUIET
def certify(
    slo: Path,
    out: Path | None,
    extend: str | None,
    baseline: str | None,
    *,
    serve: int | None,
    resume: bool,
    grade: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Certify an SLO file: freeze, baseline, sweep, soak, judge, then promote or grade back."""
    from gatekeeper.run import certify as run  # noqa: PLC0415

    out = RunPath().convert(out, None, None) if out is not None and (resume or extend) else out
    with observers(slo, quiet=quiet, serve=serve) as watching:
        seconds = parse_duration(extend, "--extend", "30m")
        if seconds is not None:
            finished = run.extend(slo, out, seconds, observers=watching)
        else:
            begin = run.resume if resume else run.certify
            finished = begin(slo, out, baseline=baseline, observers=watching)
    if grade == "certification":
        finished = replace(finished, decision=finished.decision.requiring_certificate())
    annotate(finished.decision, finished.path, slo)
    _show_finished(finished, slo, as_json=as_json)
    return finished.decision.exit_code


@click.command()
@click.argument("slos", nargs=-1, required=True, type=SloPath(), metavar="SLO...")
@click.option("--assume", metavar="SPEED", help='Speed of plain decoding, such as "40 tok/s".')
@click.option(
    "--lint", is_flag=True, help="Only check the files, several at once; exits 2 for one that can never pass."
)
@AS_JSON
def plan(slos: Sequence[Path], assume: str | None, *, lint: bool, as_json: bool) -> int:
    """Show every trial, the expected duration, and what this plan cannot prove.

    Runs nothing, and needs no models: without --assume, the speed follows from the size of the target, or its name.
    """
    from gatekeeper.report.commands.plan import lint_text, plan_text  # noqa: PLC0415
    from gatekeeper.run.plan import forecast  # noqa: PLC0415

    speed = parse_quantity(assume, "--assume", "tok/s", "40 tok/s")
    if lint:
        from gatekeeper.run.plan import lint as check  # noqa: PLC0415

        document, exit_code = check(slos, speed)
        show(document, lint_text(document), as_json=as_json)
        return exit_code
    if len(slos) > 1:
        raise InputError("plan takes one SLO file", hint="--lint checks several")
    document, exit_code = forecast(slos[0], speed)
    show(document, plan_text(document), as_json=as_json)
    return exit_code


@click.command()
@SLO
@OUT
@AS_JSON
@QUIET
def sweep(slo: Path, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Run the sweep alone and show what it would choose. Exits 0 once finished, whatever the result."""
    from gatekeeper.report.commands.sweep import sweep_text  # noqa: PLC0415
    from gatekeeper.run.certify import sweep_alone  # noqa: PLC0415

    with observers(slo, quiet=quiet) as watching:
        document = sweep_alone(slo, out, observers=watching)
    show(document, sweep_text(document), as_json=as_json)


@click.command()
@SLO
@click.option("--set", "knobs", multiple=True, metavar="KNOB=VALUE", help="A knob of the setting to soak; repeatable.")
@OUT
@AS_JSON
@QUIET
def soak(slo: Path, knobs: Sequence[str], out: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Soak one setting alone and print its checks. Exits 0 once finished, whatever the result."""
    from gatekeeper.run.certify import soak_alone  # noqa: PLC0415

    with observers(slo, quiet=quiet) as watching:
        finished = soak_alone(slo, out, knobs=_parse_knobs(knobs), observers=watching)
    _show_finished(finished, slo, as_json=as_json)


@click.command()
@click.argument("slo", type=click.Path(path_type=Path), required=False)
@click.option("--target", help="Instead of an SLO file: the target, a folder or a hub id in the local cache.")
@click.option("--draft", "drafts", multiple=True, help="A draft for --target; repeatable.")
@click.option(
    "--canaries", type=click.Path(path_type=Path), help="A file of canary prompts [default: shipped JSON and chat]."
)
@click.option(
    "--backend",
    type=click.Choice(PROBED),
    default=PROBED[0],
    show_default=True,
    help="The backend for --target.",
)
@click.option("--seconds", type=SecondsRange(1), default="30s", show_default=True, help="Approximate duration.")
@OUT
@AS_JSON
@QUIET
def probe(
    slo: Path | None,
    target: str | None,
    drafts: Sequence[str],
    canaries: Path | None,
    backend: str,
    *,
    seconds: float,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure in about 30 seconds whether a draft helps on this machine. Writes no policy; exits 0 once finished."""
    from gatekeeper.report.commands.probe import probe_text  # noqa: PLC0415
    from gatekeeper.run.start import quick_probe  # noqa: PLC0415

    if (slo is None) == (target is None):
        raise InputError("probe needs an SLO file, or --target and --draft", hint="give exactly one of the two")
    if target is not None and not drafts:
        raise InputError("--target needs --draft", hint="name the draft to try")
    if slo is not None and (drafts or canaries):
        raise InputError("--draft and --canaries need --target", hint="an SLO file names its own drafts and canaries")
    with observers(quiet=quiet) as watching:
        if slo is not None:
            again = f"gatekeeper probe {slo}"
            document = quick_probe.probe(slo, out, seconds=seconds, observers=watching, again=again)
        else:
            again = f"gatekeeper probe --target {target} " + " ".join(f"--draft {draft}" for draft in drafts)
            document = quick_probe.probe_pair(
                str(target), drafts, canaries, out, backend=backend, seconds=seconds, observers=watching, again=again
            )
    show(document, probe_text(document), as_json=as_json)


@click.command(name="try")
@click.option("--target", help="The target, a folder or a hub id in the local cache [default: the heaviest found].")
@click.option("--draft", "drafts", multiple=True, help="A draft for --target; repeatable.")
@click.option(
    "--backend",
    type=click.Choice(PROBED),
    default=PROBED[0],
    show_default=True,
    help="The backend for --target.",
)
@click.option("--seconds", type=SecondsRange(1), default="30s", show_default=True, help="Approximate duration.")
@AS_JSON
@QUIET
def try_pair(
    target: str | None, drafts: Sequence[str], backend: str, *, seconds: float, as_json: bool, quiet: bool
) -> None:
    """Find a model and a draft on this machine, probe them for 30 seconds and say whether drafting helps.

    Models are looked for in the caches of Hugging Face, LM Studio and Ollama and in the folder models. Nothing is
    written; -v prints the reasons. Exits 3 if no pair is found.
    """
    from gatekeeper.report.commands.try_pair import try_text  # noqa: PLC0415
    from gatekeeper.run.start import try_pair as trying  # noqa: PLC0415

    if (target is None) != (not drafts):
        raise InputError("--target and --draft belong together", hint="give both, or neither to search this machine")
    with observers(quiet=quiet) as watching:
        document = trying.try_pair(target, drafts, backend=backend, seconds=seconds, observers=watching)
    show(document, try_text(document, verbose=is_verbose()), as_json=as_json)


@click.command()
@RUN_DIR
@click.option("--slo", type=click.Path(path_type=Path), help="Judge the records by this SLO's objectives.")
@AS_JSON
def judge(run_dir: Path, slo: Path | None, *, as_json: bool) -> int:
    """Derive the verdict again from the records of a run: same exit code, same bytes."""
    from gatekeeper.report import plain_text, verdict_json  # noqa: PLC0415
    from gatekeeper.report.terminal import summary  # noqa: PLC0415
    from gatekeeper.run.judge import load_decision  # noqa: PLC0415

    decision = load_decision(run_dir, slo)
    annotate(decision, run_dir, slo)
    if as_json:
        sys.stdout.write(verdict_json.render(decision.verdict))
    elif sys.stdout.isatty() and not is_verbose():
        summary.show(decision, run=run_dir, slo=slo or "SLO.toml", newest=False)
    else:
        summary.show_stored(decision, plain_text.render(decision), run=run_dir, slo=slo or "SLO.toml")
    return decision.verdict.exit_code


@click.command()
@RUN_DIR
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format.")
@AS_JSON
def report(run_dir: Path, form: str, *, as_json: bool) -> None:  # noqa: ARG001 (--json sets the format)
    """Render a finished or interrupted run."""
    from gatekeeper.run.judge import load_decision, load_page_data, stored_policy  # noqa: PLC0415

    chosen = FORMATS[form]
    page = load_page_data(run_dir) if chosen.whole else None
    decision = page.decision if page is not None else load_decision(run_dir)
    annotate(decision, run_dir, None)
    content = chosen.load()(page or (decision if chosen.decided else decision.verdict))
    if form == "text" and (policy := stored_policy(run_dir)) is not None:
        from gatekeeper.report import plain_text  # noqa: PLC0415

        content += plain_text.conditions(policy)
    if form == "text":
        from gatekeeper.report.terminal import summary  # noqa: PLC0415

        summary.show_stored(decision, content, run=run_dir)
    else:
        sys.stdout.write(content)


@click.command()
@RUN_DIR
@AS_JSON
def export(run_dir: Path, *, as_json: bool) -> None:
    """Send a stored run to an OpenTelemetry collector; sending it again sends the same spans."""
    from gatekeeper.report.otel import export_stored  # noqa: PLC0415

    document = export_stored(run_dir)
    text = "sent {spans} spans and {points} points to {endpoint}\n".format_map(document)
    show(document, text, as_json=as_json)


@click.command()
@click.option("--samples", type=click.IntRange(min=1), default=1, show_default=True, help="Number of samples.")
@click.option("--interval", type=SecondsRange(0.05), default="1s", show_default=True, help="Time between samples.")
@click.option("--as", "platform", type=click.Choice(["macos", "linux"]), help="Use this platform's sources.")
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON, one object per sample.")
def host(samples: int, interval: float, platform: str | None, *, as_json: bool) -> None:
    """Show this host's telemetry now: every value with its source and status."""
    from gatekeeper.host.sampler import watch  # noqa: PLC0415
    from gatekeeper.report.host_table import table  # noqa: PLC0415

    watch(samples, interval, platform, as_json, click.echo, lambda hint: click.echo(hint, err=True), table)


@click.command()
@AS_JSON
def metrics(*, as_json: bool) -> None:
    """List every metric an objective may name: unit, direction, unit of analysis, what it needs."""
    from gatekeeper.report.commands.metrics import metrics_document, metrics_text  # noqa: PLC0415

    show(metrics_document(), metrics_text(), as_json=as_json)


def _parse_knobs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse KNOB=VALUE pairs; a value is JSON, or else a bare word such as a draft's name."""
    from gatekeeper.core.parse import ParseError, json_value  # noqa: PLC0415

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


COMMANDS = (certify, plan, sweep, soak, probe, try_pair, judge, report, export, host, metrics)
