"""The fault matrix: what can go wrong, what is promised then, and the test that causes it (`tests/faults/matrix`)."""

import ast
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "tests" / "faults" / "matrix"
PAGE = ROOT / "docs" / "faults.md"


@dataclass(frozen=True, slots=True)
class Fault:
    """One row: a fault, the promise, and the test that causes it."""

    group: str
    """The name of its file: `kills`, `servers` …"""
    fault: str
    promise: str
    where: str
    """A pytest node: `tests/FILE.py::test_name`, with `[case]` for one case of a parametrized test."""

    @property
    def file(self) -> Path:
        """The file of the test."""
        return ROOT / self.where.partition("::")[0]

    @property
    def function(self) -> str:
        """The function of the test, without class and case."""
        return self.where.partition("[")[0].rpartition("::")[2]


def rows() -> list[Fault]:
    """Read all groups, in the order of their file names; raise TypeError for a key that is unknown or missing."""
    groups = {path.stem: tomllib.loads(path.read_text())["fault"] for path in sorted(MATRIX.glob("*.toml"))}
    return [Fault(group=group, **row) for group, table in groups.items() for row in table]


@cache
def functions(path: Path) -> set[str]:
    """The names of all functions in a Python file."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
