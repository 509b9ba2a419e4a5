"""The lock files: the version of every library that gatekeeper, its image and its tests are installed with.

`pylock.toml` is gatekeeper alone; `integrations/pylock.image.toml` has what the image needs for the proxy and for
signatures; both with the hash of each file, as PEP 751 describes. `tests/constraints.txt` has versions alone, which any
installer takes from any index: `./run` sets up its environment for tests, lint and docs with them.
Made anew with: python tools/lock_runtime.py (needs uv).
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "tests" / "constraints.txt"
LOCKS = {
    ROOT / "pylock.toml": (),
    ROOT / "integrations" / "pylock.image.toml": ("--extra=proxy", "--extra=sign", "--extra=keyless"),
    # A version here may serve any system: without the list of systems in pyproject.toml, a line is short.
    CONSTRAINTS: ("--extra=mlx", "--extra=test", "--extra=lint", "--extra=docs", "--no-config"),
}
OPTIONS = (
    "--universal",  # one list for macOS and Linux, and for every Python that is new enough
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-annotate",
    "--no-header",
    "--quiet",
)


def main() -> int:
    """Write the lists; with --upgrade take the newest versions, else keep those that still fit."""
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("--upgrade", action="store_true", help="take the newest versions of everything")
    upgrade = ["--upgrade"] if read.parse_args().upgrade else []
    for lock, extras in LOCKS.items():
        words = ["uv", "pip", "compile", *OPTIONS, *extras, *upgrade, "--output-file", str(lock), "pyproject.toml"]
        code = subprocess.run(words, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode
        if code:
            return code
        # uv keeps the addresses of the files, which begin with the public index; the requirements made of it name none.
        if lock != CONSTRAINTS and "files.pythonhosted.org" not in lock.read_text("utf-8"):
            raise SystemExit(f"{lock}: its files are not those of the public index")
    return 0


if __name__ == "__main__":
    sys.exit(main())
