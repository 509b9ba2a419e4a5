"""Scripts on a remote host: every way a connection fails, caused for real, and values that no shell reads."""

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
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gatekeeper.core.errors import InputError
from gatekeeper.run.remote.ssh import COMMAND, RemoteHost, RemoteScript
from gatekeeper.run.remote.ssh_errors import RemoteScriptError, SshError
from tests.builders.ssh_server import Server, free_port, key
from tests.run.remote.conftest import Serve

MOST_S = 60.0


def refusal(host: str = "mini", *, greeting_s: float = 30.0) -> SshError:
    """Return why there is no connection."""
    with pytest.raises(SshError) as refused:
        RemoteScript(host, "true", greeting_s=greeting_s)
    assert 3 == refused.value.exit_code
    assert refused.value.hint
    assert "{" not in refused.value.message + refused.value.hint
    return refused.value


def answers(host: str = "mini", *, alone: bool = False) -> bool:
    """Return whether a script runs on the host."""
    return RemoteHost(host, alone).run("echo answered", limit_s=60) == "answered\n"


def stranger(server: Server) -> None:
    """Have the client offer a key that the server does not know."""
    key(server.root / "stranger")
    text = server.config.read_text()
    server.config.write_text(text.replace(str(server.root / "user"), str(server.root / "stranger")))


def other_host_key(server: Server) -> None:
    key(server.root / "other")
    server.trust(server.root / "other.pub")


REFUSED: dict[str, tuple[Callable[[Server], object], str, str]] = {
    "no ssh server": (lambda server: server.prefer(f"Port {free_port()}"), "refused", ""),
    "a misspelt name": (lambda server: server.prefer("HostName no-such-mac.invalid"), "unresolvable", ""),
    "an unknown host key": (lambda server: server.trust(None), "host_key_unknown", "ssh mini"),
    "a changed host key": (other_host_key, "host_key_changed", "known_hosts:1"),
    "a key it does not accept": (stranger, "permission_denied", "ssh-copy-id mini"),
}
"""What is done to a server or its client, the reason of the refusal, and words of it."""


@pytest.mark.parametrize("name", REFUSED)
def test_each_refusal_has_its_reason(serve: Serve, name: str) -> None:
    """A machine that is down, a slip in its name, and keys that are not known have reasons of their own."""
    spoil, reason, words = REFUSED[name]
    spoil(serve())

    refused = refusal()

    assert reason == refused.reason
    assert words in refused.message + refused.hint


def test_no_route(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any network the reason is `no_route`: ssh runs in a network namespace of its own."""
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("cannot make a network namespace")
    monkeypatch.setenv("GATEKEEPER_SSH", shlex.join([*alone, *shlex.split(serve().words)]))

    assert "no_route" == refusal().reason


def test_a_machine_that_hangs(serve: Serve) -> None:
    """A port that is open and silent is given up after the connect timeout."""
    server = serve()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        server.prefer(f"Port {deaf.getsockname()[1]}", "ConnectTimeout 1")

        assert "timed_out" == refusal().reason


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
    """The user's own ssh knows the way: both machines see a connection, and the script runs on the second."""
    hop, mini = behind

    with RemoteHost("mini").open('echo "$HOME"; sleep 5') as script:
        home = script.read(1000, 10)
        sessions = [server.freeze() for server in (hop, mini)]  # not cut: the other would be gone, too

    assert f"{mini.home}\n".encode() == home
    assert all(sessions)


@pytest.mark.parametrize("host_down", ["hop", "mini"])
def test_trouble_with_a_jump_host_quotes_what_failed(behind: tuple[Server, Server], host_down: str) -> None:
    """Whichever of the two is down, ssh's own first line about it is quoted."""
    behind[host_down == "mini"].stop()

    refused = refusal()

    assert "refused" == refused.reason
    assert "Connection refused" in refused.message


def test_a_password_is_never_asked_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that wants a password gets none: on a terminal, behind a jump host, and with BatchMode off."""
    server = serve("PubkeyAuthentication no", "PasswordAuthentication yes", "KbdInteractiveAuthentication yes")
    before = server.config.read_text()
    jump = f"Host behind\n  HostName 127.0.0.1\n  ProxyJump mini\n  UserKnownHostsFile {server.known_hosts}\n"
    server.config.write_text(f"{jump}{before}")
    script = "import sys\nfrom gatekeeper.run.remote.ssh import RemoteScript\nRemoteScript(sys.argv[1], 'true')"

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
    """Without an ssh program the command line is wrong, not the remote machine."""
    monkeypatch.setenv("GATEKEEPER_SSH", "/nowhere/ssh -v")

    with pytest.raises(InputError, match="/nowhere/ssh") as refused:
        RemoteHost("mini").run("true", limit_s=10)

    assert 2 == refused.value.exit_code


@pytest.mark.parametrize("noise", ["echo Welcome to mini!", "head -c 300000 /dev/zero"])
def test_noise_from_login_files_is_read_over(serve: Serve, noise: str) -> None:
    """What login files write before a command starts is no output of the script."""
    serve(f'ForceCommand {noise}; eval "$SSH_ORIGINAL_COMMAND"')

    assert answers()


@pytest.mark.parametrize(("login", "reason"), [("yes", "noise"), ("sleep 600", "silent")])
def test_login_files_without_end_are_given_up(serve: Serve, login: str, reason: str) -> None:
    """Login files that never stop writing, or never start the command, are named as the cause."""
    serve(f"ForceCommand {login}")

    assert reason == refusal(greeting_s=1.0 if reason == "silent" else 30.0).reason


def test_a_connection_that_is_cut_is_an_error_of_the_link(serve: Serve) -> None:
    """A cut connection ends the output with a reason; what it printed before is no whole answer."""
    server = serve()

    with RemoteHost("mini").open("echo begun; sleep 60; echo ended") as script:
        assert b"begun\n" == script.read(1000, 10)
        assert 0 < server.cut()
        assert b"" == script.read(1000, 10)
        with pytest.raises(SshError) as cut:
            script.finish()

    assert cut.value.reason in {"closed", "ended"}


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "tcsh", "csh"])
def test_any_login_shell_reads_the_command(shell: str) -> None:
    """The one text that a remote shell reads means the same to every shell, and leaves stdin to the script."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    script = b'echo "it\'s $HOME"; cat'

    ran = subprocess.run(
        [program, "-c", COMMAND.format(size=len(script))],
        input=script + b"the rest",
        capture_output=True,
        timeout=60,
        check=True,
        env={"HOME": "/a b", "PATH": os.environ["PATH"]},
    )

    assert b"it's /a b\nthe rest" == ran.stdout


def test_what_login_files_complain_of_is_not_why_a_script_failed(serve: Serve) -> None:
    """A login file that prints "Permission denied" does not turn a failed script into a wrong key."""
    serve('ForceCommand echo "cat: secret: Permission denied" >&2; eval "$SSH_ORIGINAL_COMMAND"')

    with pytest.raises(RemoteScriptError) as failed:
        RemoteHost("mini").run("echo broken >&2; exit 7", limit_s=30)

    assert (4, True) == (failed.value.exit_code, "exit code 7: broken" in failed.value.message)


def test_a_script_that_stops_answering_is_given_up(serve: Serve) -> None:
    """A remote process that hangs while the connection lives ends with the reason `silent`."""
    serve()

    with pytest.raises(SshError) as silent:
        RemoteHost("mini").run("sleep 60", limit_s=0.5)

    assert "silent" == silent.value.reason


def test_output_without_end_is_cut_off(serve: Serve) -> None:
    """More output than any script of ours has is refused, and so is a line without an end."""
    serve()

    with pytest.raises(SshError, match="malformed"):
        RemoteHost("mini").run("yes", limit_s=30)
    with pytest.raises(SshError, match="a line of more than"):
        list(RemoteHost("mini").lines("yes | tr -d '\\n'", {}, silence_s=30, most=1 << 16))


def test_a_connection_alone_does_not_go_over_a_shared_one_that_hangs(serve: Serve) -> None:
    """The shared connection hangs: a script over it is silent, and one alone is not."""
    server = serve()
    # A short path: it becomes the name of a socket.
    with tempfile.TemporaryDirectory(prefix="gk") as folder:
        server.prefer(f"ControlPath {folder}/s", "ControlMaster auto", "ControlPersist 60")
        words = shlex.split(server.words)
        subprocess.run([*words, "mini", "true"], check=True, timeout=MOST_S, stderr=subprocess.DEVNULL)
        control = subprocess.run(
            [*words, "-O", "check", "mini"], check=True, timeout=MOST_S, capture_output=True, text=True
        )
        master = int(re.findall(r"pid=(\d+)", control.stderr + control.stdout)[0])
        os.kill(master, signal.SIGSTOP)
        try:
            assert answers(alone=True)
            assert "silent" == refusal(greeting_s=0.5).reason
        finally:
            os.kill(master, signal.SIGKILL)


def test_settings_for_a_terminal_do_not_disturb(serve: Serve) -> None:
    """A host entry with a terminal, a command, forwardings that fail and a quiet log still gives a connection."""
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

    assert answers()
    assert not (server.root / "executed").exists()


def test_a_port_and_a_user_may_be_written_out(serve: Serve) -> None:
    """ssh://USER@HOST:PORT names what the configuration leaves out."""
    server = serve()
    user = next(line.split()[1] for line in server.config.read_text().splitlines() if "User " in line)
    server.prefer(f"Port {free_port()}", "User nobody-4711")

    assert answers(f"ssh://{user}@mini:{server.port}")


MARK = "executed"
HOSTILE = (
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    f"a; touch {MARK}",
    f"a && touch {MARK}",
    f"a\ntouch {MARK}\n",
    f"'; touch {MARK}; '",
    f'"; touch {MARK}; "',
    f"-oProxyCommand=touch {MARK}",
    f"--{MARK}",
    "it's",
    "back\\slash",
    "*",
    "~root",
    "$HOME",
    "ümläut €",
    "a\tb",
)
UNHURRIED = settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TEXT = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))


@pytest.fixture
def mini(serve: Serve) -> RemoteHost:
    serve()
    return RemoteHost("mini")


@UNHURRIED
@given(value=TEXT)
@example(value="\n".join(HOSTILE))
def test_values_arrive_as_they_were_written(mini: RemoteHost, value: str) -> None:
    """Whatever the value of a variable is, the script there has exactly that, and no shell reads it."""
    there = mini.run("printf %s \"$value\" | od -An -v -tx1 | tr -d ' \\n'", {"value": value}, limit_s=60)

    assert value.encode().hex() == there


@UNHURRIED
@given(host=TEXT, user=st.one_of(st.none(), TEXT))
@example(host=f"x$(touch {MARK})", user=None)
@example(host="mini", user=f"$(touch {MARK})")
@example(host=f"ssh://a%24%28touch%20{MARK}%29@mini", user=None)
@example(host=f"mini -oProxyCommand=touch${{IFS}}{MARK}", user=None)
def test_no_host_is_read_by_a_shell(proxied: Path, host: str, user: str | None) -> None:
    """A host name is refused locally, or ssh fails on it; even a ProxyCommand of a shell runs nothing."""
    address = host if user is None else f"{user}@{host}"

    with pytest.raises((InputError, SshError)):
        RemoteHost(address).run("true", limit_s=5)

    assert [] == list(proxied.rglob(MARK))


@pytest.fixture
def proxied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have ssh run a ProxyCommand with the names in it, as many people's configurations do."""
    config = tmp_path / "ssh_config"
    config.write_text("Host *\n  ProxyCommand echo %h %r %n >/dev/null; false\n")
    monkeypatch.setenv("GATEKEEPER_SSH", f"ssh -F '{config}'")
    monkeypatch.chdir(tmp_path)
    return tmp_path
