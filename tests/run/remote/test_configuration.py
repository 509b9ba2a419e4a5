"""The user's own ssh configuration: the way it names is gone, what is meant for a person at a terminal is not."""

import subprocess
from contextlib import ExitStack

import pytest

from gatekeeper.run.remote.ssh import Link
from tests.builders.ssh_server import free_port
from tests.run.remote.conftest import Serve


def test_what_a_person_wants_on_a_terminal_does_not_disturb(serve: Serve) -> None:
    """
    A host entry with a terminal, a command, forwardings that fail and little to say still gives a link.
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

    with Link("far") as link:
        assert link.hello["agent"] == 1

    assert not (server.root / "executed").exists()


def test_a_jump_host_is_gone_through(serve: Serve) -> None:
    """
    A machine that is only seen from another one is reached through it, by the user's own configuration.
    """
    server = serve()
    far = server.config.read_text()
    server.config.write_text(far + far.replace("Host far\n", "Host behind\n  ProxyJump far\n"))

    with Link("behind") as link:
        assert link.hello["agent"] == 1

    assert 2 <= (server.root / "sshd.log").read_text().count("Accepted publickey")


def test_a_shared_connection_is_shared(serve: Serve) -> None:
    """
    Where the user shares connections, two links use one, and closing a link neither waits for it nor ends it.
    """
    server = serve()
    socket = server.root / "c"
    if len(str(socket)) > 90:
        pytest.skip("the path of a socket would be too long here")
    server.prefer("ControlMaster auto", f"ControlPath {socket}", "ControlPersist 60")
    with ExitStack() as stack:
        leave = ["ssh", "-F", str(server.config), "-O", "exit", "far"]
        stack.callback(lambda: subprocess.run(leave, check=False, timeout=30))

        for _ in range(2):
            with Link("far") as link:
                assert link.hello["agent"] == 1

        assert 1 == (server.root / "sshd.log").read_text().count("Accepted publickey")


def test_a_port_and_a_user_may_be_written_out(serve: Serve) -> None:
    """
    ssh://USER@HOST:PORT names what the configuration leaves out.
    """
    server = serve()
    user = next(line.split()[1] for line in server.config.read_text().splitlines() if "User " in line)
    server.prefer(f"Port {free_port()}", "User nobody-4711")

    with Link(f"ssh://{user}@far:{server.port}") as link:
        assert user == link.hello["user"]
