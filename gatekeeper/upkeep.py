"""The command that keeps a folder of runs in order: prune."""

from pathlib import Path

import click

from gatekeeper.options import AS_JSON, seconds, show


@click.command()
@click.argument("runs_dir", type=click.Path(path_type=Path), default="runs")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="Keep the newest N runs of each SLO on each kind of host.",
)
@click.option("--within", metavar="30d", help="Keep every run that is younger, too.")
@click.option("--keep-promoted", is_flag=True, help="Keep every run that was promoted, too.")
@click.option(
    "--unfinished", metavar="14d", help="Remove unfinished runs that are older, too; without it none is removed."
)
@click.option("--dry-run", "-n", is_flag=True, help="Say what would be removed, and remove nothing.")
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
    """Remove old runs from a folder; the deploy gate never answers better for it.

    Whatever the options say, these stay: the newest run of the same promises and artifacts and the newest of them that
    passed, as long as they may count for a deploy; a run that is being written, can not be read or holds files that no
    run writes; and whatever is no run.
    """
    from gatekeeper.reports import rotation as told  # noqa: PLC0415
    from gatekeeper.rotation import prune as do  # noqa: PLC0415
    from gatekeeper.terms.clock import SystemClock  # noqa: PLC0415
    from gatekeeper.verdict.retention import Rules  # noqa: PLC0415

    young = seconds(within, "--within") or 0.0
    rules = Rules(keep, young, keep_promoted, seconds(unfinished, "--unfinished"))
    done = do(runs_dir, rules, dry_run=dry_run, now=SystemClock().wall())
    document = done.document()
    show(document, told.render(document), as_json=as_json)
    return done.exit_code


COMMANDS = (prune,)
