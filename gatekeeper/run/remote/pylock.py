"""A lock file (pylock.toml, PEP 751) as requirements with hashes, which every pip installs from its own index.

`python gatekeeper/run/remote/pylock.py pylock.toml` prints them; it needs nothing but Python. uv, and pip from 26.1 on,
install from the lock file itself.
"""

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def requirements(content: bytes) -> bytes:
    """Return the requirements of a lock file: every package pinned, with the hash of each of its files."""
    packages = tomllib.loads(content.decode())["packages"]
    return "".join(f"{_pin(package)} \\\n    {_hashes(package)}\n" for package in packages).encode()


def _pin(package: Mapping[str, Any]) -> str:
    marker = f" ; {package['marker']}" if "marker" in package else ""
    return f"{package['name']}=={package['version']}{marker}"


def _hashes(package: Mapping[str, Any]) -> str:
    files = (*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else []))
    return " \\\n    ".join(
        f"--hash=sha256:{digest}" for digest in sorted({file["hashes"]["sha256"] for file in files})
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(requirements(Path(sys.argv[1]).read_bytes()))
