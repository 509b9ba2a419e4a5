"""The command `versus`: two systems compared in one run."""

from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.cli.certify_and_plan import observers
from gatekeeper.cli.common_options import AS_JSON, QUIET
from gatekeeper.cli.options import SloPath, out_option, seconds_option, show

AFTER_INTERRUPT = {"versus": "with --output what was measured is kept: the same command with --resume continues"}


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--slo", type=SloPath(), help="The SLO of both, if A and B are not SLO files.")
@click.option(
    "--canaries",
    multiple=True,
    metavar="FILE",
    help="Without an SLO: canary prompts; repeatable [default: json, chat].",
)
@click.option("--target", metavar="NAME", help="Without an SLO: the model, if a server lists several.")
@click.option("--workload", metavar="NAME", help="The workload to measure [default: the first].")
@seconds_option("60s")
@click.option("--fail-on", type=click.Choice(["worse"]), help="Exit 1 where B is proven worse.")
@click.option("--resume", is_flag=True, help="Continue the interrupted comparison in --output.")
@out_option("Folder of the answers [default: they are not kept].")
@AS_JSON
@QUIET
def versus(
    a: str,
    b: str,
    slo: Path | None,
    workload: str | None,
    canaries: Sequence[str],
    target: str | None,
    *,
    seconds: float,
    fail_on: str | None,
    resume: bool,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Compare two systems in one run, their requests interleaved: B over A, with intervals.

    A and B are the addresses of two running servers, two SLO files, or with --slo two environments (folders of venv),
    two drafts of the SLO or two programs.

    \b
    gatekeeper versus http://127.0.0.1:8080/v1 http://127.0.0.1:8081/v1
    """
    from gatekeeper.versus.system_comparison import compare_systems
    from gatekeeper.versus.versus_document import versus_document

    if slo is None:
        a, b = (side if "://" in side else str(SloPath().convert(side, None, None)) for side in (a, b))
    if a == b:
        click.echo("versus: A and B are the same: what differs will be noise", err=True)
    with observers(quiet=quiet) as watching:
        result = compare_systems(
            (a, b), slo, workload, out,
            seconds=seconds, resume=resume, observers=watching, canaries=canaries, target=target,
        )  # fmt: skip
    show(result, versus_document(result), as_json=as_json)
    return 1 if fail_on and result.is_worse else 0


COMMANDS = (versus,)
