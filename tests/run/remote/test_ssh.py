"""The link: one real ssh connection with the agent at its far end."""

import hashlib
import io
import os

import pytest

from gatekeeper.run.remote.ssh import Link
from gatekeeper.run.remote.ssh_errors import FarError
from tests.run.remote.conftest import Serve


def test_hello_says_who_is_there(serve: Serve) -> None:
    """
    The agent answers from the far home, with a clock that agrees and a Python that may be used.
    """
    server = serve()

    with Link("far") as link:
        hello = link.hello

    assert (1, str(server.state)) == (hello["agent"], hello["home"])
    assert abs(hello["skew_s"]) <= hello["round_trip_s"] / 2 + 0.1
    assert hello["capable_python"]


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_files_go_there_and_come_back(serve: Serve, size: int) -> None:
    """
    What is put is what is got, byte for byte, from any offset on.
    """
    server, content = serve(), os.urandom(size)
    digest = hashlib.sha256(content).hexdigest()

    with Link("far") as link:
        link.put("parcels/a file", content, sha256=digest)
        back, rest = io.BytesIO(), io.BytesIO()
        told = link.get("parcels/a file", back)
        link.get("parcels/a file", rest, offset=size // 2)
        held = link.ask("held", path="parcels/a file")

    assert (content, digest, content[size // 2 :]) == (back.getvalue(), told, rest.getvalue())
    assert {"size": size, "sha256": digest} == held
    assert content == (server.state / "parcels" / "a file").read_bytes()


def test_a_damaged_file_never_appears(serve: Serve) -> None:
    """
    A file whose digest is not the promised one is refused and leaves nothing behind; the link goes on.
    """
    server = serve()

    with Link("far") as link:
        with pytest.raises(FarError) as refused:
            link.put("parcels/x", b"other", sha256="0" * 64)
        assert link.ask("clock")

    assert "damaged" == refused.value.kind
    assert [] == list((server.state / "parcels").iterdir())
