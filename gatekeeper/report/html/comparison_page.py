"""The page of a comparison: runs side by side, of several backends too; one file that loads nothing."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from gatekeeper.report import comparison
from gatekeeper.report.html.markup import Markup, el, section, table

RULES = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"


def render(pairs: Sequence[comparison.Pair]) -> str:
    """Return the document: what is proven better or worse, the runs, and a table for each workload."""
    style = files("gatekeeper.report.html").joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    first, *others = comparison.headlines(pairs)
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=RULES.format(digest)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", "gatekeeper: runs compared"),
        el("style", Markup(style)),
    )
    body = el(
        "body",
        el(
            "header",
            el("p", "gatekeeper", class_="eyebrow"),
            el("h1", first),
            *(el("p", one, class_="lede") for one in others),
            class_="hero",
        ),
        el("main", _runs(pairs), *(_workload(one) for one in comparison.tables(pairs))),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _runs(pairs: Sequence[comparison.Pair]) -> Markup:
    heads = ("", *comparison.RUN_HEADS, "Run")
    remarks = [el("li", one) for one in comparison.remarks(pairs)]
    return section("Runs", table(heads, comparison.runs(pairs), "plainly"), el("ul", *remarks) if remarks else None)


def _workload(one: comparison.WorkloadTable) -> Markup:
    refusals = [el("p", f"Not compared: {refusal}", class_="dim") for refusal in one.refusals]
    rows = table(("Metric", *one.heads), one.rows, "plainly") if one.rows else None
    return section(one.name, *refusals, rows)
