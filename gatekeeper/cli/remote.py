"""The commands of `gatekeeper remote`: run a command on a remote host, and manage its runs."""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gatekeeper.cli.common_options import AS_JSON
from gatekeeper.cli.options import (
    SLO,
    CommandGroup,
    SecondsRange,
    annotate,
    graded,
    seconds_option,
    show,
    show_decision,
)
from gatekeeper.cli.remote_options import RUN, downloads_run, on_host, starts_run
from gatekeeper.core.errors import NoProofError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.reasons import Reason

if TYPE_CHECKING:
    from gatekeeper.report.data.decision import Decision
    from gatekeeper.run.remote.download import RemoteResult
    from gatekeeper.run.remote.remote_run import RemoteHost, RemoteRunner


AFTER_INTERRUPT = {
    "remote": "a started run continues on the remote host: the same command attaches to it, "
    "gatekeeper remote cancel stops it"
}


@click.group(cls=CommandGroup)
def remote() -> None:
    """Run a command on a remote host over your own ssh, as if it ran locally.

    \b
    gatekeeper remote certify slos/m4-24gb.toml --on mini.local

    The run continues if the connection is lost; the same command attaches to it again. Connection errors are exit code
    3.
    """


@remote.command()
@SLO
@starts_run
@click.option("--resume", is_flag=True, help="Continue the unfinished run of this command on the remote host.")
@graded
def certify(slo: Path, *, grade: str, as_json: bool, **options: Any) -> int:
    """Certify an SLO file on the remote host, download the run and judge it again locally."""
    result = _run(("certify",), slo, **options)
    decision = _decision(result, grade)
    if decision is not None:
        annotate(decision, result.path, slo)
    _show_verdict(result, slo, grade, as_json=as_json)
    assert decision is not None
    return decision.exit_code


@remote.command()
@SLO
@click.option("--set", "knobs", multiple=True, metavar="KNOB=VALUE", help="A knob of the setting to soak; repeatable.")
@starts_run
def soak(slo: Path, knobs: Sequence[str], *, as_json: bool, **options: Any) -> None:
    """Soak one setting on the remote host."""
    result = _run(("soak", *(word for knob in knobs for word in ("--set", knob))), slo, **options)
    _show_verdict(result, slo, as_json=as_json)


@remote.command()
@SLO
@starts_run
def sweep(slo: Path, *, as_json: bool, **options: Any) -> None:
    """Run the sweep alone on the remote host and show what it would choose."""
    from gatekeeper.report.commands.sweep_text import sweep_text

    document = _document(_run(("sweep",), slo, **options))
    show(document, sweep_text(document), as_json=as_json)


@remote.command(name="try")
@SLO
@seconds_option("30s")
@starts_run
def try_draft(slo: Path, *, seconds: float, as_json: bool, out: Path | None, **options: Any) -> None:
    """Measure for 30 seconds whether drafting helps on the remote host."""
    from gatekeeper.report.commands.try_text import try_slo_text

    result = _run(("try", "--seconds", f"{seconds:g}"), slo, out=out, **options)
    document = _document(result)
    if out is None:  # as locally: a probe keeps its records only in --output
        shutil.rmtree(result.path)
        document = document | {"run": None}
    # The next steps name the command that ran on the remote host; the user typed another one.
    hosts = click.get_current_context().params["hosts"]
    words = [str(slo), "--on", options["remote_host"].name, *(("--hosts", str(hosts)) if hosts else ())]
    typed = shlex.join(["gatekeeper", "remote", "try", *words])
    workloads = {
        workload: probe | {"next": re.sub(r"gatekeeper try \S.*?\.toml", lambda _: typed, str(probe.get("next", "")))}
        for workload, probe in document["workloads"].items()
    }
    document = document | {"workloads": workloads}
    show(document, try_slo_text(document), as_json=as_json)


def _in_foreground(verb: str, help_text: str) -> None:
    """Add a command that runs *verb* on the remote host and shows its output; its own options are passed on."""

    @remote.command(
        name=verb, help=help_text, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True}
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar=f"[OPTIONS OF {verb}]...")
    @on_host
    def _run_verb(words: Sequence[str], remote_host: "RemoteHost") -> int:
        from gatekeeper.run.remote.foreground import run_in_foreground

        return run_in_foreground(remote_host, [verb, *words])


_in_foreground("host", "Show the remote host's telemetry now: every value with its source and status.")
_in_foreground("doctor", "Show what the remote host lacks, and the command that fixes it.")


@remote.command(name="list")
@on_host
@AS_JSON
def list_runs(remote_host: "RemoteHost", *, as_json: bool) -> None:
    """List the runs on the remote host: owner, start and state."""
    from gatekeeper.run.remote import run_list

    document = run_list.list_runs(remote_host)
    show(document, run_list.render_list(document), as_json=as_json)


@remote.command()
@downloads_run
def attach(run_id: str | None, **options: Any) -> int:
    """Follow a remote run to its end, download it and judge it again. Without RUN: the one in progress."""
    return _fetch(run_id, running=True, **options)


@remote.command()
@downloads_run
def fetch(run_id: str | None, **options: Any) -> int:
    """Download a finished remote run and judge it again. Without RUN: the newest not yet downloaded."""
    return _fetch(run_id, running=False, **options)


@remote.command()
@RUN
@on_host
@click.option("--grace", type=SecondsRange(1), default="60s", show_default=True, help="Time until it is killed.")
@AS_JSON
def cancel(run_id: str | None, remote_host: "RemoteHost", *, grace: float, as_json: bool) -> None:
    """Stop a remote run: gatekeeper stops its servers and then itself; after --grace it is killed.

    Without RUN: the one in progress, if it is yours.
    """
    from gatekeeper.run.remote import run_list

    document = run_list.cancel(remote_host, run_id, grace)
    show(document, run_list.render_cancelled(document), as_json=as_json)


@remote.command()
@on_host
@click.option(
    "--keep", type=click.IntRange(min=1), required=True, metavar="N", help="Keep the newest N downloaded runs."
)
@click.option("--dry-run", "-n", is_flag=True, help="Show what would be removed; remove nothing.")
@AS_JSON
def prune(remote_host: "RemoteHost", *, keep: int, dry_run: bool, as_json: bool) -> None:
    """Remove your old downloaded runs from the remote host; nothing else is touched."""
    from gatekeeper.run.remote import run_list

    document = run_list.prune(remote_host, keep, dry_run=dry_run)
    show(document, run_list.render_pruned(document), as_json=as_json)


@remote.command(hidden=True)
@SLO
def inventory(slo: Path) -> None:
    """Print what this machine has for an SLO, for gatekeeper on another machine."""
    from gatekeeper.run.remote import checks_before_run

    show(checks_before_run.inventory(slo), "", as_json=True)


@contextmanager
def _runner(remote_host: "RemoteHost", patience_s: float, *, quiet: bool) -> "Iterator[RemoteRunner]":
    from gatekeeper.report.terminal import progress_lines
    from gatekeeper.run.remote.reconnect import ReconnectingSession
    from gatekeeper.run.remote.remote_run import RemoteRunner

    with (
        progress_lines.progress(quiet=quiet) as observer,
        ReconnectingSession(remote_host.connect, patience_s=patience_s) as session,
    ):
        runner = RemoteRunner(remote_host, session, [observer] if observer is not None else [])
        session.say = runner.say
        yield runner


def _run(
    words: tuple[str, ...],
    slo: Path,
    *,
    out: Path | None,
    ship_models: bool,
    send_env: Sequence[str],
    resume: bool = False,
    baseline: str | None = None,
    **options: Any,
) -> "RemoteResult":
    from gatekeeper.run.remote.remote_run import NewRun, RemoteCommand

    command = RemoteCommand(
        words, slo, out, resume=resume, ship_models=ship_models, send_env=tuple(send_env), baseline=baseline
    )
    with _runner(**options) as runner:
        return NewRun(runner, command).run()


def _fetch(run_id: str | None, *, running: bool, out: Path | None, as_json: bool, **options: Any) -> int:
    from gatekeeper.report.commands.sweep_text import sweep_text
    from gatekeeper.report.commands.try_text import try_slo_text
    from gatekeeper.run.remote import run_list

    with _runner(**options) as runner:
        entry, result = run_list.fetch(runner, run_id, out, running=running)
    _show_verdict(result, as_json=as_json)
    verb = entry.command[0]
    if result.document is not None:
        render = sweep_text if verb == "sweep" else try_slo_text
        show(result.document, render(result.document), as_json=as_json)
    if entry.started_here and verb != "certify":
        return ExitCode.OK
    if result.verdict is not None:
        return result.verdict.exit_code
    error = NoProofError(
        Reason.UNPROVEN,
        f"{entry.run_id} has no verdict: a {verb}, as {entry.host} says; this machine did not start it",
        hint="its result is above; only the machine that started it takes the host's word for what it was",
    )
    error.after_document = result.document is not None
    raise error


def _decision(result: "RemoteResult", grade: str = "demo") -> "Decision | None":
    from gatekeeper.report.data.decision import decide

    if result.verdict is None:
        return None
    text = (result.path / "policy.toml").read_text(errors="replace") if result.promoted else None
    decision = decide(result.verdict, policy=text)
    return decision.requiring_certificate() if grade == "certification" else decision


def _show_verdict(result: "RemoteResult", slo: object = "SLO.toml", grade: str = "demo", *, as_json: bool) -> None:
    """Print the verdict, if there is one; then raise the error, if there is one."""
    decision = _decision(result, grade)
    if decision is not None:
        if as_json:
            sys.stdout.write(result.text)
        else:
            show_decision(decision, result.path, slo)
    _raise_error(result)


def _document(result: "RemoteResult") -> dict[str, Any]:
    _raise_error(result)
    assert result.document is not None
    return result.document


def _raise_error(result: "RemoteResult") -> None:
    if result.error is not None:
        sys.stdout.flush()
        result.error.after_document = result.verdict is not None
        raise result.error


COMMANDS = (remote,)
