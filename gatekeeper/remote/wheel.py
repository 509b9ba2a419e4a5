"""The wheel: this very gatekeeper as one file that pip installs, the same bytes for the same files."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gatekeeper

PACKAGE = Path(gatekeeper.__file__).parent
DATA = {"slos": "slos", "canaries": "canaries", "profiles": "soak/profiles"}
"""Folders an installed gatekeeper keeps below `data`; in a checkout they stand beside the package."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest moment a zip file can name: when a file was touched is no part of what it says."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel and what it is made of."""

    name: str
    content: bytes
    sha256: str
    package: dict[str, str]
    """Digest of every file of the package by its path below it; the data folders are left out."""


def wheel() -> Wheel:
    """Build the wheel of the running package from its own files."""
    version = gatekeeper.__version__
    files = {f"gatekeeper/{name}": content for name, content in sorted(_package())}
    package = {name.removeprefix("gatekeeper/"): hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files |= {f"gatekeeper/data/{name}": content for name, content in sorted(_data())}
    info = f"gatekeeper-{version}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: gatekeeper\nVersion: {version}\nRequires-Python: >=3.11\n"
    ).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: gatekeeper\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\ngatekeeper = gatekeeper.__main__:main\n"
    record = f"{info}/RECORD"
    lines = [f"{_quoted(name)},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[record] = "".join(f"{line}\n" for line in [*lines, f"{record},,"]).encode()
    content = _zip(files)
    name = f"gatekeeper-{version}-py3-none-any.whl"
    return Wheel(name, content, hashlib.sha256(content).hexdigest(), package)


def _package() -> Iterator[tuple[str, bytes]]:
    for path in PACKAGE.rglob("*"):
        parts = path.relative_to(PACKAGE).parts
        if path.is_file() and "__pycache__" not in parts and parts[0] != "data" and not parts[-1].startswith("."):
            yield "/".join(parts), path.read_bytes()


def _data() -> Iterator[tuple[str, bytes]]:
    inside = PACKAGE / "data"
    for folder in DATA.values():
        root = inside / folder if inside.is_dir() else PACKAGE.parent / folder
        for path in root.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                yield f"{folder}/{path.relative_to(root).as_posix()}", path.read_bytes()


def _zip(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name, EPOCH)
            member.external_attr = 0o100644 << 16
            member.create_system = 3  # Unix, on whatever it is made
            # Not compressed: another zlib would make other bytes of the same files.
            archive.writestr(member, content, zipfile.ZIP_STORED)
    return made.getvalue()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if "," in name or '"' in name else name
