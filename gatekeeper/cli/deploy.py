"""The commands for a deploy and after it: admit, sign, history, compare, watch, prune."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gatekeeper.cli.options import AS_JSON, QUIET, RUN_DIR, SLO, RunPath, parse_address, parse_duration, show
from gatekeeper.core.errors import InputError

AFTER_INTERRUPT = {
    "watch": "the overlay is valid until its next_look_before; the same command continues from watch.jsonl"
}
"""What to do after Ctrl-C, by command."""


@click.command()
@SLO
@click.option("--run", "run_dir", type=RunPath(), help="The run to admit.")
@click.option("--runs", type=click.Path(path_type=Path), help="A folder of runs; the newest matching run decides.")
@click.option(
    "--fleet", type=click.Path(path_type=Path), metavar="DIR", help="A folder of `fleet certify`: checks every host."
)
@click.option("--max-age", metavar="7d", help="Refuse a run older than this; never extends its validity.")
@click.option(
    "--grade",
    type=click.Choice(["certification", "demo"]),
    default="certification",
    show_default=True,
    help="The lowest grade to admit; demo: the soak was shorter than 600 s.",
)
@click.option(
    "--signed-by",
    metavar="FILE|IDENTITY",
    help="An allowed-signers file, or public keys as PEM, or with --issuer an identity: one of them must have signed.",
)
@click.option("--issuer", metavar="URL", help="Who states the identity of --signed-by; the signature is then keyless.")
@click.option(
    "--trusted-root",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Sigstore's trusted root for --issuer [default: that of the public instance, as installed].",
)
@click.option("--url", help="The running server to deploy: it must not differ from what was certified.")
@AS_JSON
def admit(
    slo: Path,
    run_dir: Path | None,
    runs: Path | None,
    fleet: Path | None,
    max_age: str | None,
    grade: str,
    signed_by: str | None,
    issuer: str | None,
    trusted_root: Path | None,
    url: str | None,
    *,
    as_json: bool,
) -> int:
    """Admit a deploy only with a passing, unexpired, unchanged run of exactly these artifacts.

    With --url the running server is compared with the policy's [conditions] and [[launch]]: its process, what it
    reports, and two short answers. What it does not report is listed as not checked.

    It also says how many finished runs of the same SLO and artifacts did not pass: those in the folder of the run, and
    those that ended on this host, also if they were moved or deleted since.

    \b
    Exit codes:
      0    admitted: the newest matching run passed
      1    the newest matching run failed an objective
      3    no proof, or the server differs: the reason and the next step are printed
    """  # noqa: D301 (click reads the \b)
    from gatekeeper.core.clock import SystemClock  # noqa: PLC0415
    from gatekeeper.core.subject import Address  # noqa: PLC0415
    from gatekeeper.deploy import admit as gate  # noqa: PLC0415
    from gatekeeper.deploy.signing.keyless import KeylessSigner  # noqa: PLC0415
    from gatekeeper.report.commands.admit import admit_text  # noqa: PLC0415

    if url is not None and not url.startswith(("http://", "https://")):
        raise InputError(f"--url {Address(url)} is not an http address", hint="for example --url http://127.0.0.1:8080")
    server = None if url is None else Address(url)
    signers: Path | KeylessSigner | None = None if signed_by is None else Path(signed_by)
    if issuer is not None and signed_by is not None:
        signers = KeylessSigner(signed_by, issuer, trusted_root)
    elif issuer is not None or trusted_root is not None:
        raise InputError("a keyless signer is --signed-by IDENTITY --issuer URL", hint="--trusted-root goes with both")
    required = gate.Requirements(parse_duration(max_age, "--max-age"), grade == "demo", signers, server)
    if fleet is not None:
        from gatekeeper.fleet import gate as fleet_gate  # noqa: PLC0415

        if run_dir is not None or runs is not None:
            raise InputError("--fleet goes with neither --run nor --runs", hint="the fleet names the run of each host")
        fleet_answer = fleet_gate.admit(slo, fleet, required, SystemClock().wall())
        show(fleet_answer, fleet_gate.text(fleet_answer), as_json=as_json)
        return int(fleet_answer["exit_code"])
    admission = gate.admit(slo, run=run_dir, runs=runs, required=required, now=SystemClock().wall())
    document = admission.document()
    show(document, admit_text(document), as_json=as_json)
    return admission.exit_code


@click.command()
@RUN_DIR
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    help="An ssh private key, the .pub file of a key in ssh-agent, or a private key as PEM (makes a Sigstore bundle).",
)
@click.option("--keyless", is_flag=True, help="Sign by the identity of this CI job, at Sigstore.")
@click.option(
    "--trust-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Another Sigstore instance for --keyless: its client trust configuration.",
)
@click.option(
    "--bundle", type=click.Path(path_type=Path), metavar="FILE", help="Keep a Sigstore bundle that was made elsewhere."
)
@AS_JSON
def sign(
    run_dir: Path, key: Path | None, trust_config: Path | None, bundle: Path | None, *, keyless: bool, as_json: bool
) -> None:
    """Sign a run's certificate, after verifying the run against its records.

    An ssh key makes certificate.intoto.json.sig. A key file as PEM (extra `sign`) and --keyless (extra `keyless`) make
    certificate.sigstore.json, which cosign verifies too. --bundle takes one that GitHub's action attest made.
    """
    from gatekeeper.deploy.signing import sign as signing  # noqa: PLC0415

    if [key is not None, keyless, bundle is not None].count(True) != 1:
        raise InputError("sign needs one of --key, --keyless and --bundle", hint="for example --key ~/.ssh/id_ed25519")
    if trust_config is not None and not keyless:
        raise InputError("--trust-config goes with --keyless", hint="leave it out, or sign with --keyless")
    document = signing.sign(run_dir, signing.SigningMethod(key, trust_config, bundle))
    show(document, f"signed: {document['signature']} ({document['outcome']})\n", as_json=as_json)


@click.command()
@click.argument("runs_dir", type=click.Path(path_type=Path), default="runs")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "html"]),
    default="text",
    show_default=True,
    help="Output format; html is a page with charts.",
)
@AS_JSON
def history(runs_dir: Path, form: str, *, as_json: bool) -> None:  # noqa: ARG001 (--json sets the format)
    """List the runs of a folder by SLO, oldest first, with the trend of speed-up, acceptance and memory.

    Stored verdicts are shown if the run's checksums match; `gatekeeper judge` derives a verdict again.
    """
    from gatekeeper.deploy import history as stored  # noqa: PLC0415
    from gatekeeper.report.commands.history import history_text  # noqa: PLC0415

    runs = stored.history(runs_dir)
    if form == "html":
        from gatekeeper.report.html import history_page  # noqa: PLC0415

        click.echo(history_page.render(runs), nl=False)
        return
    show(runs.document(), history_text(runs), as_json=form == "json")


@click.command()
@click.argument("runs", type=RunPath(), nargs=-1, required=True, metavar="RUN_A RUN_B...")
@click.option(
    "--fail-on",
    type=click.Choice(["worse"]),
    help="Exit 1 where a figure is proven worse than in RUN_A, 3 where one is missing.",
)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Compare this metric alone; repeatable.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown", "html"]),
    default="text",
    show_default=True,
    help="Output format; markdown fits a pull-request comment.",
)
@AS_JSON
def compare(
    runs: Sequence[Path],
    fail_on: str | None,
    metrics: Sequence[str],
    form: str,
    *,
    as_json: bool,  # noqa: ARG001 (it sets the format)
) -> int:
    """Compare runs with the first one, metric by metric: what is proven better or worse.

    Runs of different backends share a table if their targets are of one family and the canaries are the same; what
    cannot be compared between them is named.

    \b
    Exit codes:
      0    compared
      1    with --fail-on worse: a figure is proven worse
      3    the runs are not comparable
    """  # noqa: D301 (click reads the \b)
    from gatekeeper.deploy import compare as comparing  # noqa: PLC0415
    from gatekeeper.report import comparison  # noqa: PLC0415
    from gatekeeper.report.data.compared_runs import comparisons_document  # noqa: PLC0415

    pairs = comparing.compare(runs, metrics)
    if form == "html":
        from gatekeeper.report.html import comparison_page  # noqa: PLC0415

        sys.stdout.write(comparison_page.render(pairs))
    else:
        text = comparison.markdown(pairs) if form == "markdown" else comparison.text(pairs)
        show(comparisons_document(pairs), text, as_json=form == "json")
    return comparing.exit_code(pairs, fail_on_worse=fail_on == "worse")


@click.command()
@click.argument("policy", type=click.Path(path_type=Path))
@click.option("--url", help="Address of the deployed server [default: the SLO's url].")
@click.option("--plain-url", help="Address of the same server without a draft, as the baseline.")
@click.option("--run", type=RunPath(), help="The run that certified it [default: the policy's folder].")
@click.option("--slo", type=click.Path(path_type=Path), help="The SLO file, if its models are not found otherwise.")
@click.option("--interval", metavar="60s", help="Time from round to round [default: the policy's].")
@click.option("--duty", type=float, help="Largest share of the server's time for canaries [default: the policy's].")
@click.option("--host/--no-host", default=None, help="Sample this host [default: if the policy guards it].")
@click.option("--once", is_flag=True, help="Run one round and exit.")
@click.option("--rounds", type=click.IntRange(min=1), help="Run this many rounds and exit.")
@click.option(
    "--overlay", type=click.Path(path_type=Path), help="Overlay file [default: policy.live.toml next to the policy]."
)
@click.option(
    "--journal", "log", type=click.Path(path_type=Path), help="Log file [default: watch.jsonl next to the policy]."
)
@click.option(
    "--on-change",
    "commands",
    multiple=True,
    metavar="COMMAND",
    help="Command to run when a route changes, without a shell; repeatable.",
)
@click.option("--limit", metavar="30s", help="Time limit of one command [default: 30s].")
@click.option(
    "--textfile",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write the state as Prometheus text into this folder, for the node exporter.",
)
@click.option("--listen", metavar="HOST:PORT", help="Also serve the state at /metrics, for Prometheus to fetch.")
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="Accept this Host header at --listen too; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON, one object per event.")
@QUIET
def watch(policy: Path, *, once: bool, rounds: int | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Check the guards of a deployed policy round after round; turn speculation off when one is violated.

    \b
    Exit codes, after --once or --rounds:
      0    every route is as certified
      1    a route was moved down the ladder or turned off, or a guard is violated
      2    wrong command line or input file
      3    no answer came, or another watch uses the overlay
      4    the overlay or the log cannot be written
      130  interrupted; the same command continues
    """  # noqa: D301 (click reads the \b)
    from gatekeeper.core.system.own_limits import raise_descriptor_limit  # noqa: PLC0415
    from gatekeeper.core.text import inert_json, printable_error  # noqa: PLC0415
    from gatekeeper.deploy.watch.config import WatchConfig  # noqa: PLC0415
    from gatekeeper.deploy.watch.open_session import open_session  # noqa: PLC0415

    if once and rounds is not None:
        raise InputError("--once and --rounds cannot be combined", hint="--once is the same as --rounds 1")
    options["interval"] = parse_duration(options["interval"], "--interval", "60s")
    if options["limit"] is None:
        del options["limit"]
    else:
        options["limit"] = parse_duration(options["limit"], "--limit", "30s")
    options["commands"] = tuple(_argv(command) for command in options["commands"])
    options["listen"] = None if options["listen"] is None else parse_address(options["listen"])

    def say(text: str, style: Mapping[str, Any]) -> None:
        if style or not quiet:
            # Text from a server may hold escape sequences.
            click.echo(click.style(printable_error(text.replace("\n", " ")), **style), err=True)

    def write(entry: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(inert_json(json.dumps(entry, ensure_ascii=False)))

    raise_descriptor_limit()
    with open_session(WatchConfig(policy, **options), say=say, write=write) as session:
        return session.run(1 if once else rounds)


def _argv(command: str) -> tuple[str, ...]:
    """Split a command into its words as a shell would."""
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise InputError(f"--on-change {command}: {error}", hint="quote it as for a shell") from error
    if not argv:
        raise InputError("--on-change names no program", hint="for example --on-change '/usr/local/bin/reload --now'")
    return argv


@click.command()
@click.argument("runs_dir", type=click.Path(path_type=Path), default="runs")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="Keep the newest N runs of each SLO on each kind of host.",
)
@click.option("--within", metavar="30d", help="Also keep every run younger than this.")
@click.option("--keep-promoted", is_flag=True, help="Also keep every promoted run.")
@click.option(
    "--unfinished", metavar="14d", help="Also remove unfinished runs older than this [default: keep them all]."
)
@click.option("--dry-run", "-n", is_flag=True, help="Show what would be removed; remove nothing.")
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
    """Remove old runs from a folder; never deletes a run that the deploy gate needs.

    For each set of objectives and artifacts, the newest run and the newest passing run stay until they expire. A run
    that is being written, cannot be read or holds files not written by gatekeeper stays too.
    """
    from gatekeeper.core.clock import SystemClock  # noqa: PLC0415
    from gatekeeper.deploy import prune as pruning  # noqa: PLC0415
    from gatekeeper.report.commands.prune import prune_text  # noqa: PLC0415

    young = parse_duration(within, "--within") or 0.0
    rules = pruning.RetentionRules(keep, young, keep_promoted, parse_duration(unfinished, "--unfinished"))
    result = pruning.prune(runs_dir, rules, dry_run=dry_run, now=SystemClock().wall())
    document = result.document()
    show(document, prune_text(document), as_json=as_json)
    return result.exit_code


COMMANDS = (admit, sign, history, compare, watch, prune)
