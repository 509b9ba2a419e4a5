"""The page of a comparison: runs side by side, of several backends too; one file that loads nothing."""

from collections.abc import Sequence

from gatekeeper.report import comparison
from gatekeeper.report.data.compared_runs import RunComparison
from gatekeeper.report.html.markup import Markup, el, section, table
from gatekeeper.report.html.page import document
from gatekeeper.report.html.page_parts import page_head


def render(pairs: Sequence[RunComparison]) -> str:
    """Return the document: what is proven better or worse, the runs, and a table for each workload."""
    first, *rest = comparison.headlines(pairs)
    head = page_head("runs compared", first, *(el("p", headline, class_="lede") for headline in rest))
    return document("gatekeeper: runs compared", head, [_runs(pairs), *map(_workload, comparison.tables(pairs))])


def _runs(pairs: Sequence[RunComparison]) -> Markup:
    heads = ("Side", *comparison.RUN_HEADS, "Run")
    remarks = [el("li", remark) for remark in comparison.remarks(pairs)]
    return section(
        "Runs",
        table(heads, comparison.runs(pairs), "plainly"),
        el("ul", *remarks, class_="events") if remarks else None,
    )


def _workload(workload: comparison.WorkloadTable) -> Markup:
    refusals = [el("p", f"Not compared: {refusal}", class_="dim") for refusal in workload.refusals]
    runs = [el("p", head, class_="dim") for head in workload.heads]
    letters = (head.partition(":")[0] for head in workload.heads)
    rows = table(("Metric", *letters), workload.rows, "plainly") if workload.rows else None
    return section(workload.name, *runs, *refusals, rows)
