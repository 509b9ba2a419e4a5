"""The far environment: this very gatekeeper on another machine, with every library pinned and its versions recorded."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import gatekeeper
from gatekeeper.core.errors import HostLacksError
from gatekeeper.run.remote.ssh import Link

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


OLDEST_PYTHON = (3, 11)
LOCK = "requirements.txt"


@dataclass(frozen=True, slots=True)
class Environment:
    """Where gatekeeper stands ready on the far side."""

    key: str
    """Of one that was installed from here; empty for one that somebody else made."""
    path: str
    """Of one that somebody else made; empty for one that was installed from here."""
    python: str
    installed: tuple[str, ...]
    """`name==version` of every package: what was pinned, or what somebody else chose."""
    wheel_sha256: str
    fresh: bool

    def words(self) -> dict[str, str]:
        """Return how the agent's `start` and `run` are told which environment is meant."""
        return {"key": self.key, "environment": self.path}


def lock() -> bytes:
    """Return the pinned requirements of a remote run."""
    return resources.files("gatekeeper.run.remote").joinpath(LOCK).read_bytes()


def environment(
    link: Link, *, path: str | None = None, say: Callable[[str], None] = lambda _: None, pinned: bytes | None = None
) -> Environment:
    """Have gatekeeper ready at the other end of *link*: install it, or check the one that stands at *path*.

    *say* is told each line of the installation. *pinned* replaces the requirements that are shipped with gatekeeper.
    """
    made = wheel()
    return _checked(link, path, made) if path else _installed(link, made, lock() if pinned is None else pinned, say)


def _checked(link: Link, path: str, made: Wheel) -> Environment:
    """Take an environment that holds the same gatekeeper, byte for byte; another one would judge by other rules."""
    found = link.ask("verify", environment=path, package=made.package)
    differing = found["differing"]
    if differing:
        shown = ", ".join(differing[:3]) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")
        raise HostLacksError(
            f"{link.host}: the gatekeeper in {path} is not the one that runs here: {shown} differ",
            hint="install the same one there, or leave `environment` out of hosts.toml to have it installed",
        )
    return Environment("", path, found["python"], tuple(found["installed"]), made.sha256, fresh=False)


def _installed(link: Link, made: Wheel, pinned: bytes, say: Callable[[str], None]) -> Environment:
    key, pinned_sha256 = _key(link, made, pinned), hashlib.sha256(pinned).hexdigest()
    wheel_path, lock_path = f"parcels/{made.sha256}/{made.name}", f"parcels/{pinned_sha256}/{LOCK}"
    parcels = ((wheel_path, made.content, made.sha256), (lock_path, pinned, pinned_sha256))
    for path, content, sha256 in parcels:
        if link.ask("held", path=path).get("sha256") != sha256:
            link.put(path, content, sha256=sha256)
    ready: dict[str, Any] = {}
    for item in link.stream("install", key=key, wheel=wheel_path, lock=lock_path):
        if item.get("line"):
            say(item["line"])
        if item.get("ready"):
            ready = item
    return Environment(key, "", ready["python"], tuple(ready["installed"]), made.sha256, fresh=ready["fresh"])


def is_installed(link: Link, *, pinned: bytes | None = None) -> bool:
    """Tell whether the environment that would be installed stands there already."""
    key = _key(link, wheel(), pinned or lock())
    return bool(link.ask("held", path=f"envs/{key}/ready").get("sha256"))


def installing(name: str) -> str:
    """Return what is said before the minutes that pip takes on the machine *name*."""
    return f"installing gatekeeper and its libraries on {name}, this once: it takes minutes"


def _key(link: Link, made: Wheel, pinned: bytes) -> str:
    """Name an environment by everything it is made of."""
    told = "\n".join((made.sha256, hashlib.sha256(pinned).hexdigest(), _capable(link), link.hello["machine"]))
    return hashlib.sha256(told.encode()).hexdigest()[:20]


def _capable(link: Link) -> str:
    """Return the version of the Python that environments are made with there."""
    hello = link.hello
    if capable := hello["capable_python"]:
        version: str = hello["pythons"][capable]
        return version
    oldest = ".".join(str(part) for part in OLDEST_PYTHON)
    if hello["without_venv"]:
        raise HostLacksError(
            f"{link.host}: {hello['without_venv'][0]} can not make environments (no venv, no ensurepip)",
            hint="apt-get install python3-venv there, or name another Python in hosts.toml: python",
        )
    seen = ", ".join(f"{path} is {version}" for path, version in hello["pythons"].items()) or "none was found"
    raise HostLacksError(
        f"{link.host}: gatekeeper needs Python {oldest} or newer there; {seen}",
        hint="brew install python there, or name one in hosts.toml: python",
    )
