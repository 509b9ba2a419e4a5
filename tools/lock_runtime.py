"""The versions a remote run is made with: every library gatekeeper and mlx-lm need, pinned, with the hash of each file.

`gatekeeper remote` sends the list along with gatekeeper itself, and pip on the remote host installs nothing else. It
names no index: pip uses the remote host's own. Made anew with: python tools/lock_runtime.py (needs uv).
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "gatekeeper" / "run" / "remote" / "requirements.txt"
OPTIONS = (
    "--universal",  # one list for macOS and Linux, and for every Python that is new enough
    "--generate-hashes",
    "--extra=mlx",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-annotate",
    "--no-header",
    "--quiet",
)


def main() -> int:
    """Write the list; with --upgrade take the newest versions, else keep those that still fit."""
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("--upgrade", action="store_true", help="take the newest versions of everything")
    upgrade = ["--upgrade"] if read.parse_args().upgrade else []
    words = ["uv", "pip", "compile", *OPTIONS, *upgrade, "--output-file", str(LOCK), "pyproject.toml"]
    return subprocess.run(words, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
