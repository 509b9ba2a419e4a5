"""The commands on a folder of runs: history, compare, prune."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.cli.common_options import AS_JSON
from gatekeeper.cli.options import PATH, RunPath, parse_duration, show


@click.command()
@click.argument("runs_dir", type=PATH, default="runs")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "html"]), default="text", show_default=True,
    help="Output format; html is a page with charts.",
)  # fmt: skip
@AS_JSON
def history(runs_dir: Path, form: str, *, as_json: bool) -> None:  # noqa: ARG001 (--json sets the format)
    """List the runs of a folder by SLO, oldest first, with the trend of speed-up, acceptance and memory.

    Stored verdicts are shown if the run's checksums match; `gatekeeper judge` derives a verdict again.
    """
    from gatekeeper.deploy import history as stored
    from gatekeeper.report.commands.history import history_text

    runs = stored.history(runs_dir)
    if form == "html":
        from gatekeeper.report.html import history_page

        click.echo(history_page.render(runs), nl=False)
        return
    show(runs.document(), history_text(runs), as_json=form == "json")


@click.command()
@click.argument("runs", type=RunPath(), nargs=-1, required=True, metavar="RUN_A RUN_B...")
@click.option(
    "--fail-on", type=click.Choice(["worse"]),
    help="Exit 1 where a figure is proven worse, 3 where one is missing.",
)  # fmt: skip
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Compare this metric alone; repeatable.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown", "html"]), default="text", show_default=True,
    help="Output format; markdown fits a pull-request comment.",
)  # fmt: skip
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

    Runs of different backends need targets of one family and the same canaries; what cannot be compared is named.

    \b
    Exit codes:
      0    compared
      1    with --fail-on worse: a figure is proven worse
      3    the runs are not comparable
    """
    from gatekeeper.deploy import compare as comparing
    from gatekeeper.report import comparison
    from gatekeeper.report.data.compared_runs import comparisons_document

    pairs = comparing.compare(runs, metrics)
    if form == "html":
        from gatekeeper.report.html import comparison_page

        sys.stdout.write(comparison_page.render(pairs))
    else:
        text = comparison.markdown(pairs) if form == "markdown" else comparison.text(pairs)
        show(comparisons_document(pairs), text, as_json=form == "json")
    return comparing.exit_code(pairs, fail_on_worse=fail_on == "worse")


@click.command()
@click.argument("runs_dir", type=PATH, default="runs")
@click.option(
    "--keep", type=click.IntRange(min=1), required=True, metavar="N",
    help="Keep the newest N runs of each SLO and kind of host.",
)  # fmt: skip
@click.option("--within", metavar="30d", help="Also keep every run younger than this.")
@click.option("--keep-promoted", is_flag=True, help="Also keep every promoted run.")
@click.option("--unfinished", metavar="14d", help="Also remove unfinished runs older than this.")
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
    that is being written, cannot be read or holds other files stays too.
    """
    from gatekeeper.core.clock import SystemClock
    from gatekeeper.deploy import prune as pruning
    from gatekeeper.report.commands.prune import prune_text

    young = parse_duration(within, "--within") or 0.0
    rules = pruning.RetentionRules(keep, young, keep_promoted, parse_duration(unfinished, "--unfinished"))
    result = pruning.prune(runs_dir, rules, dry_run=dry_run, now=SystemClock().wall())
    document = result.document()
    show(document, prune_text(document), as_json=as_json)
    return result.exit_code


COMMANDS = (history, compare, prune)
