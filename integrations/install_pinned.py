"""Install this checkout with every library pinned by its hash: `python install_pinned.py PYTHON LOCK`.

PYTHON is that of the environment to install into, LOCK a lock file (pylock.toml, PEP 751). With the lock file alone the
requirements that any pip installs are printed: pip before 26.1 reads no lock file. The wheel is made here of the
package's own files, so that no build tool is downloaded. Needs nothing but Python.
"""

import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ("slos", "canaries", "soak/profiles")
"""Folders that an installed gatekeeper keeps below `data`; in a checkout they are next to the package."""


def requirements(content: bytes) -> str:
    """Return the requirements of a lock file: every package pinned, with the hash of each of its files."""
    packages = tomllib.loads(content.decode())["packages"]
    return "".join(f"{_pin(package)} \\\n    {_hashes(package)}\n" for package in packages)


def _pin(package: Mapping[str, Any]) -> str:
    marker = f" ; {package['marker']}" if "marker" in package else ""
    return f"{package['name']}=={package['version']}{marker}"


def _hashes(package: Mapping[str, Any]) -> str:
    files = (*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else []))
    digests = sorted({file["hashes"]["sha256"] for file in files})
    return " \\\n    ".join(f"--hash=sha256:{digest}" for digest in digests)


def build_wheel(folder: Path) -> Path:
    """Write the wheel of this checkout into *folder*; return its path."""
    text = (ROOT / "gatekeeper" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'(?m)^__version__ = "(.+)"$', text)
    assert version is not None
    info = f"gatekeeper_slo-{version[1]}.dist-info"
    files = {f"gatekeeper/{name}": content for name, content in _files(ROOT / "gatekeeper")}
    for data in DATA:
        files |= {f"gatekeeper/data/{data}/{name}": content for name, content in _files(ROOT / data)}
    metadata = f"Metadata-Version: 2.1\nName: gatekeeper-slo\nVersion: {version[1]}\nRequires-Python: >=3.11\n"
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: gatekeeper\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\ngatekeeper = gatekeeper.__main__:main\n"
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(content)))
    rows.writerow((f"{info}/RECORD", "", ""))
    files[f"{info}/RECORD"] = record.getvalue().encode()
    wheel = folder / f"gatekeeper_slo-{version[1]}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files below *root* by their path, without caches and hidden files."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
            yield path.relative_to(root).as_posix(), path.read_bytes()


def main() -> None:
    """Print the requirements of a lock file, or install them and this checkout."""
    *python, lock = sys.argv[1:]
    pins = requirements(Path(lock).read_bytes())
    if not python:
        sys.stdout.write(pins)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pins.txt")
        file.write_text(pins, encoding="utf-8")
        pip = [python[0], "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "-r", str(file)], check=True)
        subprocess.run([*pip, "--no-index", str(build_wheel(Path(folder)))], check=True)


if __name__ == "__main__":
    main()
