"""Make the gallery of the docs: four real runs of the little pair, each with another outcome, and their report pages.

    .venv/bin/python tools/make_gallery.py        # about six minutes on a quiet machine

Each run is `slos/smoke.toml` with one thing changed; the changed files and the pages are written to `docs/gallery/`.
"""

import argparse
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

ROOT = Path(__file__).resolve().parent.parent
GALLERY = ROOT / "docs" / "gallery"
SOAK = {"duration": "30 s", "max_duration": "5 min"}
EXPECTED = {"promoted": 0, "graded-back": 1, "failed": 1, "unproven": 3}


def base(name: str, why: str) -> dict[str, Any]:
    """Return smoke.toml, with the paths as they are from the gallery and a longer soak."""
    slo = tomllib.loads((ROOT / "slos" / "smoke.toml").read_text("utf-8"))
    models = {"target": "../../models/little-target", "drafts": ["../../models/little-draft"]}
    return slo | {"name": name, "why": why, "subject": slo["subject"] | models, "soak": slo["soak"] | SOAK}


def variants() -> dict[str, dict[str, Any]]:
    """Return the SLO of each run."""
    promoted = base("promoted", "JSON speculates; random codes may decode plainly.")
    graded = base("graded-back", "Random codes must speculate here, which no draft can make faster.")
    graded["workload"][1]["speculation"] = "required"
    failed = base("failed", "An objective that the target itself cannot meet.")
    why = "This machine cannot write a thousand tokens a second with these models, with or without a draft."
    failed["objective"].append({"metric": "decode_throughput", "at_least": "1000 tok/s", "when": "always", "why": why})
    unproven = base(
        "unproven", "The SLO is for a Mac mini. This machine is not one, so its figures prove nothing for it."
    )
    unproven["host"] = {"chip": "Apple M4"}
    return {"promoted": promoted, "graded-back": graded, "failed": failed, "unproven": unproven}


def certify(name: str, slo: dict[str, Any]) -> None:
    """Certify *slo* and write its page to the gallery; exit where the outcome is another."""
    GALLERY.mkdir(parents=True, exist_ok=True)
    file, run = GALLERY / f"{name}.toml", Path("runs/gallery", name)  # relative: the page shows where it was
    shutil.rmtree(ROOT / run, ignore_errors=True)
    file.write_text(f"# Written by tools/make_gallery.py from slos/smoke.toml.\n{tomli_w.dumps(slo)}", "utf-8")
    argv = [sys.executable, "-m", "gatekeeper", "certify", str(file.relative_to(ROOT)), "--out", str(run)]
    ran = subprocess.run(argv, cwd=ROOT, check=False)
    if ran.returncode != EXPECTED[name]:
        sys.exit(f"{name}: exit code {ran.returncode} instead of {EXPECTED[name]}; the machine may be too busy")
    (GALLERY / f"{name}.html").write_bytes((ROOT / run / "report.html").read_bytes())


def main() -> None:
    """Make the runs that are named, or all four."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *EXPECTED], help="which runs to make [default: all]")
    given = parser.parse_args()
    for name, slo in variants().items():
        if not given.names or name in given.names:
            certify(name, slo)


if __name__ == "__main__":
    main()
