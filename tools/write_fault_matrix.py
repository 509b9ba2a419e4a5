"""Run every test that the fault matrix names, and write `docs/faults.md`: each fault, the promise, and whether it held.

    python tools/write_fault_matrix.py

The rows are the tables in `tests/faults/matrix`. A skipped test (a tool that is not installed) is shown as skipped.
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

HEAD = """# What can go wrong, and what is promised then

<!-- Written by tools/write_fault_matrix.py from tests/faults/matrix; do not edit. -->

Each row is a fault that a test of this repository causes; `./run tests` runs them all. *kept* means that the promise
held when this page was made. What is defended against whom, and what is not, stands in [SECURITY.md](../SECURITY.md).
"""


def results(nodes: set[str]) -> dict[str, set[str]]:
    """Run the tests *nodes* and return what became of each: a set of `passed`, `failed`, `skipped`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        options = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}", "-n", "auto"]
        command = [sys.executable, "-m", "pytest", *options, "--no-loadscope-reorder", *sorted(nodes)]
        ended = subprocess.run(command, cwd=ROOT, check=False).returncode
        if ended not in {0, 1}:
            sys.exit("write_fault_matrix: pytest ran nothing; is every node of the matrix a test?")
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


def main() -> int:
    """Write the page; return 1 where a promise was broken."""
    table = rows()
    found = results({row.where for row in table})
    total = Counter(result(row, found) for row in table)
    lines = [HEAD, f"{len(table)} faults: " + ", ".join(f"{number} {word}" for word, number in total.items()) + ".", ""]
    for group in sorted({row.group for row in table}):
        lines += [f"## {group.replace('_', ' ').capitalize()}", ""]
        lines += ["| fault | what is promised | caused in | result |", "|---|---|---|---|"]
        lines += [
            f"| {row.fault} | {row.promise} | `{row.where}` | {result(row, found)} |"
            for row in table
            if row.group == group
        ]
        lines.append("")
    PAGE.write_text("\n".join(lines))
    return 1 if total["BROKEN"] else 0


if __name__ == "__main__":
    sys.exit(main())
