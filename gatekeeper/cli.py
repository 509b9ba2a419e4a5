"""The command line: parse, call, print, exit. No decision lives here, and heavy imports wait until a command runs."""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from gatekeeper import aftercare, lookout, outset, upkeep
from gatekeeper.group import Commands, Later
from gatekeeper.options import AS_JSON, OUT, QUIET, RUN_DIR, SLO, annotate
from gatekeeper.options import show as _print
from gatekeeper.reports import FORMATS
from gatekeeper.terms.errors import GatekeeperError, InputError

if TYPE_CHECKING:
    from gatekeeper.terms.ports import Observer

INTERRUPTED = 130
BUG = 4
KEPT = "what was measured is kept; "
AFTER_INTERRUPT = {
    "certify": f"{KEPT}the same command with --resume --out RUN_DIR goes on",
    "sweep": f"{KEPT}gatekeeper certify SLO.toml --resume --out RUN_DIR goes on with it, to a verdict",
    "soak": f"{KEPT}gatekeeper certify SLO.toml --resume --out RUN_DIR goes on with this soak alone",
    "watch": "the overlay tells until when it counts; the same command goes on from watch.jsonl",
    "remote": "a run that was begun there goes on: the same command attaches to it, gatekeeper remote cancel ends it",
    "probe": "a probe can not be resumed; run it again, with a lower --seconds if it took too long",
}
"""What to do after Ctrl-C, by command; the others have nothing to keep."""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=outset.show_versions,
    help="Show the versions that matter for a bug report, and exit.",
)
def gatekeeper() -> None:
    """Certify speculative decoding before you deploy it.

    gatekeeper measures plain decoding, sweeps one knob at a time, soaks the choice, checks every promise of an SLO
    file, and then promotes it or grades it back, per workload.

    \b
    Exit codes:
      0    safe to deploy policy.toml          3    unproven: evidence is missing
      1    a promise is broken                 4    gatekeeper itself failed
      2    the command line or a file is wrong 130  interrupted; --resume goes on
    """  # noqa: D301 (click reads the \b)


@gatekeeper.command()
@SLO
@OUT
@click.option("--resume", is_flag=True, help="Go on with the run that lies in --out.")
@AS_JSON
@QUIET
def certify(slo: Path, out: Path | None, *, resume: bool, as_json: bool, quiet: bool) -> int:
    """Do the whole job: freeze, baseline, sweep, soak, judge, promote or grade back."""
    from gatekeeper.certify import certify as do  # noqa: PLC0415
    from gatekeeper.reports import summary, terminal  # noqa: PLC0415

    with terminal.progress(quiet=quiet) as observer:
        finished = do(slo, out, resume=resume, observers=_observers(observer))
    annotate(finished.verdict, finished.path, slo)
    _tell_telemetry(finished.telemetry, finished.path)
    if as_json:
        sys.stdout.write(finished.text)
    else:
        summary.show(finished.verdict, run=finished.path, promoted=finished.promoted)
    return finished.verdict.exit_code


@gatekeeper.command()
@SLO
@AS_JSON
def plan(slo: Path, *, as_json: bool) -> int:
    """Show every trial, the expected duration, and what this plan can not prove. Nothing is run."""
    from gatekeeper.prepare import foresee  # noqa: PLC0415
    from gatekeeper.reports import forecast  # noqa: PLC0415

    document, exit_code = foresee(slo)
    _print(document, forecast.plan(document), as_json=as_json)
    return exit_code


@gatekeeper.command()
@SLO
@OUT
@AS_JSON
@QUIET
def sweep(slo: Path, out: Path | None, *, as_json: bool, quiet: bool) -> int:
    """Run the sweep alone and say what it would choose. Exits 0 when it finished, whatever it saw."""
    from gatekeeper.certify import sweep_alone  # noqa: PLC0415
    from gatekeeper.reports import forecast, terminal  # noqa: PLC0415

    with terminal.progress(quiet=quiet) as observer:
        document = sweep_alone(slo, out, observers=_observers(observer))
    _print(document, forecast.choices(document), as_json=as_json)
    return 0


@gatekeeper.command()
@SLO
@click.option("--set", "knobs", multiple=True, metavar="KNOB=VALUE", help="A knob of the setting to soak; repeatable.")
@OUT
@AS_JSON
@QUIET
def soak(slo: Path, knobs: Sequence[str], out: Path | None, *, as_json: bool, quiet: bool) -> int:
    """Soak one setting alone and print its checks. Exits 0 when it finished, whatever it saw."""
    from gatekeeper.certify import soak_alone  # noqa: PLC0415
    from gatekeeper.reports import summary, terminal  # noqa: PLC0415

    with terminal.progress(quiet=quiet) as observer:
        finished = soak_alone(slo, out, knobs=_knobs(knobs), observers=_observers(observer))
    _tell_telemetry(finished.telemetry, finished.path)
    if as_json:
        sys.stdout.write(finished.text)
    else:
        summary.show(finished.verdict, run=finished.path, promoted=False)
    return 0


@gatekeeper.command()
@click.argument("slo", type=click.Path(path_type=Path), required=False)
@click.option("--target", help="Without an SLO file: the target, a folder or a hub id in the local cache.")
@click.option("--draft", "drafts", multiple=True, help="Its draft.")
@click.option("--canaries", type=click.Path(path_type=Path), help="A canary file [default: shipped JSON and chat].")
@click.option("--backend", type=click.Choice(["mlx", "mlx-server"]), default="mlx", show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True, help="About how long.")
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
) -> int:
    """Say in about thirty seconds if a draft helps on this machine. Writes no policy; exits 0 when it finished."""
    from gatekeeper import probe as asking  # noqa: PLC0415
    from gatekeeper.reports import forecast, terminal  # noqa: PLC0415

    if (slo is None) == (target is None):
        raise InputError("probe needs an SLO file, or --target and --draft", hint="give exactly one of the two")
    if target is not None and not drafts:
        raise InputError("--target needs --draft", hint="name the draft to try")
    if slo is not None and (drafts or canaries):
        raise InputError("--draft and --canaries belong to --target", hint="the SLO file names its own")
    with terminal.progress(quiet=quiet) as observer:
        watching = _observers(observer)
        if slo is not None:
            again = f"gatekeeper probe {slo}"
            document = asking.probe(slo, out, seconds=seconds, observers=watching, again=again)
        else:
            again = f"gatekeeper probe --target {target} " + " ".join(f"--draft {draft}" for draft in drafts)
            document = asking.probe_pair(
                str(target), drafts, canaries, out, backend=backend, seconds=seconds, observers=watching, again=again
            )
    _print(document, forecast.probe(document), as_json=as_json)
    return 0


@gatekeeper.command()
@RUN_DIR
@click.option("--slo", type=click.Path(path_type=Path), help="Lay another SLO's promises against the records.")
@AS_JSON
def judge(run_dir: Path, slo: Path | None, *, as_json: bool) -> int:
    """Derive the verdict again from the records alone; same exit code, same bytes."""
    from gatekeeper.casefile import judge as do  # noqa: PLC0415
    from gatekeeper.reports import machine, plaintext  # noqa: PLC0415

    verdict = do(run_dir, slo)
    annotate(verdict, run_dir, slo)
    sys.stdout.write(machine.render(verdict) if as_json else plaintext.render(verdict))
    return verdict.exit_code


@gatekeeper.command()
@RUN_DIR
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of stdout.")
def report(run_dir: Path, form: str, output: Path | None) -> int:
    """Render a finished or interrupted run."""
    from gatekeeper import casefile  # noqa: PLC0415

    chosen = FORMATS[form]
    scene = casefile.picture(run_dir) if chosen.whole else None
    verdict = scene.verdict if scene is not None else casefile.judge(run_dir)
    annotate(verdict, run_dir, None)
    content = chosen.load()(scene if scene is not None else verdict)
    if output is None:
        sys.stdout.write(content)
        return 0
    try:
        output.write_text(content, encoding="utf-8")
    except OSError as error:
        raise GatekeeperError(f"cannot write {output}: {error.strerror}", hint="choose another --output") from error
    return 0


@gatekeeper.command()
@RUN_DIR
@AS_JSON
def export(run_dir: Path, *, as_json: bool) -> int:
    """Send a stored run to an OpenTelemetry collector; sending it twice sends the same spans."""
    from gatekeeper.telemetry import export_stored  # noqa: PLC0415

    sent = export_stored(run_dir)
    document = {"schema": 1, "endpoint": sent.endpoint, "spans": sent.spans, "points": sent.points}
    text = f"{sent.endpoint} took {sent.spans} spans and {sent.points} points\n"
    _print(document, text, as_json=as_json)
    return 0


@gatekeeper.command()
@click.option("--samples", type=click.IntRange(min=1), default=1, show_default=True, help="How many samples to take.")
@click.option(
    "--interval", type=click.FloatRange(min=0.05), default=1.0, show_default=True, help="Seconds between them."
)
@click.option("--as", "platform", type=click.Choice(["macos", "linux"]), help="Use this platform's sources.")
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON, one object a sample.")
def host(samples: int, interval: float, platform: str | None, *, as_json: bool) -> int:
    """Show what this host's telemetry says now: every value with its source and status."""
    from gatekeeper.host import watch  # noqa: PLC0415
    from gatekeeper.reports.hosttable import table  # noqa: PLC0415

    watch(samples, interval, platform, as_json, click.echo, lambda hint: click.echo(hint, err=True), table)
    return 0


@gatekeeper.command()
@AS_JSON
def metrics(*, as_json: bool) -> int:
    """List every metric an objective may name: unit, direction, unit of analysis, what it needs to see."""
    from gatekeeper.reports import vocabulary  # noqa: PLC0415

    _print(vocabulary.document(), vocabulary.render(), as_json=as_json)
    return 0


REMOTE = Later(
    "remote", "gatekeeper.remote.commands", "Run a command on another machine, over your own ssh, as if it were here."
)
for _command in (*outset.COMMANDS, *aftercare.COMMANDS, *lookout.COMMANDS, *upkeep.COMMANDS, REMOTE):
    gatekeeper.add_command(_command)


def _tell_telemetry(trouble: str | None, run: Path) -> None:
    """Say at the end, even where progress was not wanted, that a collector lacks something."""
    if trouble is not None:
        click.echo(f"telemetry was not delivered: {trouble}; send it again with: gatekeeper export {run}", err=True)


def _observers(observer: "Observer | None") -> "list[Observer]":
    from gatekeeper import relay  # noqa: PLC0415

    return [one for one in (observer, relay.wanted()) if one is not None]


def _knobs(written: Sequence[str]) -> dict[str, Any]:
    """Read KNOB=VALUE pairs; a value is TOML, or else a bare word such as a draft's name."""
    out: dict[str, Any] = {}
    for one in written:
        knob, equals, value = one.partition("=")
        if not equals or not knob:
            raise InputError(f"--set {one}: expected KNOB=VALUE", hint="for example --set num_draft_tokens=4")
        try:
            out[knob] = json.loads(value)
        except ValueError:
            out[knob] = value
    return out


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code. Errors go to stderr: what, where, and what to do next."""
    signal.signal(signal.SIGTERM, _terminate)
    command: Callable[..., Any] = gatekeeper.main
    try:
        return int(command(list(arguments), prog_name="gatekeeper", standalone_mode=False) or 0)
    except GatekeeperError as error:
        _complain(error.message, error.hint)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        named = next((word for word in arguments if word in gatekeeper.commands), "")
        _complain("interrupted", AFTER_INTERRUPT.get(named, ""))
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader of our output went away. Click leaves with 1 then, which here means a broken promise.
        sys.stderr.close()  # Python would complain at exit
        return BUG
    except Exception as error:  # noqa: BLE001 (the last resort: a bug must not look like a verdict)
        import traceback  # noqa: PLC0415

        traceback.print_exc()
        _complain(f"this is a bug: {type(error).__name__}: {error}", "please report it with the lines above")
        return BUG


def _complain(message: str, hint: str) -> None:
    color = False if os.environ.get("NO_COLOR") else None  # click asks the terminal alone
    click.echo(f"{click.style('gatekeeper:', fg='red', bold=True)} {message}", err=True, color=color)
    if hint:
        click.echo(f"{click.style('  hint:', bold=True)} {hint}", err=True, color=color)
