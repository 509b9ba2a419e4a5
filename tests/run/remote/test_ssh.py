"""One ssh connection with the agent: files both ways, and the user's own ssh configuration."""

import hashlib
import io
import os
import subprocess
from contextlib import ExitStack

import pytest

from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.ssh_errors import AgentError
from tests.builders.ssh_server import free_port
from tests.run.remote.conftest import Serve


def test_hello_says_who_is_there(serve: Serve) -> None:
    """
    The agent answers from the remote home, with a clock that agrees and a Python that may be used.
    """
    server = serve()

    with Connection("mini") as connection:
        hello = connection.hello

    assert (1, str(server.state)) == (hello["agent"], hello["home"])
    assert abs(hello["skew_s"]) <= hello["round_trip_s"] / 2 + 0.1
    assert hello["capable_python"]


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_files_go_there_and_come_back(serve: Serve, size: int) -> None:
    """
    A file is downloaded as it was uploaded, byte for byte, and its digest returned.
    """
    server, content = serve(), os.urandom(size)
    digest = hashlib.sha256(content).hexdigest()

    with Connection("mini") as connection:
        connection.upload("parcels/a file", content, sha256=digest)
        back = io.BytesIO()
        downloaded = connection.download("parcels/a file", back, size)
        remote_digest = connection.digest("parcels/a file")

    assert (content, digest, digest) == (back.getvalue(), downloaded, remote_digest)
    assert content == (server.state / "parcels" / "a file").read_bytes()


def test_a_damaged_file_never_appears(serve: Serve) -> None:
    """
    A file with another digest is refused and leaves nothing behind; the connection lives on.
    """
    server = serve()

    with Connection("mini") as connection:
        with pytest.raises(AgentError) as refused:
            connection.upload("parcels/x", b"other", sha256="0" * 64)
        assert connection.request("clock")

    assert "damaged" == refused.value.kind
    assert [] == list((server.state / "parcels").iterdir())


def test_settings_for_a_terminal_do_not_disturb(serve: Serve) -> None:
    """
    A host entry with a terminal, a command, forwardings that fail and a quiet log still gives a connection.
    """
    server = serve()
    server.prefer(
        "RequestTTY force",
        "RemoteCommand tmux attach",
        "ExitOnForwardFailure yes",
        f"LocalForward {server.port} 127.0.0.1:1",  # taken: by the server itself
        "LogLevel QUIET",
        "PermitLocalCommand yes",
        f"LocalCommand touch '{server.root}/executed'",
    )

    with Connection("mini") as connection:
        assert connection.hello["agent"] == 1

    assert not (server.root / "executed").exists()


def test_a_jump_host_of_the_configuration_is_used(serve: Serve) -> None:
    """
    A machine that is only seen from another one is reached through it, by the user's own configuration.
    """
    server = serve()
    mini = server.config.read_text()
    server.config.write_text(mini + mini.replace("Host mini\n", "Host behind\n  ProxyJump mini\n"))

    with Connection("behind") as connection:
        assert connection.hello["agent"] == 1

    assert 2 <= (server.root / "sshd.log").read_text().count("Accepted publickey")


def test_a_shared_connection_is_shared(serve: Serve) -> None:
    """
    Where the user shares connections, two links use one, and closing a connection neither waits for it nor ends it.
    """
    server = serve()
    socket = server.root / "c"
    if len(str(socket)) > 90:
        pytest.skip("the path of a socket would be too long")
    server.prefer("ControlMaster auto", f"ControlPath {socket}", "ControlPersist 60")
    with ExitStack() as stack:
        leave = ["ssh", "-F", str(server.config), "-O", "exit", "mini"]
        stack.callback(lambda: subprocess.run(leave, check=False, timeout=30))

        for _ in range(2):
            with Connection("mini") as connection:
                assert connection.hello["agent"] == 1

        assert 1 == (server.root / "sshd.log").read_text().count("Accepted publickey")


def test_a_port_and_a_user_may_be_written_out(serve: Serve) -> None:
    """
    ssh://USER@HOST:PORT names what the configuration leaves out.
    """
    server = serve()
    user = next(line.split()[1] for line in server.config.read_text().splitlines() if "User " in line)
    server.prefer(f"Port {free_port()}", "User nobody-4711")

    with Connection(f"ssh://{user}@mini:{server.port}") as connection:
        assert user == connection.hello["user"]
