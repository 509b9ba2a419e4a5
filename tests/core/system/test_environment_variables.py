"""Each environment variable that the package reads has its name from one module."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gatekeeper
from gatekeeper.core.system import environment_variables

PACKAGE = Path(gatekeeper.__file__).parent
DECLARED = {name for name in vars(environment_variables) if re.fullmatch("[A-Z][A-Z_]+", name)} - {"FAMILIES"}
OURS = re.compile("GATEKEEPER_[A-Z_]+")
EVERYWHERE = {"PATH", "TRANSFORMERS_VERBOSITY"}
"""PATH is no setting of ours; the other one is set, not read."""


def read_by(path: Path) -> Iterator[str]:
    """Yield the names that a module writes out: those it looks up in os.environ, and ours anywhere."""
    text = path.read_text()
    if not re.search("environ|getenv|GATEKEEPER_", text):  # to parse all modules takes a second
        return
    for node in ast.walk(ast.parse(text)):
        keys: list[ast.expr] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("os.environ.", "os.getenv")):
            keys = node.args[:1]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            keys = [node.slice]
        elif isinstance(node, ast.Constant) and OURS.fullmatch(str(node.value)):
            keys = [node]
        yield from (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def test_every_variable_is_declared_once() -> None:
    """No module writes out the name of a variable but the one that declares them."""
    modules = [path for path in PACKAGE.rglob("*.py") if path.name != "environment_variables.py"]
    written = {path: set(read_by(path)) - EVERYWHERE for path in modules}

    assert {} == {path.name: names for path, names in written.items() if names}
    assert set().union(*written.values()) <= DECLARED
    assert all(getattr(environment_variables, name) == name for name in DECLARED)
