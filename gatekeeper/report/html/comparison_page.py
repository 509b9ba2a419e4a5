"""The page of a comparison: runs side by side, of several backends too; one file that loads nothing."""

from collections.abc import Sequence

from gatekeeper.report import comparison_text
from gatekeeper.report.data.compared_runs import RunComparison
from gatekeeper.report.html.markup import Markup, el, section, table
from gatekeeper.report.html.page import document
from gatekeeper.report.html.page_parts import page_head


def render(pairs: Sequence[RunComparison]) -> str:
    """Return the document: what is proven better or worse, the runs, and a table for each workload."""
    first, *rest = comparison_text.headlines(pairs)
    head = page_head("runs compared", first, *(el("p", headline, class_="lede") for headline in rest))
    return document("gatekeeper: runs compared", head, [_runs(pairs), *map(_workload, comparison_text.tables(pairs))])


def _runs(pairs: Sequence[RunComparison]) -> Markup:
    heads = ("Side", *comparison_text.RUN_HEADS, "Run")
    remarks = [el("li", remark) for remark in comparison_text.remarks(pairs)]
    return section(
        "Runs",
        table(heads, comparison_text.runs(pairs), "plainly"),
        el("ul", *remarks, class_="events") if remarks else None,
    )


def _workload(workload: comparison_text.WorkloadTable) -> Markup:
    refusals = [el("p", f"Not compared: {refusal}", class_="dim") for refusal in workload.refusals]
    runs = [el("p", head, class_="dim") for head in workload.heads]
    letters = (head.partition(":")[0] for head in workload.heads)
    rows = table(("Metric", *letters), workload.rows, "plainly") if workload.rows else None
    return section(workload.name, *runs, *refusals, rows)
