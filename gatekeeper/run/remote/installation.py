"""The environment on a remote host: the local gatekeeper, with every library pinned and its version recorded."""

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import gatekeeper
from gatekeeper.core.errors import HostLacksError
from gatekeeper.run.remote.agent.agent import OLDEST_PYTHON
from gatekeeper.run.remote.pylock import requirements
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.upload import upload_file

PACKAGE = Path(gatekeeper.__file__).parent
DISTRIBUTION = "gatekeeper_slo"
"""What the package is called on an index, as file names write it: `gatekeeper` is another one there."""
DATA = ("slos", "canaries", "soak/profiles")
"""Folders an installed gatekeeper keeps below `data`; in a checkout they are next to the package."""
PLATFORMS = {("Darwin", "arm64"), ("Linux", "x86_64"), ("Linux", "aarch64")}
"""What the lock file is made for; anywhere else pip would install none of its packages and succeed."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip file can hold: the same files make the same bytes, whenever they were written."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel and the digests of its package."""

    name: str
    content: bytes
    sha256: str
    package: dict[str, str]
    """Digest of every file of the package by its path below it; the data folders are left out."""


def build_wheel() -> Wheel:
    """Build the wheel of the running package from its own files."""
    version = gatekeeper.__version__
    files = {f"gatekeeper/{name}": content for name, content in _files(PACKAGE, skip="data")}
    package = {name.removeprefix("gatekeeper/"): hashlib.sha256(content).hexdigest() for name, content in files.items()}
    for folder in DATA:
        inside = PACKAGE / "data" / folder
        root = inside if (PACKAGE / "data").is_dir() else PACKAGE.parent / folder
        files |= {f"gatekeeper/data/{folder}/{name}": content for name, content in _files(root)}
    info = f"{DISTRIBUTION}-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: {DISTRIBUTION.replace('_', '-')}\nVersion: {version}\nRequires-Python: >=3.11\n"
    )
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
    content = _zip(files)
    name = f"{DISTRIBUTION}-{version}-py3-none-any.whl"
    return Wheel(name, content, hashlib.sha256(content).hexdigest(), package)


def _files(root: Path, skip: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the files below *root* by their path, without caches, hidden files and the folder *skip*."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and "__pycache__" not in parts and parts[0] != skip and not parts[-1].startswith("."):
            yield "/".join(parts), path.read_bytes()


def _zip(files: dict[str, bytes]) -> bytes:
    archive_bytes = io.BytesIO()
    with zipfile.ZipFile(archive_bytes, "w") as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name, EPOCH)
            member.external_attr = 0o100644 << 16
            member.create_system = 3  # Unix, whatever system builds it
            # Not compressed: another zlib would make other bytes of the same files.
            archive.writestr(member, content, zipfile.ZIP_STORED)
    return archive_bytes.getvalue()


LOCK = "pylock.toml"
REQUIREMENTS = "requirements.txt"
INSTALL_S = 7200.0
"""Time limit of an installation: half a gigabyte over a slow line."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment on a remote host that holds this gatekeeper."""

    path: str
    installed: tuple[str, ...]
    """`name==version` of every package."""


def lock() -> bytes:
    """Return the requirements of a remote run, pinned by the lock file; the remote pip may not know such a file."""
    return requirements(resources.files("gatekeeper.run.remote").joinpath(LOCK).read_bytes())


def prepare_environment(
    connection: Connection, *, path: str | None = None, say: Callable[[str], None] = lambda _: None
) -> Environment:
    """Install gatekeeper on the remote host, unless that was done before, or check the environment at *path*.

    *say* receives the output of the installation.
    """
    return _check(connection, path) if path else _install(connection, say)


def _check(connection: Connection, path: str) -> Environment:
    """Accept an environment that holds the same gatekeeper, byte for byte; another one might judge by other rules."""
    answer = connection.request("verify", environment=path, package=build_wheel().package)
    if differing := answer["differing"]:
        names = ", ".join(differing[:3]) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")
        message = f"{connection.host}: the gatekeeper in {path} differs from the local one: {names}"
        hint = "install the local version there, or remove `environment` from hosts.toml to let gatekeeper do it"
        raise HostLacksError(message, hint=hint)
    return Environment(path, tuple(answer["installed"]))


def _install(connection: Connection, say: Callable[[str], None]) -> Environment:
    wheel, pinned, key = build_wheel(), lock(), _key(connection)
    pinned_sha256 = hashlib.sha256(pinned).hexdigest()
    wheel_path, lock_path = f"parcels/{wheel.sha256}/{wheel.name}", f"parcels/{pinned_sha256}/{REQUIREMENTS}"
    upload_file(connection, wheel_path, wheel.content, wheel.sha256)
    upload_file(connection, lock_path, pinned, pinned_sha256)
    for item in connection.stream("install", INSTALL_S, key=key, wheel=wheel_path, lock=lock_path):
        if item.get("line"):
            say(item["line"])
    return Environment(item["path"], tuple(item["installed"]))


def is_installed(connection: Connection) -> bool:
    """Return whether the environment that would be installed is ready."""
    return connection.digest(f"envs/{_key(connection)}/ready") is not None


def installing(name: str) -> str:
    """Return the message before the minutes that pip takes on the host *name*."""
    return f"installing gatekeeper and its libraries on {name}: this takes minutes, but only once"


def _key(connection: Connection) -> str:
    """Name an environment by everything it is made of."""
    _check_platform(connection)
    pinned_sha256 = hashlib.sha256(lock()).hexdigest()
    parts = (build_wheel().sha256, pinned_sha256, _python(connection), connection.hello["machine"])
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def _check_platform(connection: Connection) -> None:
    """Refuse a host whose system or processor the lock file has no packages for."""
    system, machine = connection.hello["system"], connection.hello["machine"]
    if (system, machine) in PLATFORMS:
        return
    if system == "Darwin":
        raise HostLacksError(
            f"{connection.host}: this Mac's Python is for Intel ({machine}); MLX and the lock file need Apple silicon",
            hint="on Apple silicon set `python` in hosts.toml to a native one (brew install python); on an Intel Mac "
            "install gatekeeper for its servers and name the folder: `environment` in hosts.toml",
        )
    hint = "install this version of gatekeeper there, and name its folder: `environment` in hosts.toml"
    raise HostLacksError(f"{connection.host}: the lock file has no packages for {system} on {machine}", hint=hint)


def _python(connection: Connection) -> str:
    """Return the version of the Python that environments are made with on the remote host."""
    hello = connection.hello
    if capable := hello["capable_python"]:
        version: str = hello["pythons"][capable]
        return version
    if hello["without_venv"]:
        message = f"{connection.host}: {hello['without_venv'][0]} cannot create environments (no venv or no ensurepip)"
        hint = "run apt-get install python3-venv there, or set another `python` in hosts.toml"
        raise HostLacksError(message, hint=hint)
    oldest = ".".join(str(part) for part in OLDEST_PYTHON)
    pythons = ", ".join(f"{path} is {version}" for path, version in hello["pythons"].items()) or "none was found"
    hint = "run brew install python there, or set `python` in hosts.toml"
    raise HostLacksError(f"{connection.host}: gatekeeper needs Python {oldest} or newer there; {pythons}", hint=hint)
