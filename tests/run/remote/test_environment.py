"""The far environment: the same gatekeeper, pinned libraries, and no other taken for it."""

import fcntl
import io
import json
import os
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from unittest.mock import Mock

import pytest

from gatekeeper.core.errors import HostLacksError
from gatekeeper.run.remote import environment as installation
from gatekeeper.run.remote import preflight
from gatekeeper.run.remote import remote_run as visits
from gatekeeper.run.remote.agent.environments import Environments
from gatekeeper.run.remote.agent.frames import Channel
from gatekeeper.run.remote.agent.state import State
from gatekeeper.run.remote.environment import wheel
from gatekeeper.run.remote.remote_run import Far
from gatekeeper.run.remote.ssh import Link
from gatekeeper.run.remote.ssh_errors import FarError
from tests.builders.place import ROOT
from tests.builders.ssh_server import stand_in
from tests.run.remote.conftest import LEFT, Installed, Serve


@pytest.mark.timeout(900)
def test_a_bare_host_gets_gatekeeper_and_pinned_libraries(installed: Installed) -> None:
    """
    What was installed is exactly what is pinned, this gatekeeper among it, and both are recorded; a second time
    nothing is installed.
    """
    pins = dict(re.findall(r"^([a-z0-9-]+)==([^ \n]+)", installation.lock().decode(), re.MULTILINE))
    versions = dict(one.split("==") for one in installed.environment.installed if "==" in one)

    with Link("far") as link:
        again = installation.environment(link)
        told = list(link.stream("run", argv=["--version"], **again.words()))

    assert (True, False) == (installed.environment.fresh, again.fresh)
    assert installed.environment.installed == again.installed
    assert pins["mlx-lm"] == versions["mlx-lm"]
    ours = {name: version for name, version in versions.items() if name in pins and name != "numpy"}
    assert {name: pins[name] for name in ours} == ours
    assert 20 < len(ours)
    assert 0 == told[-1]["code"]
    assert b"gatekeeper" in b"".join(item.get("content", b"") for item in told)
    assert (installed.server.state / "envs" / again.key / "installed.txt").is_file()


def test_the_same_gatekeeper_is_taken_as_it_stands(serve: Serve, environment: Path) -> None:
    """
    A host that has this very gatekeeper needs no installation; the versions beside it are recorded.
    """
    serve()

    with Link("far") as link:
        found = installation.environment(link, path=str(environment))

    assert (str(environment), wheel().sha256) == (found.path, found.wheel_sha256)
    assert f"numpy=={version('numpy')}" in found.installed


def test_another_gatekeeper_is_refused(serve: Serve, environment: Path) -> None:
    """
    One changed byte in one file of the far package is named, and the environment is not used.
    """
    serve()
    changed = next((environment / "lib").glob("*/site-packages/gatekeeper/verdict/judge.py"))
    before = changed.read_bytes()
    try:
        changed.write_bytes(before + b"#")
        with Link("far") as link, pytest.raises(HostLacksError, match=r"verdict/judge\.py differ"):
            installation.environment(link, path=str(environment))
    finally:
        changed.write_bytes(before)


@pytest.mark.timeout(900)
def test_an_installation_that_was_cut_is_made_anew(installed: Installed) -> None:
    """
    A half-made environment is never used: the same command makes it again, and what pip left behind is gone.
    """
    assert (installed.environment.key, True) == (installed.half_made, installed.environment.fresh)
    assert not (installed.server.state / "envs" / installed.half_made / LEFT).exists()


def test_old_environments_make_room(tmp_path: Path) -> None:
    """
    Of many environments the last used stay, and those of jobs that lie there; nothing else is removed.
    """
    for age, name in enumerate(("oldest", "of-a-job", "older", "recent", "newest", "of-now")):
        (tmp_path / "envs" / name).mkdir(parents=True)
        (tmp_path / "envs" / name / "ready").write_text("{}")
        os.utime(tmp_path / "envs" / name / "ready", (1000 + age, 1000 + age))
    (tmp_path / "jobs" / "one").mkdir(parents=True)
    (tmp_path / "jobs" / "one" / "job.json").write_text(
        json.dumps({"environment": str(tmp_path / "envs" / "of-a-job")})
    )
    state = State()
    state.settle(str(tmp_path))

    Environments(state, Channel(io.BytesIO(), io.BytesIO()))._make_room("of-now")

    assert {"of-a-job", "recent", "newest", "of-now"} == {path.name for path in (tmp_path / "envs").iterdir()}


def test_every_library_is_pinned_by_hash_and_no_index_is_named() -> None:
    """
    What pyproject.toml asks for is in the list that travels, in a version it allows; nothing else says where from.
    """
    requirements = pytest.importorskip("packaging.requirements")
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("this is no checkout")
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = installation.lock().decode()
    blocks = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    pins: dict[str, set[str]] = {}
    for name, version_ in re.findall(r"^([a-z0-9-]+)==([^ \n]+)", text, re.MULTILINE):
        pins.setdefault(name, set()).add(version_)

    for one in [*asked["dependencies"], *asked["optional-dependencies"]["mlx"]]:
        wanted = requirements.Requirement(one)
        assert all(pin in wanted.specifier for pin in pins[wanted.name]), one
    assert len(blocks) == len(re.findall("==", text)) - len(re.findall(" == '", text))
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.search("://|--index|--find-links|--extra", text)


def test_a_library_without_a_hash_is_never_installed(serve: Serve) -> None:
    """
    The far pip takes nothing that is not pinned by hash; what it says is passed on, and nothing is ready.
    """
    server, made = serve(), wheel()
    there = server.state / "parcels" / made.sha256 / made.name

    with Link("far") as link, pytest.raises(FarError) as refused:
        installation.environment(link, pinned=f"gatekeeper @ {there.as_uri()}\n".encode())

    assert ("install", 3) == (refused.value.kind, refused.value.exit_code)
    assert "Hashes are required" in refused.value.message
    assert [] == list((server.state / "envs").glob("*/ready"))


def test_who_waits_for_another_installation_hears_that_it_lives(serve: Serve) -> None:
    """
    While somebody else makes the same environment the stream is not silent; then it is ready, and nothing is installed.
    """
    envs = serve().state / "envs"
    (envs / "one").mkdir(parents=True)
    with (envs / "one.lock").open("wb") as theirs, Link("far") as link:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        told = link.stream("install", key="one", wheel="none", lock="none")
        waiting = [next(told), next(told)]
        (envs / "one" / "ready").write_text(json.dumps({"python": "3.11.7", "installed": []}))
        fcntl.flock(theirs, fcntl.LOCK_UN)
        *_, last = told

    assert [{"line": ""}, {"line": ""}] == waiting
    assert (True, False) == (last["ready"], last["fresh"])


def test_a_visit_says_that_it_installs(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Whoever asks a new machine something is told what the minutes are for; a disk too small for it ends the command.
    """
    serve()
    monkeypatch.setattr(visits, "environment", Mock(side_effect=HostLacksError("no further")))

    with pytest.raises(HostLacksError, match="no further"):
        visits.visit(Far("mini", "far"), ["doctor"])
    monkeypatch.setattr(preflight, "ENVIRONMENT_BYTES", 1e18)
    with pytest.raises(HostLacksError, match=r"mini: disk: .* are free there"):
        visits.visit(Far("mini", "far"), ["doctor"])

    assert ("", "installing gatekeeper and its libraries on mini, this once: it takes minutes\n") == capsys.readouterr()


def test_nothing_is_installed_beside_a_run(serve: Serve, tmp_path: Path) -> None:
    """
    While a run measures there, a machine that lacks this gatekeeper is left alone: pip would be measured as well.
    """
    server = serve()
    waits = str(stand_in(tmp_path / "waits", "import time\ntime.sleep(1000)"))
    with Link("far") as link:
        link.ask("start", run_id="one", argv=[], owner="anna@desk", slo_sha256="0", environment=waits)

        with pytest.raises(HostLacksError, match="occupied by anna@desk, run one") as refused:
            visits.visit(Far("mini", "far"), ["doctor"])
        list(link.stream("cancel", run_id="one"))

    assert "gatekeeper remote cancel one --on mini" in refused.value.hint
    assert not (server.state / "envs").exists()
