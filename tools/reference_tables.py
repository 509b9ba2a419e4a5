"""What the reference pages are made of: tables in Markdown, and the texts below the attributes of a class."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import ModuleType


def cell(text: object) -> str:
    """Return *text* on one line, for a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell(one) for one in row)} |\n" for row in lines)


def listing(rows: Iterable[tuple[object, object, object]]) -> str:
    """Return a list in Markdown of names, each with its type, if any, and its meaning."""
    lines = (f"- {name}{f' ({kind})' if kind else ''}: {' '.join(str(text).split())}\n" for name, kind, text in rows)
    return "".join(lines)


def attribute_docs(of: type | ModuleType) -> dict[str, str]:
    """Return the string below each attribute of a class or a module, which Python itself does not keep."""
    found = {}
    tree = ast.parse(textwrap.dedent(inspect.getsource(of)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else tree.body
    for above, below in pairwise(body):
        target = (
            above.target
            if isinstance(above, ast.AnnAssign)
            else above.targets[0]
            if isinstance(above, ast.Assign)
            else None
        )
        documented = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(target, ast.Name) and documented:
            found[target.id] = str(below.value.value)  # type: ignore[attr-defined]
    return found
