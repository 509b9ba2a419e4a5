"""Host samples of a run that a test reads or changes, whatever the lines of their file look like."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatekeeper.core.system.record_files import SAMPLES, read_records


def stored_samples(run: Path) -> list[dict[str, Any]]:
    """Return the host samples of *run* as `gatekeeper doctor --samples --json` prints them."""
    return [SAMPLES.dump_python(sample, mode="json") for sample in read_records(run / "host.jsonl", SAMPLES).records]


def replace_samples(run: Path, samples: Sequence[dict[str, Any]]) -> None:
    """Let the host samples of *run* be these, each in a full line."""
    lines = [*samples, {"end": True, "records": len(samples)}]
    (run / "host.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
