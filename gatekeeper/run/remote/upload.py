"""The parcel: all that a run is made from, laid out so that every path in the SLO means the same on another machine."""

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from gatekeeper.backends import own_drafts
from gatekeeper.backends.models import artifacts
from gatekeeper.core import files, inputs, toml_file
from gatekeeper.core.errors import InputError
from gatekeeper.core.inputs import Inputs
from gatekeeper.core.manifest import Model, digest_of, sha256
from gatekeeper.core.units import show_bytes
from gatekeeper.run.remote.reconnect import Say
from gatekeeper.run.remote.ssh import Link
from gatekeeper.run.remote.ssh_errors import FarError

ROOT = "inputs"
"""The folder of a job that everything lies in."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One model of the SLO, as far as this machine knows it."""

    name: str
    place: str | None
    """Where the SLO looks for it in the job's folder; None where it is no relative path."""
    here: Model | None
    """None: this machine does not have it."""
    path: Path | None = None

    def contents(self) -> Iterator[tuple[str, str, Path]]:
        """Yield the name, digest and path of each of its files here."""
        if self.here is None or self.path is None:
            return
        folder = self.path if self.path.is_dir() else self.path.parent
        for name, digest in sorted(self.here.files.items()):
            yield name, digest, folder / name


@dataclass(frozen=True, slots=True)
class Parcel:
    """What travels."""

    given: Inputs
    slo: str
    """Where the SLO file lies in the job's folder."""
    files: Mapping[str, bytes]
    """By their place in the job's folder."""
    models: tuple[Wanted, ...]
    programs: frozenset[str] = frozenset()
    """Which of the files may be executed."""

    @property
    def sha256(self) -> str:
        """Return one digest for all that travels; models travel by their own."""
        return digest_of({name: sha256(content) for name, content in self.files.items()})

    def place(self, name: str) -> str:
        """Return where a path of the SLO lies in the job's folder."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.slo), name))


def pack(slo_path: Path) -> Parcel:
    """Read an SLO file and everything it names; what is wrong with it, or can not travel, is an InputError."""
    given = inputs.read(slo_path)
    wanted = dict(_named(given, slo_path))
    subject = given.slo.subject
    models = [name for name in (subject.target, *subject.drafts) if not name.startswith(("/", "~"))]
    depth = max(_ups(name) for name in (*wanted, *models, ""))
    folders = given.base.resolve().parts[1:]
    if depth > len(folders):
        raise InputError(f"{slo_path}: a path leads out of the file system", hint="take a `..` out of it")
    # The folders keep their names, so that ../models/x and ../../project/models/x stay one place.
    base = posixpath.join(ROOT, *folders[len(folders) - depth :])
    slo = posixpath.join(base, slo_path.name)
    files = {slo: _read(slo_path, slo_path)}
    for name, content in wanted.items():
        place = posixpath.normpath(posixpath.join(base, name))
        if files.get(place, content) != content:
            raise InputError(f"{slo_path}: two files would lie at {place}", hint="give one of them another name")
        files[place] = content
    places = {posixpath.normpath(posixpath.join(base, name)): given.base / name for name in wanted}
    programs = frozenset(place for place, path in places.items() if os.access(path, os.X_OK))
    return Parcel(given, slo, files, tuple(_models(given, base)), programs)


def _named(given: Inputs, slo_path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each file that travels beside the SLO, by its path relative to it."""
    slo, text = given.slo, given.texts[inputs.SLO_NAME]
    for number, workload in enumerate(slo.workload):
        _relative(workload.canaries, f"{slo_path}: line {toml_file.line_of(text, ('workload', number, 'canaries'))}")
        yield workload.canaries, _read(given.base / workload.canaries, slo_path)
    profile = slo.soak.profile
    source = inputs.find_profile(profile, given.base, slo_path)
    if profile.endswith(".toml"):
        _relative(profile, f"{slo_path}: line {toml_file.line_of(text, ('soak', 'profile'))}")
    else:
        # The first place a profile is looked for: there it is this one, whatever is shipped over there.
        profile = f"profiles/{profile}.toml"
    yield profile, _read(source, slo_path)
    subject = slo.subject
    if subject.script is not None:
        _relative(subject.script, f"{slo_path}: line {toml_file.line_of(text, ('subject', 'script'))}")
        yield subject.script, _read(given.base / subject.script, slo_path)
    if subject.backend == "worker":  # its words are run in the SLO's folder, and may name files there
        for word in (*(subject.command or ()), *(subject.plain_command or ()), *subject.args):
            path = given.base / word
            if "{" not in word and not Path(word).is_absolute() and path.is_file():
                yield word, _read(path, slo_path)


def _models(given: Inputs, base: str) -> Iterator[Wanted]:
    subject = given.slo.subject
    if subject.backend == "scripted":
        return
    hashes = files.HashCache(files.user_hash_cache())
    drafts = (name for name in subject.drafts if name not in own_drafts(subject.backend))
    for name in (subject.target, *drafts):
        whole = name.startswith(("/", "~"))
        place = None if whole else posixpath.normpath(posixpath.join(base, name))
        try:
            path = artifacts.find(name, given.base, subject.backend)
        except InputError:
            yield Wanted(name, place, None)
        else:
            yield Wanted(name, place, artifacts.freeze(name, path, hashes), path)


def is_path(wanted: Wanted, base: Path) -> bool:
    """Tell whether the SLO names a model by its path: it has to be brought, or be mapped in the hosts file."""
    return (base / wanted.name).expanduser().exists() or wanted.name.startswith((".", "/", "~"))


def _relative(name: str, where: str) -> None:
    if name.startswith(("/", "~")):
        raise InputError(
            f"{where}: '{name}' is a whole path of this machine", hint="write it relative to the SLO file; it travels"
        )


def _ups(name: str) -> int:
    """Return how many folders a relative path climbs."""
    return sum(part == ".." for part in posixpath.normpath(name).split("/"))


def _read(path: Path, slo_path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{slo_path}: cannot read {path}: {error.strerror}", hint="check the path") from error


ATTEMPTS = 4
"""How often one file is sent: a line that damages the same file so often will not bring it."""


def folder(run_id: str) -> str:
    """Return the folder of a job below the far home."""
    return f"jobs/{run_id}"


def missing(link: Link, parcel: Parcel, mapped: Mapping[str, str]) -> list[Wanted]:
    """Return the models by path that this machine has and the other one was never sent."""
    return [
        one
        for one in parcel.models
        if _travels(one, parcel, mapped) and not link.ask("held", path=_stamp(one)).get("sha256")
    ]


def size(models: Sequence[Wanted]) -> int:
    """Return how many bytes would be sent."""
    return sum(path.stat().st_size for one in models for _, _, path in one.contents())


def send_models(link: Link, models: Sequence[Wanted], say: Say) -> None:
    """Send models, each file once, by the digest of the whole; a stamp is written when all of it is there."""
    for one in models:
        say(f"model {one.name}", f"sending {show_bytes(size([one]))}")
        for name, digest, path in one.contents():
            place = f"{_shelf(one)}/{name}"
            if link.ask("held", path=place).get("sha256") != digest:
                _put(link, place, path, digest)
        stamp = one.name.encode()
        _put(link, _stamp(one), stamp, sha256(stamp))


def deliver(link: Link, parcel: Parcel, run_id: str, mapped: Mapping[str, str]) -> None:
    """Lay the parcel into the job's folder, with links to the models that lie on the other machine already."""
    for place, content in parcel.files.items():
        digest = sha256(content)
        at = f"{folder(run_id)}/{place}"
        if link.ask("held", path=at).get("sha256") != digest:
            _put(link, at, content, digest, mode=0o755 if place in parcel.programs else 0o644)
    for one in parcel.models:
        if one.name in mapped and one.place is not None:
            link.ask("link", path=f"{folder(run_id)}/{one.place}", to=mapped[one.name])
        elif _travels(one, parcel, mapped) and link.ask("held", path=_stamp(one)).get("sha256"):
            _lay(link, one, run_id)


def _put(link: Link, place: str, content: bytes | Path, digest: str, *, mode: int = 0o644) -> None:
    """Send a file; one that arrives damaged is sent again."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with content.open("rb") if isinstance(content, Path) else BytesIO(content) as source:
                link.put(place, source, sha256=digest, mode=mode)
        except FarError as error:
            if error.kind != "damaged" or attempt == ATTEMPTS:
                raise
        else:
            return


def _lay(link: Link, one: Wanted, run_id: str) -> None:
    at = f"{folder(run_id)}/{one.place}"
    if one.path is not None and one.path.is_dir():
        link.ask("link", path=at, to=_shelf(one))
        return
    for name, _, _ in one.contents():  # a GGUF file, or all parts of a split one
        link.ask("link", path=posixpath.join(posixpath.dirname(at), name), to=f"{_shelf(one)}/{name}")


def _travels(one: Wanted, parcel: Parcel, mapped: Mapping[str, str]) -> bool:
    return one.here is not None and one.place is not None and one.name not in mapped and is_path(one, parcel.given.base)


def _shelf(one: Wanted) -> str:
    return f"models/{one.here.digest if one.here is not None else ''}"


def _stamp(one: Wanted) -> str:
    return f"{_shelf(one)}.complete"
