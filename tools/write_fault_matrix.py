"""Write `docs/faults.md`: how many faults of each kind the tests cause, by the tables in `tests/faults/matrix`."""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a script, Python looks in tools/ alone

from tests.builders.faults import PAGE, rows

HEAD = """# Faults that the tests cause

<!-- Written by tools/write_fault_matrix.py from tests/faults/matrix; do not edit. -->

Each fault is one row of a file below: what goes wrong, what gatekeeper promises then, and the test that causes it.
`./run tests`, by night with `-m nightly`, runs them all. [What is defended against whom](../SECURITY.md).
"""


def page() -> str:
    """Return the page: a row for each group."""
    faults = Counter(row.group for row in rows())
    lines = [HEAD, f"{faults.total()} faults.", "", "| kind | faults |", "|---|---|"]
    lines += [f"| [{group}](../tests/faults/matrix/{group}.toml) | {faults[group]} |" for group in sorted(faults)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
