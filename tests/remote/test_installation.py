"""The far environment: the same gatekeeper, pinned libraries, and no other taken for it."""

import re
from pathlib import Path

import pytest

from gatekeeper.remote import installation
from gatekeeper.remote.link import Link
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
    A host that has this very gatekeeper needs no installation.
    """
    serve()

    with Link("far") as link:
        found = installation.environment(link, path=str(environment))

    assert (str(environment), wheel().sha256) == (found.path, found.wheel_sha256)


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
