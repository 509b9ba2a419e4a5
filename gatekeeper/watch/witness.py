"""The witness: asks, look after look, whether it is still the certified models that answer."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gatekeeper.artifacts import Hashes
from gatekeeper.terms.manifest import Manifest
from gatekeeper.terms.quote import quote
from gatekeeper.watch import identity
from gatekeeper.watch.identity import Behind


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
        self._process = None if self._url is None else identity.behind(self._url, before)
        begun = self._process is not None and (before is None or _start(before) != _start(self._process))
        self._due, self.restarted = False, self._due or begun
        return self._closely() if self.restarted else None

    def _closely(self) -> str | None:
        self._models = {} if self._process is None else identity.started_with(self._process, self._hashes)
        return (
            identity.foreign(self._manifest, self._models)
            or identity.changed(self._manifest, self._places, self._hashes)
            or identity.misnamed(identity.listed(self._listing()), self._names)
        )

    def heard(self, name: str | None, *, sound: bool) -> str | None:
        """Say if the *name* an answer came under is another one; after a fault the server is looked at again."""
        self._due = self._due or not sound
        if not sound:
            return None
        name = None if name is None else quote(name)
        own = identity.name_of(name)
        if own is not None and not self._names:
            # Nobody told the certified name: who answers first is who has to go on answering.
            self._names = frozenset({own})
        return identity.misnamed(name, self._names)

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
