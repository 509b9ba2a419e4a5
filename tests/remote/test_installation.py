"""The far environment: the same gatekeeper, pinned libraries, and no other taken for it."""

import io
import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from gatekeeper.remote import installation
from gatekeeper.remote.far.channel import Channel
from gatekeeper.remote.far.disk import State
from gatekeeper.remote.far.environments import Environments
from gatekeeper.remote.link import Link
from gatekeeper.remote.trouble import LinkError
from gatekeeper.remote.wheel import wheel
from gatekeeper.terms.errors import HostLacksError
from tests.remote.conftest import Installed, Serve


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


def test_an_installation_that_was_cut_is_made_anew(serve: Serve) -> None:
    """
    A half-made environment is never used: the same command makes it again, and what pip left behind is gone.
    """
    server = serve()
    reached: list[str] = []

    def cut(line: str) -> None:
        reached.append(line)
        server.cut()

    with Link("far") as link, pytest.raises(LinkError):
        installation.environment(link, pinned=b"", say=cut)
    half = [path.name for path in (server.state / "envs").iterdir() if path.is_dir()]
    (server.state / "envs" / half[0] / "left").touch()
    with Link("far") as link:
        made = installation.environment(link, pinned=b"")
        told = list(link.stream("run", argv=["--help"], **made.words()))

    assert reached
    assert ([made.key], True) == (half, made.fresh)
    assert not (server.state / "envs" / made.key / "left").exists()
    assert 0 != told[-1]["code"]  # its libraries were left out


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
