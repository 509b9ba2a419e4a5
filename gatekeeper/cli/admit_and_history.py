"""The commands on finished runs: the deploy gate (admit, sign), and those of a folder of runs."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.cli.common_options import AS_JSON
from gatekeeper.cli.options import (
    PATH,
    RUN_DIR,
    SLO,
    RunPath,
    ends_with,
    parse_duration,
    show,
    slo_of,
)
from gatekeeper.core.errors import InputError
from gatekeeper.core.reasons import CERTIFICATION


@click.command()
@SLO
@click.option("--run", "run_dir", type=RunPath(), help="The run to admit.")
@click.option("--runs", type=PATH, help="A folder of runs; the newest matching run decides.")
@click.option("--fleet", type=PATH, metavar="DIR", help="A folder of `fleet certify`: checks every host.")
@click.option("--max-age", metavar="7d", help="Refuse a run older than this; never extends its validity.")
@click.option(
    "--grade", type=click.Choice(["certification", "demo"]), default="certification", show_default=True,
    help=f"The lowest grade to admit; a demo has a soak under {CERTIFICATION}.",
)  # fmt: skip
@click.option(
    "--signed-by", metavar="FILE|IDENTITY",
    help="Who must have signed: an allowed-signers file, public keys as PEM, or with --issuer an identity.",
)  # fmt: skip
@click.option("--issuer", metavar="URL", help="Who states the identity of --signed-by (keyless).")
@click.option(
    "--trusted-root", type=PATH, metavar="FILE",
    help="Sigstore's trusted root for --issuer [default: the public instance's].",
)  # fmt: skip
@click.option("--url", metavar="URL", help="The running server: it must not differ from what was certified.")
@AS_JSON
@ends_with(
    ok="admitted: the newest matching run passed",
    objective_failed="the newest matching run failed an objective",
    unproven="no proof, or the server differs; the next step is printed",
)
def admit(
    slo: Path,
    *,
    run_dir: Path | None,
    runs: Path | None,
    fleet: Path | None,
    max_age: str | None,
    grade: str,
    signed_by: str | None,
    issuer: str | None,
    trusted_root: Path | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Admit a deploy only with a passing, unexpired, unchanged run of exactly these artifacts.

    It also says how many finished runs of the same did not pass.

    \b
    gatekeeper admit smoke --runs runs --max-age 7d
    """
    from gatekeeper.core.clock import SystemClock
    from gatekeeper.core.hidden_keys import address_of
    from gatekeeper.deploy import admit as gate
    from gatekeeper.deploy.signing.keyless import KeylessSigner
    from gatekeeper.report.commands.admit_document import admit_document

    server = None if url is None else address_of("--url", url)
    signers: Path | KeylessSigner | None = None if signed_by is None else Path(signed_by)
    if issuer is not None and signed_by is not None:
        signers = KeylessSigner(signed_by, issuer, trusted_root)
    elif issuer is not None or trusted_root is not None:
        raise InputError("a keyless signer is --signed-by IDENTITY --issuer URL", hint="--trusted-root goes with both")
    required = gate.Requirements(parse_duration(max_age, "--max-age"), grade == "demo", signers, server)
    if fleet is not None:
        from gatekeeper.fleet import fleet_admit as fleet_gate

        if run_dir is not None or runs is not None:
            raise InputError("--fleet goes with neither --run nor --runs", hint="the fleet names the run of each host")
        fleet_answer = fleet_gate.admit(slo, fleet, required, SystemClock().wall())
        show(fleet_answer, fleet_gate.admission_text(fleet_answer), as_json=as_json)
        return int(fleet_answer["exit_code"])
    admission = gate.admit(slo, run=run_dir, runs=runs, required=required, now=SystemClock().wall())
    document = admission.document()
    show(document, admit_document(document), as_json=as_json)
    return admission.exit_code


@click.command()
@RUN_DIR
@click.option(
    "--key", type=PATH,
    help="A private key of ssh or as PEM, or the .pub file of a key in ssh-agent.",
)  # fmt: skip
@click.option("--keyless", is_flag=True, help="Sign by the identity of this CI job, at Sigstore.")
@click.option(
    "--trust-config", type=PATH, metavar="FILE",
    help="Another Sigstore instance for --keyless: its client trust configuration.",
)  # fmt: skip
@click.option("--bundle", type=PATH, metavar="FILE", help="Keep a Sigstore bundle that was made elsewhere.")
@AS_JSON
def sign(
    run_dir: Path, key: Path | None, trust_config: Path | None, bundle: Path | None, *, keyless: bool, as_json: bool
) -> None:
    """Sign a run's certificate, after verifying the run against its records.

    An ssh key makes certificate.intoto.json.sig. PEM (extra `sign`) and --keyless (extra `keyless`) make
    certificate.sigstore.json, which cosign verifies; --bundle takes one of GitHub's action attest.

    \b
    gatekeeper sign latest --key ~/.ssh/id_ed25519
    """
    from gatekeeper.deploy.signing import sign as signing

    if [key is not None, keyless, bundle is not None].count(True) != 1:
        raise InputError("sign needs one of --key, --keyless and --bundle", hint="for example --key ~/.ssh/id_ed25519")
    if trust_config is not None and not keyless:
        raise InputError("--trust-config goes with --keyless", hint="leave it out, or sign with --keyless")
    document = signing.sign(run_dir, signing.SigningMethod(key, trust_config, bundle))
    text = f"signed: {document['signature']} ({document['outcome']})\n"
    if key is not None:
        from gatekeeper.deploy.signing.ssh_keys import public_key_command, public_key_file

        words = ("admit", str(slo_of(run_dir, None)), "--run", str(run_dir), "--signed-by", str(public_key_file(key)))
        text += f"next: {public_key_command(key)} && gatekeeper {shlex.join(words)}\n"
    show(document, text, as_json=as_json)


@click.command()
@click.argument("runs_dir", type=PATH, default="runs")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "html"]), default="text", show_default=True,
    help="Output format; html is a page with charts.",
)  # fmt: skip
@AS_JSON
def history(runs_dir: Path, form: str, *, as_json: bool) -> None:  # noqa: ARG001 (--json sets the format)
    """List the runs of a folder by SLO, newest first, with the trends of speeds, acceptance and memory.

    Stored verdicts are shown if the run's checksums match.

    \b
    gatekeeper history runs --format html -o history.html
    """
    from gatekeeper.deploy import history as stored
    from gatekeeper.report.commands.history_document import history_document

    runs = stored.history(runs_dir)
    show(runs, history_document(runs), form=form)


@click.command()
@click.argument("runs", type=RunPath(), nargs=-1, required=True, metavar="RUN_A RUN_B...")
@click.option(
    "--fail-on", type=click.Choice(["worse"]),
    help="Exit 1 where a figure is proven worse, 3 where one is missing.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown", "html"]), default="text", show_default=True,
    help="Output format; markdown fits a pull-request comment.",
)  # fmt: skip
@AS_JSON
@ends_with(
    ok="compared",
    objective_failed="with --fail-on worse: a figure is proven worse",
    unproven="the runs are not comparable",
)
def compare(
    runs: Sequence[Path],
    fail_on: str | None,
    form: str,
    *,
    as_json: bool,  # noqa: ARG001 (it sets the format)
) -> int:
    """Compare runs with the first one, metric by metric: what is proven better or worse.

    Runs of different backends need targets of one family and the same canaries.

    \b
    gatekeeper compare runs/first latest
    """
    from gatekeeper.deploy import compare as comparing
    from gatekeeper.report.commands.compare_document import compared_document
    from gatekeeper.report.data.compared_runs import comparisons_document

    pairs = comparing.compare(runs)
    show(comparisons_document(pairs), compared_document(pairs), form=form)
    return comparing.exit_code(pairs, fail_on_worse=fail_on == "worse")


COMMANDS = (admit, sign, history, compare)
