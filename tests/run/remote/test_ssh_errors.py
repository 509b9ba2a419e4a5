"""Every way a connection fails, caused for real, is one reason and one next step."""

import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gatekeeper.core.errors import InputError
from gatekeeper.run.remote import ssh as ssh_module
from gatekeeper.run.remote.ssh import COMMAND, Connection, agent_program
from gatekeeper.run.remote.ssh_errors import SshError
from tests.builders.ssh_server import Server, free_port, key
from tests.run.remote.conftest import Serve

MOST_S = 60.0


def refusal(host: str = "mini", *, connect_timeout: float = 10.0) -> SshError:
    """Return why there is no connection."""
    with pytest.raises(SshError) as refused:
        Connection(host, connect_timeout=connect_timeout)
    assert 3 == refused.value.exit_code
    assert refused.value.hint
    assert "{" not in refused.value.message + refused.value.hint
    return refused.value


def test_refused(serve: Serve) -> None:
    """
    A machine without an ssh server refuses the connection.
    """
    serve().prefer(f"Port {free_port()}")

    assert "refused" == refusal().reason


def test_an_unknown_name(serve: Serve) -> None:
    """
    A misspelt name has another reason than a machine that is down.
    """
    serve().prefer("HostName no-such-mac.invalid")

    assert "unresolvable" == refusal().reason


def test_no_route(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without any network the reason is `no_route`: ssh runs in a network namespace of its own.
    """
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("cannot make a network namespace")
    server = serve()
    monkeypatch.setenv("GATEKEEPER_SSH", shlex.join([*alone, *shlex.split(server.words)]))

    assert "no_route" == refusal().reason


def test_a_machine_that_hangs(serve: Serve) -> None:
    """
    A port that is open and silent is given up after the connect timeout.
    """
    server = serve()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        server.prefer(f"Port {deaf.getsockname()[1]}")

        assert "timed_out" == refusal(connect_timeout=1).reason


def test_an_unknown_host_key(serve: Serve) -> None:
    """
    An unknown host is not trusted, without any question.
    """
    serve().trust(None)

    refused = refusal()

    assert "host_key_unknown" == refused.reason
    assert "ssh mini" in refused.hint


def test_a_changed_host_key(serve: Serve) -> None:
    """
    A host that shows another key than before has another reason than an unknown one.
    """
    server = serve()
    key(server.root / "other")
    server.trust(server.root / "other.pub")

    refused = refusal()

    assert "host_key_changed" == refused.reason
    assert f"{server.known_hosts}:1" in refused.message


@pytest.fixture
def behind(serve: Serve) -> tuple[Server, Server]:
    """Put one server behind another: the client reaches `mini` through `hop` alone."""
    hop = serve()
    through = hop.config.read_text().replace("Host mini\n", "Host hop\n")
    mini = serve()
    mini.prefer("ProxyJump hop")
    mini.config.write_text(mini.config.read_text() + through)
    return hop, mini


def test_a_machine_behind_a_jump_host(behind: tuple[Server, Server]) -> None:
    """
    The user's own ssh knows the way: both machines see a connection, and the agent speaks from the second.
    """
    hop, mini = behind

    with Connection("mini") as connection:
        home = connection.hello["home"]
        sessions = [server.freeze() for server in (hop, mini)]  # not cut: the other would be gone, too

    assert str(mini.state) == home
    assert all(sessions)


@pytest.mark.parametrize("host_down", ["hop", "mini"])
def test_trouble_with_a_jump_host_quotes_what_failed(behind: tuple[Server, Server], host_down: str) -> None:
    """
    Whichever of the two is down, ssh's own first line about it is quoted, and the jump host is mentioned.
    """
    behind[host_down == "mini"].stop()

    refused = refusal()

    assert "refused" == refused.reason
    assert refused.message.startswith("mini, or a jump host")
    assert "Connection refused" in refused.message


def test_an_unknown_jump_host(behind: tuple[Server, Server]) -> None:
    """
    An unknown key of a jump host is not trusted either.
    """
    behind[0].trust(None)

    assert "host_key_unknown" == refusal().reason


def test_a_key_it_does_not_accept(serve: Serve) -> None:
    """
    A key the host does not accept is reported, with what to do.
    """
    server = serve()
    key(server.root / "stranger")
    server.config.write_text(
        server.config.read_text().replace(str(server.root / "user"), f"{server.root / 'stranger'}")
    )

    refused = refusal()

    assert "permission_denied" == refused.reason
    assert "ssh-copy-id mini" in refused.hint


def test_a_password_is_never_asked_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A server that wants a password gets none and ssh does not wait: on a terminal, behind a jump host, and even where
    BatchMode is off.
    """
    server = serve("PubkeyAuthentication no", "PasswordAuthentication yes", "KbdInteractiveAuthentication yes")
    before = server.config.read_text()
    jump = f"Host behind\n  HostName 127.0.0.1\n  ProxyJump mini\n  UserKnownHostsFile {server.known_hosts}\n"
    server.config.write_text(f"{jump}{before}")
    script = "import sys\nfrom gatekeeper.run.remote.ssh import Connection\nConnection(sys.argv[1])"

    for host, option in (("mini", "BatchMode=yes"), ("behind", "BatchMode=yes"), ("mini", "BatchMode=no")):
        monkeypatch.setenv("GATEKEEPER_SSH", f"{server.words} -o {option}")
        terminal_text = on_a_terminal([sys.executable, "-c", script, host])

        assert "SshError" in terminal_text
        assert not re.search(r"password:|passphrase", terminal_text, re.IGNORECASE)


def on_a_terminal(argv: list[str]) -> str:
    """Run *argv* with a terminal of its own, without input; return all that appears there."""
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover
        os.execv(argv[0], argv)  # noqa: S606
    output, end = b"", time.monotonic() + MOST_S
    while time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            try:
                chunk = os.read(terminal, 4096)
            except OSError:  # on Linux: the last process on the terminal has ended
                chunk = b""
            if not chunk:
                break
            output += chunk
    else:
        os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(terminal)
    return output.decode(errors="replace")


def test_no_ssh_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without an ssh program the command line is wrong, not the remote machine.
    """
    monkeypatch.setenv("GATEKEEPER_SSH", "/nowhere/ssh -v")

    with pytest.raises(InputError, match="/nowhere/ssh") as refused:
        Connection("mini")

    assert 2 == refused.value.exit_code


@pytest.mark.parametrize("noise", ["echo Welcome to mini!", "head -c 300000 /dev/zero", "printf 'gatekeeper-agent 1'"])
def test_noise_from_login_files_is_read_over(serve: Serve, noise: str) -> None:
    """
    What login files write before a command starts is no answer of the agent's.
    """
    serve(f'ForceCommand {noise}; eval "$SSH_ORIGINAL_COMMAND"')

    with Connection("mini") as connection:
        assert 1 == connection.hello["agent"]


def test_noise_without_end_is_given_up(serve: Serve) -> None:
    """
    Login files that never stop are named as the cause.
    """
    serve("ForceCommand yes")

    assert "noise" == refusal().reason


def test_login_files_that_wait_are_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A shell that never starts the command is connected and silent.
    """
    serve("ForceCommand sleep 600")
    monkeypatch.setattr(ssh_module, "GREETING_S", 1.0)

    assert "silent" == refusal(connect_timeout=1).reason


def test_no_python_there(serve: Serve) -> None:
    """
    A machine without Python is reported in a sentence.
    """
    if any(Path(folder, "python3").exists() for folder in ("/opt/homebrew/bin", "/usr/local/bin")):
        pytest.skip("this machine's Python stands where it is always found")
    serve(PATH="/nowhere")

    refused = refusal()

    assert "no_python" == refused.reason
    assert "3.11" in refused.hint


def test_a_python_that_is_broken_is_passed_over(serve: Serve, tmp_path: Path) -> None:
    """
    A python3 that only complains, as one of a version manager does, is not the last word.
    """
    (tmp_path / "python3").write_text("#!/bin/sh\necho no version is set >&2\nexit 127\n")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    serve(PATH=str(tmp_path))

    with Connection("mini") as connection:
        assert 1 == connection.hello["agent"]


@contextmanager
def stopped_reading(connection: Connection) -> Iterator[None]:
    yield
    with pytest.raises(SshError):
        connection.request("clock")


def test_a_connection_that_is_cut_is_an_error_of_the_link(serve: Serve) -> None:
    """
    A cut connection ends a question with a reason, and every later question as well.
    """
    server = serve()

    with Connection("mini") as connection, stopped_reading(connection):
        assert 0 < server.cut()
        with pytest.raises(SshError) as cut:
            connection.request("clock")

    assert cut.value.reason in {"closed", "ended"}


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "tcsh", "csh"])
def test_any_login_shell_reads_the_command(shell: str) -> None:
    """
    The one constant text a remote shell reads means the same to every shell.
    """
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    sent = agent_program()

    ran = subprocess.run(
        [program, "-c", COMMAND],
        input=b"%d\n%s%s\n" % (len(sent), sent, b"nonce"),
        capture_output=True,
        timeout=60,
        check=True,
    )

    assert b"\ngatekeeper-agent nonce\n" == ran.stdout


def test_what_login_files_complain_of_is_not_why_a_link_broke(serve: Serve) -> None:
    """
    A login file that prints "Permission denied" does not turn a cut connection into a wrong key.
    """
    server = serve('ForceCommand echo "cat: secret: Permission denied" >&2; eval "$SSH_ORIGINAL_COMMAND"')

    with Connection("mini") as connection:
        server.cut()
        with pytest.raises(SshError) as cut:
            connection.request("clock")

    assert "permission_denied" != cut.value.reason


def test_an_agent_that_stops_answering_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A remote process that hangs while the connection lives ends the connection with the reason `silent`.
    """
    server = serve()

    with Connection("mini") as connection:
        monkeypatch.setattr(ssh_module, "SILENCE_S", 0.5)
        agents = [pid for pid, words in server.commands().items() if "sys.stdin.buffer" in words]
        for agent in agents:
            os.kill(agent, signal.SIGSTOP)
        with pytest.raises(SshError) as silent:
            connection.request("clock")
        for agent in agents:
            os.kill(agent, signal.SIGCONT)

    assert agents
    assert "silent" == silent.value.reason


def test_a_link_alone_does_not_go_over_a_shared_connection_that_hangs(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The connection that the user's commands share hangs, as after a closed laptop: a connection over it is
    silent, and one alone is not.
    """
    server = serve()
    # A short path: it becomes the name of a socket.
    with tempfile.TemporaryDirectory(prefix="gk") as folder:
        server.prefer(f"ControlPath {folder}/s", "ControlMaster auto", "ControlPersist 60")
        ssh = shlex.split(server.words)
        subprocess.run([*ssh, "mini", "true"], check=True, timeout=MOST_S, stderr=subprocess.DEVNULL)
        control = subprocess.run(
            [*ssh, "-O", "check", "mini"], check=True, timeout=MOST_S, capture_output=True, text=True
        )
        master = int(re.findall(r"pid=(\d+)", control.stderr + control.stdout)[0])
        os.kill(master, signal.SIGSTOP)
        try:
            with Connection("mini", alone=True) as connection:
                assert connection.request("clock")
            monkeypatch.setattr(ssh_module, "GREETING_S", 0.5)
            assert "silent" == refusal(connect_timeout=1).reason
        finally:
            os.kill(master, signal.SIGKILL)
