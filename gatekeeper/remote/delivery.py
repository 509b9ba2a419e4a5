"""The delivery: a parcel and its models laid into the folder of a job, each file checked where it arrives."""

import posixpath
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

from gatekeeper.remote.link import Link
from gatekeeper.remote.parcel import Parcel, Wanted, is_path
from gatekeeper.remote.tether import Say
from gatekeeper.remote.trouble import FarError
from gatekeeper.terms.manifest import sha256
from gatekeeper.terms.units import show_bytes

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
