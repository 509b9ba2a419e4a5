"""The Homebrew formula of a release: `python tools/release_formula.py dist/gatekeeper_slo-0.3.0.tar.gz OWNER/REPO`.

It prints Formula/gatekeeper-slo.rb with version, checksum and home of this sdist filled in.
"""

import argparse
import hashlib
import re
import sys
from pathlib import Path

FORMULA = Path(__file__).resolve().parent.parent / "Formula" / "gatekeeper-slo.rb"
SDIST = re.compile(r"gatekeeper_slo-\d+\.\d+\.\d+\.tar\.gz")


def formula(sdist: Path, repository: str) -> str:
    """Return the formula; refuse a file that is no sdist of a release, and a formula that has no place for a value."""
    if not SDIST.fullmatch(sdist.name):
        raise SystemExit(f"{sdist} is not an sdist of a release: gatekeeper_slo-X.Y.Z.tar.gz")
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    text = FORMULA.read_text("utf-8")
    home = re.compile("OWNER/gatekeeper")
    for place, value in ((SDIST, sdist.name), (re.compile(r"\b0{64}\b"), digest), (home, repository)):
        text, found = place.subn(value, text)
        if found != 1:
            raise SystemExit(f"{FORMULA} has {found} places for {value}, not one")
    return text


if __name__ == "__main__":
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("sdist", type=Path)
    read.add_argument("repository", help="OWNER/REPO, where the release is")
    given = read.parse_args()
    sys.stdout.write(formula(given.sdist, given.repository))
