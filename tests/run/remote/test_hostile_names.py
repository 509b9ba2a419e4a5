"""Names of every kind: what a user writes is never read by a shell, local or remote."""

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from gatekeeper.core.errors import InputError
from gatekeeper.run.remote.ssh import Connection, checked
from gatekeeper.run.remote.ssh_errors import AgentError, SshError
from tests.builders.ssh_server import stand_in
from tests.run.remote.conftest import Serve

MARK = "executed"
HOSTILE = (
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    f"a; touch {MARK}",
    f"a && touch {MARK}",
    f"a | touch {MARK}",
    f"a\ntouch {MARK}\n",
    f"'; touch {MARK}; '",
    f'"; touch {MARK}; "',
    f"-oProxyCommand=touch {MARK}",
    f"--{MARK}",
    "a b",
    "it's",
    'say "hi"',
    "back\\slash",
    "*",
    "~root",
    "$HOME",
    "%h%r",
    "ümläut €",
    "a\tb",
)
UNHURRIED = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TEXT = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
ECHO = (
    "import json, os, sys\n"
    "print(json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ), 'cwd': os.getcwd()}))\n"
    "sys.exit(7)\n"
)


def executed(*roots: Path) -> list[Path]:
    """Return every trace of a command that a shell ran by mistake."""
    return [path for root in roots for path in root.rglob(MARK)]


@pytest.fixture
def echo(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Return a connection to a machine whose gatekeeper prints what it was given."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    serve()
    stand_in(tmp_path / "echo", ECHO)
    with Connection("mini") as connection:
        yield connection
    assert [] == executed(tmp_path)


@UNHURRIED
@given(words=st.lists(TEXT, max_size=4), value=TEXT)
@example(words=list(HOSTILE), value=f"$(touch {MARK})")
def test_words_and_secrets_arrive_as_they_were_written(
    echo: Connection, tmp_path: Path, words: list[str], value: str
) -> None:
    """
    Whatever the words of a command and the values of its environment are, gatekeeper there gets exactly those.
    """
    items = list(echo.stream("run", argv=words, environment=str(tmp_path / "echo"), env={"KEY": value}))
    echoed = json.loads(b"".join(item.get("content", b"") for item in items if item.get("stream") == "stdout"))

    assert (words, value, 7) == (echoed["argv"], echoed["env"]["KEY"], items[-1]["code"])


@UNHURRIED
@given(name=TEXT, content=st.binary(max_size=100))
def test_any_path_is_a_file_below_the_remote_home_or_refused(echo: Connection, name: str, content: bytes) -> None:
    """
    A file of any name comes back, or the name is refused; nothing lands anywhere else.
    """
    home = Path(echo.hello["home"])
    back, refused = io.BytesIO(), ""
    try:
        echo.upload(f"parcels/{name}/x", content, sha256=hashlib.sha256(content).hexdigest())
        echo.download(f"parcels/{name}/x", back, len(content))
    except AgentError as error:
        refused = error.kind

    assert refused in {"", "path", "os"}  # os: a name of more than 255 bytes
    assert content == back.getvalue() or refused
    assert {"parcels"} == {path.name for path in home.iterdir()}


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", "a\0b"])
def test_a_path_out_of_the_remote_home_is_refused(echo: Connection, name: str) -> None:
    """
    No name leads out of the state folder.
    """
    with pytest.raises(AgentError) as refused:
        echo.upload(name, b"x", sha256=hashlib.sha256(b"x").hexdigest())

    assert refused.value.kind == "path"
    assert echo.request("clock")


@UNHURRIED
@given(run_id=TEXT)
def test_a_run_id_is_a_plain_name_or_refused(echo: Connection, tmp_path: Path, run_id: str) -> None:
    """
    A run id names one folder, or nothing is started.
    """
    assume(not run_id.isalnum())

    with contextlib.suppress(AgentError):
        echo.request("start", run_id=run_id, argv=["x"], owner="me", slo_sha256="0", environment=str(tmp_path / "echo"))

    folders = list((Path(echo.hello["home"]) / "jobs").glob("*"))
    assert all(folder.name.isascii() and " " not in folder.name for folder in folders)


@UNHURRIED
@given(host=TEXT, user=st.one_of(st.none(), TEXT))
@example(host=f"x$(touch {MARK})", user=None)
@example(host="mini", user=f"$(touch {MARK})")
@example(host=f"ssh://a%24%28touch%20{MARK}%29@mini", user=None)
@example(host=f"mini -oProxyCommand=touch${{IFS}}{MARK}", user=None)
def test_no_host_is_read_by_a_shell(serve_proxied: Path, host: str, user: str | None) -> None:
    """
    A host name is refused locally, or ssh fails on it; even a ProxyCommand that puts names into a shell runs nothing.
    """
    address = host if user is None else f"{user}@{host}"

    with pytest.raises((InputError, SshError)):
        Connection(address, connect_timeout=1)

    assert [] == executed(serve_proxied)


@pytest.fixture
def serve_proxied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have ssh run a ProxyCommand with the names in it, as many people's configurations do."""
    config = tmp_path / "ssh_config"
    config.write_text("Host *\n  ProxyCommand echo %h %r %n >/dev/null; false\n")
    monkeypatch.setenv("GATEKEEPER_SSH", f"ssh -F '{config}'")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "host", ["mini.local", "me@mini", "me@10.0.0.7", "ssh://me@mini:2222", "fe80::1%en0", "a-b_c.d"]
)
def test_hosts_as_people_write_them_are_taken(host: str) -> None:
    """
    Names, addresses, users and ports pass as they are.
    """
    assert host == checked(host)


@pytest.mark.parametrize("home", ['it\'s $(touch executed) "here"', "-rf", "ümlaut €/b c"])
def test_a_remote_home_of_any_name_holds_a_job(serve: Serve, tmp_path: Path, home: str) -> None:
    """
    A job runs to its end in a state folder whose name means something to a shell.
    """
    serve()
    stand_in(tmp_path / home / "echo", ECHO)

    with Connection("mini", home=str(tmp_path / home / "state")) as connection:
        connection.request(
            "start", run_id="one", argv=["a b"], owner="me", slo_sha256="0",
            environment=str(tmp_path / home / "echo"),
        )  # fmt: skip
        ended = list(connection.stream("follow", run_id="one"))[-1]["job"]

    assert ("finished", 7) == (ended["state"], ended["exit"]["code"])
    assert ["a b"] == json.loads(ended["log"])["argv"]
    assert str(tmp_path / home / "state" / "jobs" / "one") == json.loads(ended["log"])["cwd"]
    assert [] == executed(tmp_path)


def test_nothing_of_the_environment_travels_unless_named(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Of two local secrets only the named one arrives, in the job's environment alone: it is on no disk afterwards.
    """
    server = serve()
    monkeypatch.setenv("UNNAMED_KEY", "unnamed-4711")
    stand_in(tmp_path / "echo", ECHO.replace("dict(os.environ)", "sorted(os.environ)"))

    with Connection("mini") as connection:
        connection.request(
            "start", run_id="one", argv=[], owner="me", slo_sha256="0", environment=str(tmp_path / "echo"),
            env={"NAMED_KEY": "named-4711"}, settings={"OPEN": "open-4711"},
        )  # fmt: skip
        ended = list(connection.stream("follow", run_id="one"))[-1]["job"]

    environment = json.loads(ended["log"])["env"]
    text = b"".join(path.read_bytes() for path in server.home.rglob("*") if path.is_file())
    assert ("NAMED_KEY" in environment, "UNNAMED_KEY" in environment) == (True, False)
    assert ["NAMED_KEY"] == ended["named"]
    assert (False, False, True) == (b"named-4711" in text, b"unnamed-4711" in text, b"open-4711" in text)
    assert os.environ["UNNAMED_KEY"]
