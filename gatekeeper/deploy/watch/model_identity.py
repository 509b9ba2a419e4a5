"""Identity: which models answer, told by the server, by the process behind its port, and by the files it was given."""

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from gatekeeper.backends.models import artifacts, locate
from gatekeeper.backends.models.artifacts import Hashes
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.text import quote

_NAMELESS = frozenset({"default_model", "default", ""})
"""What servers write in the place of a name."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The process that listens where the server is reached; another one is another start."""

    pid: int
    begun: float
    argv: tuple[str, ...]
    folder: Path | None
    """Where its relative paths begin."""


def behind(url: str, known: Behind | None = None) -> Behind | None:
    """Return the process behind a local *url*; None for a remote one, or where the system does not say.

    *known* is looked at first: most of the time it still listens.
    """
    where = urlsplit(url)
    port = where.port or (443 if where.scheme == "https" else 80)
    if not is_local(where.hostname or ""):
        return None
    if known is not None and (still := _listener(known.pid, port)) is not None and still.begun == known.begun:
        return still
    for pid in psutil.pids():
        if (found := _listener(pid, port)) is not None:
            return found
    return None


def is_local(host: str) -> bool:
    """Tell whether *host* is this machine, as far as its name says."""
    return host in {"localhost", "::1", "0.0.0.0", socket.gethostname()} or host.startswith("127.")  # noqa: S104 (read, not bound)


def _listener(pid: int, port: int) -> Behind | None:
    try:
        process = psutil.Process(pid)
        if not any(
            one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in process.net_connections("tcp")
        ):
            return None
        argv, begun = tuple(process.cmdline()), process.create_time()
    except (psutil.Error, OSError, RuntimeError):  # another user's, gone meanwhile, or a system that surprises psutil
        return None
    try:
        folder: Path | None = Path(process.cwd())
    except (psutil.Error, OSError):
        folder = None
    return Behind(pid, begun, argv, folder)


def started_with(process: Behind, hashes: Hashes) -> dict[str, str]:
    """Return the digest of every model the command line names, by the word that names it.

    A word that is a model's folder or file but can not be read as one has the digest "".
    """
    found: dict[str, str] = {}
    for word in _words(process.argv):
        path = _model_at(word, process.folder)
        if path is not None:
            try:
                found[word] = artifacts.freeze(word, path, hashes).digest
            except (InputError, OSError):
                found[word] = ""
    return found


def _words(argv: Sequence[str]) -> Iterable[str]:
    """Yield the words of a command line that may name something, and what stands behind the = of an option."""
    for word in argv[1:]:
        if not word.startswith("-"):
            yield word
        elif "=" in word:
            yield word.partition("=")[2]


def _model_at(word: str, folder: Path | None) -> Path | None:
    try:
        here = Path(word).expanduser()
        here = here if folder is None else folder / here
        if (here / "config.json").is_file() and next(here.glob("*.safetensors"), None) is not None:
            return here.resolve()
        if here.suffix == ".gguf" and here.is_file():
            return here
    except (OSError, ValueError, RuntimeError):  # a word that is no path at all
        return None
    parts = word.split("/")
    if len(parts) == 2 and all(parts) and parts[0] not in {".", "..", "~"}:
        return locate.in_hub_cache(word)
    return None


def foreign(manifest: Manifest, models: dict[str, str]) -> str | None:
    """Say which model on the server's command line the manifest does not know; None where all of them are certified."""
    certified = {model.digest for model in (manifest.target, *manifest.drafts) if model is not None}
    for word, digest in models.items():
        if digest not in certified:
            what = "can not be read as a model" if not digest else f"has the digest {digest[:12]}"
            return f"the server was started with {word}, which {what} and was not certified"
    if models and manifest.target is not None and manifest.target.digest not in models.values():
        return f"the server was started without the certified target '{manifest.target.name}'"
    return None


def changed(manifest: Manifest, places: dict[str, Path], hashes: Hashes) -> str | None:
    """Say which certified model is not on disk as it was; None where every one in *places* is."""
    for model in (manifest.target, *manifest.drafts):
        if model is None or model.name not in places:
            continue
        try:
            digest = artifacts.freeze(model.name, places[model.name], hashes).digest
        except (InputError, OSError) as error:
            return f"'{model.name}' can not be read: {getattr(error, 'message', error)}"
        if digest != model.digest:
            return f"'{model.name}' is on disk as {digest[:12]}, certified was {model.digest[:12]}"
    return None


def name_of(told: str | None) -> str | None:
    """Return a model's name without its place: servers tell a path, a hub id or a file; None where they tell none."""
    last = (told or "").rstrip("/").rpartition("/")[2].lower().removesuffix(".gguf")
    return None if last in _NAMELESS else last


def misnamed(told: str | None, known: frozenset[str]) -> str | None:
    """Say that the server answers as somebody else; None where it gives a *known* name, or none."""
    name = name_of(told)
    if name is None or not known or name in known:
        return None
    return f"the server answers as '{told}', certified was {' or '.join(sorted(known))}"


def listed(document: str | None) -> str | None:
    """Return the name of the one model a server lists under /v1/models; None where it lists none or several."""
    try:
        names = [quote(str(one["id"])) for one in loads(document or "{}").get("data") or ()]
    except (JSONDecodeError, AttributeError, KeyError, TypeError):
        return None
    return names[0] if len(names) == 1 else None


class Witness:
    """Looks closely at the start and whenever the server was started again; it hears every answer."""

    def __init__(
        self,
        manifest: Manifest,
        *,
        url: str | None,
        places: Mapping[str, Path],
        names: frozenset[str],
        hashes: Hashes,
        listing: Callable[[], str | None],
    ) -> None:
        """Watch what answers at *url*; *listing* fetches its list of models."""
        self._manifest, self._url, self._places = manifest, url, dict(places)
        self._names, self._hashes, self._listing = names, hashes, listing
        self._process: Behind | None = None
        self._models: dict[str, str] = {}
        self._due = True
        self.restarted = False
        """Whether the last look found a server that had just begun."""

    def pids(self) -> tuple[int, ...]:
        """Return the process of the server, where it runs on this machine."""
        return (self._process.pid,) if self._process is not None else ()

    def look(self) -> str | None:
        """Say why what answers is not what was certified; None where nothing speaks against it."""
        before = self._process
        self._process = None if self._url is None else behind(self._url, before)
        begun = self._process is not None and (before is None or _start(before) != _start(self._process))
        self._due, self.restarted = False, self._due or begun
        return self._closely() if self.restarted else None

    def _closely(self) -> str | None:
        self._models = {} if self._process is None else started_with(self._process, self._hashes)
        return (
            foreign(self._manifest, self._models)
            or changed(self._manifest, self._places, self._hashes)
            or misnamed(listed(self._listing()), self._names)
        )

    def heard(self, name: str | None, *, sound: bool) -> str | None:
        """Say if the *name* an answer came under is another one; after a fault the server is looked at again."""
        self._due = self._due or not sound
        if not sound:
            return None
        name = None if name is None else quote(name)
        own = name_of(name)
        if own is not None and not self._names:
            # Nobody told the certified name: who answers first is who has to go on answering.
            self._names = frozenset({own})
        return misnamed(name, self._names)

    def document(self) -> dict[str, Any]:
        """Return who answers, as far as anybody tells."""
        return {
            "pid": self._process.pid if self._process is not None else None,
            "started_with": sorted(self._models),
            "on_disk": sorted(self._places),
            "names": sorted(self._names),
        }

    def told(self) -> str:
        """Say who answers, for people."""
        said = [f"process {self._process.pid}"] if self._process is not None else []
        said += [f"started with {', '.join(sorted(self._models))}"] if self._models else []
        said += [f"{', '.join(sorted(self._places))} on disk as certified"] if self._places else []
        said += [f"named {' or '.join(sorted(self._names))}"] if self._names else []
        return f"what answers: {'; '.join(said)}" if said else "nobody tells which models answer"


def _start(process: Behind) -> tuple[int, float]:
    return process.pid, process.begun
