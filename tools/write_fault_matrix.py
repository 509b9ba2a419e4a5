"""Run every test that the fault matrix names, and write `docs/faults.md`: how many faults of each kind, and what held.

    python tools/write_fault_matrix.py

The rows are the tables in `tests/faults/matrix`. A skipped test (a tool that is not installed) is counted as skipped;
a fault whose promise was broken stands on the page by name.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, Python looks in tools/ alone

from tests.builders.faults import PAGE, Fault, rows  # noqa: E402

WORDS = {"passed": "kept", "failed": "BROKEN", "skipped": "skipped"}

HEAD = """# Faults that the tests cause

<!-- Written by tools/write_fault_matrix.py from tests/faults/matrix; do not edit. -->

Each fault is one row of a file below: what goes wrong, what gatekeeper promises then, and the test that causes it.
`./run tests`, by night with `-m nightly`, runs them all. [What is defended against whom](../SECURITY.md).
"""


def results(nodes: set[str]) -> dict[str, set[str]]:
    """Run the tests *nodes* and return what became of each: a set of `passed`, `failed`, `skipped`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", *sorted(nodes)]
        options = [
            "-o",
            "junit_family=xunit1",
            f"--junitxml={report}",
            "-n",
            "auto",
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
        ]
        # Run in several processes, pytest names no node that is missing.
        if subprocess.run([*pytest, "-n", "0", "--collect-only", "-qq"], cwd=ROOT, check=False).returncode:
            sys.exit("write_fault_matrix: a node of the matrix is no test; pytest names it above")
        if subprocess.run([*pytest, *options], cwd=ROOT, check=False).returncode not in {0, 1}:
            sys.exit("write_fault_matrix: pytest ran nothing")
        found = defaultdict[str, set[str]](set)
        for case in ET.parse(report).iter("testcase"):  # noqa: S314  pytest wrote it
            kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
            word = "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"
            found[f"{case.get('file')}::{case.get('name')}"].add(word)
            found[f"{case.get('file')}::{str(case.get('name')).partition('[')[0]}"].add(word)
        return found


def result(row: Fault, found: dict[str, set[str]]) -> str:
    """One word for a row: broken if any case of its test failed, kept if any passed, else skipped."""
    words = found.get(f"{row.where.partition('::')[0]}::{row.where.rpartition('::')[2]}", set())
    return WORDS[next((word for word in ("failed", "passed") if word in words), "skipped")]


def page(table: list[Fault], words: list[str]) -> str:
    """Return the page: a row a group, then every promise that was broken."""
    total = Counter(words)
    counts = ", ".join(f"{number} {word}" for word, number in total.items())
    lines = [HEAD, f"{len(table)} faults; when this page was made, of the promises: {counts}.", ""]
    lines += ["| kind | faults |", "|---|---|"]
    for group in sorted({row.group for row in table}):
        members = [row for row in table if row.group == group]
        link = f"[{group}](../tests/faults/matrix/{group}.toml)"
        lines.append(f"| {link} | {len(members)} |")
    broken = [row for row, word in zip(table, words, strict=True) if word == WORDS["failed"]]
    lines += ["", *(f"BROKEN: {row.fault}: {row.promise} (`{row.where}`)\n" for row in broken)]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page; return 1 where a promise was broken."""
    table = rows()
    found = results({row.where for row in table})
    words = [result(row, found) for row in table]
    PAGE.write_text(page(table, words))
    return 1 if WORDS["failed"] in words else 0


if __name__ == "__main__":
    sys.exit(main())
