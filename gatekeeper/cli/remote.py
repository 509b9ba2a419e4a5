"""The commands of `gatekeeper remote`: certify on a remote host, and its runs."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gatekeeper.cli.common_options import AS_JSON, QUIET, VERBOSE
from gatekeeper.cli.options import (
    LATEST,
    OUT,
    SLO,
    CommandGroup,
    SecondsRange,
    add_grade_options,
    annotate,
    parse_duration,
    show,
    show_decision,
    slo_of,
)
from gatekeeper.core.errors import NoProofError
from gatekeeper.core.reasons import Reason

if TYPE_CHECKING:
    from gatekeeper.run.remote.download import RemoteResult
    from gatekeeper.run.remote.remote_run import RemoteRunner

AFTER_INTERRUPT = {
    "remote": "a started run continues on the remote host: the same command attaches to it, "
    "gatekeeper remote cancel --on HOST stops it"
}
ON = click.option(
    "--on", "host", metavar="HOST", required=True, help="A host that ssh knows: a name of ~/.ssh/config, or USER@NAME."
)
RUN = click.argument(
    "run_id", metavar="[RUN]", required=False,
    callback=lambda _context, _option, run_id: None if run_id == LATEST else run_id,
)  # fmt: skip
PATIENCE = click.option(
    "--patience", metavar="10min", default="10 min", show_default=True,
    help="How long to reconnect after the connection is lost.",
)  # fmt: skip


@click.group(cls=CommandGroup)
def remote() -> None:
    """Certify on a remote host over your own ssh, as if it were here.

    \b
    gatekeeper doctor --on mini.local
    gatekeeper remote certify slos/m4-24gb.toml --on mini.local

    gatekeeper is installed there by its owner. The run continues if the connection is lost; the same command attaches
    to it again. Connection errors are exit code 3.
    """


@remote.command()
@SLO
@ON
@OUT
@click.option("--resume", is_flag=True, help="Continue the unfinished run of this command on the remote host.")
@click.option("--send-env", metavar="NAME", multiple=True, help="An environment variable to pass on; repeatable.")
@PATIENCE
@add_grade_options
@AS_JSON
@QUIET
@VERBOSE
def certify(
    slo: Path,
    host: str,
    out: Path | None,
    *,
    resume: bool,
    send_env: Sequence[str],
    patience: str,
    baseline: str | None,
    grade: str,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Certify an SLO file on the remote host, download the run and judge it again locally.

    The exit code is that of the verdict. --baseline names a run on that host.

    \b
    gatekeeper remote certify smoke --on mini.local
    """
    from gatekeeper.run.remote.remote_run import RemoteRequest

    request = RemoteRequest(slo, out, resume=resume, baseline=baseline, send_env=tuple(send_env))
    with _runner(host, patience, quiet=quiet) as runner:
        result = runner.certify(request)
    return _show_result(result, slo, grade, as_json=as_json, verbose=verbose)


@remote.command(name="list")
@ON
@AS_JSON
def list_runs(host: str, *, as_json: bool) -> None:
    """List the runs on the remote host: owner, start and state.

    \b
    gatekeeper remote list --on mini.local
    """
    from gatekeeper.run.remote import run_list
    from gatekeeper.run.remote.ssh import RemoteHost

    document = run_list.list_runs(RemoteHost(host))
    show(document, run_list.render_list(document), as_json=as_json)


@remote.command()
@RUN
@ON
@OUT
@PATIENCE
@AS_JSON
@QUIET
@VERBOSE
def attach(
    run_id: str | None, host: str, out: Path | None, *, patience: str, as_json: bool, quiet: bool, verbose: bool
) -> int:
    """Follow a run to its end, download it and judge it again.

    Without RUN: the one in progress, else the newest that was not downloaded.

    \b
    gatekeeper remote attach --on mini.local
    """
    with _runner(host, patience, quiet=quiet) as runner:
        result = runner.attach(run_id, out)
    return _show_result(result, None, "demo", as_json=as_json, verbose=verbose)


@remote.command()
@RUN
@ON
@click.option("--grace", type=SecondsRange(1), default="60s", show_default=True, help="Time until it is killed.")
@AS_JSON
def cancel(run_id: str | None, host: str, *, grace: float, as_json: bool) -> None:
    """Stop a remote run: gatekeeper stops its servers and then itself; after --grace it is killed.

    Without RUN: the one in progress, if it is yours.

    \b
    gatekeeper remote cancel --on mini.local
    """
    from gatekeeper.run.remote import run_list
    from gatekeeper.run.remote.ssh import RemoteHost

    document = run_list.cancel(RemoteHost(host), run_id, grace)
    show(document, run_list.render_cancelled(document), as_json=as_json)


@contextmanager
def _runner(host: str, patience: str, *, quiet: bool) -> "Iterator[RemoteRunner]":
    from gatekeeper.report.terminal import progress_lines
    from gatekeeper.run.remote.remote_run import RemoteRunner
    from gatekeeper.run.remote.ssh import RemoteHost

    patience_s = 0.0 if patience.strip() in {"0", "0s", "0 s"} else parse_duration(patience, "--patience", "10min")
    assert patience_s is not None
    with progress_lines.progress(quiet=quiet) as observer:
        yield RemoteRunner(RemoteHost(host), patience_s, [observer] if observer is not None else [])


def _show_result(result: "RemoteResult", slo: Path | None, grade: str, *, as_json: bool, verbose: bool) -> int:
    """Print the verdict, if there is one, and return its exit code; then raise the error, if there is one."""
    from gatekeeper.report.data.decision import decide

    code = None
    if result.verdict is not None:
        text = (result.path / "policy.toml").read_text(errors="replace") if result.promoted else None
        decision = decide(result.verdict, policy=text)
        decision = decision.requiring_certificate() if grade == "certification" else decision
        annotate(decision, result.path, slo)
        if as_json:
            sys.stdout.write(result.text)
        else:
            show_decision(decision, result.path, slo_of(result.path, slo), verbose=verbose)
        code = int(decision.exit_code)
    if result.error is not None:
        sys.stdout.flush()
        result.error.after_document = result.verdict is not None
        raise result.error
    if code is None:
        raise NoProofError(Reason.UNPROVEN, f"{result.path} has no verdict", hint="repeat the command")
    return code


COMMANDS = (remote,)
