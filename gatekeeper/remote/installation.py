"""The far environment: this very gatekeeper on another machine, with every library pinned and its versions recorded."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gatekeeper.remote.link import Link
from gatekeeper.remote.wheel import Wheel, wheel
from gatekeeper.terms.errors import HostLacksError

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
    return resources.files("gatekeeper.remote").joinpath(LOCK).read_bytes()


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
