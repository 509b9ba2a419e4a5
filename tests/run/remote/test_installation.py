"""The environment on a remote host: the same gatekeeper, pinned libraries, and the wheel it is installed from."""

import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from unittest.mock import Mock

import pytest

import gatekeeper
from gatekeeper.core.errors import HostLacksError
from gatekeeper.run.remote import checks_before_run, foreground, installation
from gatekeeper.run.remote.agent.frames import Channel
from gatekeeper.run.remote.agent.pythons import Environments
from gatekeeper.run.remote.agent.state_folder import State
from gatekeeper.run.remote.installation import build_wheel
from gatekeeper.run.remote.remote_run import RemoteHost
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.ssh_errors import AgentError
from tests.builders.project_folder import ROOT
from tests.builders.ssh_server import stand_in
from tests.run.remote.conftest import CERTIFY, LEFT, Installed, Make, Serve


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_bare_host_gets_gatekeeper_and_pinned_libraries(installed: Installed) -> None:
    """
    What was installed is exactly what is pinned, this gatekeeper among it, and both are recorded; a second time
    nothing is installed.
    """
    pins = dict(re.findall(r"^([a-z0-9-]+)==([^ \n]+)", installation.lock().decode(), re.MULTILINE))
    versions = dict(pin.split("==") for pin in installed.environment.installed if "==" in pin)
    repeated: list[str] = []

    with Connection("mini") as connection:
        again = installation.prepare_environment(connection, say=repeated.append)
        items = list(connection.stream("run", argv=["--version"], environment=again.path))

    assert installed.environment == again
    assert (True, []) == (any("pip" in line or "Collecting" in line for line in installed.output), repeated)
    assert pins["mlx-lm"] == versions["mlx-lm"]
    pinned = {name: version for name, version in versions.items() if name in pins and name != "numpy"}
    assert {name: pins[name] for name in pinned} == pinned
    assert 20 < len(pinned)
    assert 0 == items[-1]["code"]
    assert b"gatekeeper" in b"".join(item.get("content", b"") for item in items)
    assert (Path(again.path) / "installed.txt").is_file()


def test_the_same_gatekeeper_is_taken_as_it_stands(serve: Serve, environment: Path) -> None:
    """
    A host that has the same gatekeeper needs no installation; the versions of its libraries are recorded.
    """
    serve()

    with Connection("mini") as connection:
        prepared = installation.prepare_environment(connection, path=str(environment))

    assert str(environment) == prepared.path
    assert f"numpy=={version('numpy')}" in prepared.installed


def test_another_gatekeeper_is_refused(serve: Serve, environment: Path, tmp_path: Path) -> None:
    """
    One changed byte in one file of the remote package is named, and the environment is not used.
    """
    serve()
    other = shutil.copytree(environment, tmp_path / "other", symlinks=True)
    with next((other / "lib").glob("*/site-packages/gatekeeper/analysis/metrics/checks.py")).open("a") as changed:
        changed.write("#")

    with Connection("mini") as connection, pytest.raises(HostLacksError, match=r"checks\.py"):
        installation.prepare_environment(connection, path=str(other))


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_an_installation_that_was_cut_is_made_anew(installed: Installed) -> None:
    """
    A half-made environment is never used: the same command makes it again, and what pip left behind is gone.
    """
    assert str(installed.half_made) == installed.environment.path
    assert not (installed.half_made / LEFT).exists()


def test_old_environments_make_room(tmp_path: Path) -> None:
    """
    Of many environments the last used ones stay, and those of existing jobs; nothing else is removed.
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
    What pyproject.toml requires is in the uploaded list, in a version it allows; the list names no index.
    """
    requirements = pytest.importorskip("packaging.requirements")
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("this is no checkout")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = installation.lock().decode()
    blocks = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    pins: dict[str, set[str]] = {}
    for name, version_ in re.findall(r"^([a-z0-9-]+)==([^ \n]+)", text, re.MULTILINE):
        pins.setdefault(name, set()).add(version_)

    for dependency in [*project["dependencies"], *project["optional-dependencies"]["mlx"]]:
        requirement = requirements.Requirement(dependency)
        assert all(pin in requirement.specifier for pin in pins[requirement.name]), dependency
    assert len(blocks) == len(re.findall("==", text)) - len(re.findall(" == '", text))
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.search("://|--index|--find-links|--extra", text)


@pytest.mark.parametrize(
    ("system", "machine", "message"),
    [
        ("Darwin", "arm64", None),
        ("Linux", "aarch64", None),
        ("Darwin", "x86_64", "this Mac's Python is for Intel"),
        ("Linux", "riscv64", "no packages for Linux on riscv64"),
        ("FreeBSD", "amd64", "no packages for FreeBSD on amd64"),
    ],
)
def test_only_what_the_lock_file_is_made_for_gets_an_environment(
    system: str, machine: str, message: str | None
) -> None:
    """
    On another system or processor pip would install no library and succeed; the host is refused before that.
    """
    connection = Mock(host="mini", hello={"system": system, "machine": machine, "without_venv": []})
    connection.hello |= {"capable_python": "/usr/bin/python3", "pythons": {"/usr/bin/python3": "3.12.1"}}
    connection.digest.return_value = None

    if message is None:
        assert not installation.is_installed(connection)
    else:
        with pytest.raises(HostLacksError, match=message):
            installation.is_installed(connection)


def test_the_lock_file_is_made_for_these_platforms() -> None:
    """
    What a remote host may be is what the lock file was resolved for.
    """
    made_for = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]["environments"]
    systems = {"Darwin": "darwin", "Linux": "linux"}

    markers = {
        f"sys_platform == '{systems[system]}' and platform_machine == '{cpu}'" for system, cpu in installation.PLATFORMS
    }

    assert set(made_for) == markers


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the host stands in for an Intel Mac")
def test_an_intel_mac_is_refused_before_anything_is_installed(pair: Make) -> None:
    """
    `remote certify` on a Mac whose Python is for Intel ends in 3 and says what to do; nothing was uploaded there.
    """
    remote = pair(remote={"GATEKEEPER_HOST_AS": "macos"})
    (remote.project.path / "soak" / "hosts.toml").unlink()

    refused = remote.project.run(*CERTIFY, code=3)

    assert "for Intel (x86_64)" in refused.err
    assert "brew install python" in " ".join(refused.err.split())
    assert [] == list(remote.server.root.rglob("*.whl"))


def test_a_library_without_a_hash_is_never_installed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The remote pip takes nothing that is not pinned by hash; its output is passed on, and no environment is ready.
    """
    server, wheel = serve(), build_wheel()
    shipped_wheel = server.state / "parcels" / wheel.sha256 / wheel.name
    monkeypatch.setattr(installation, "lock", f"gatekeeper @ {shipped_wheel.as_uri()}\n".encode)

    with Connection("mini") as connection, pytest.raises(AgentError) as refused:
        installation.prepare_environment(connection)

    assert ("install", 3) == (refused.value.kind, refused.value.exit_code)
    assert "Hashes are required" in refused.value.message
    assert [] == list((server.state / "envs").glob("*/ready"))


def test_waiting_for_another_installation_has_a_heartbeat(serve: Serve) -> None:
    """
    While another agent makes the same environment the stream has a heartbeat; then nothing is installed.
    """
    envs = serve().state / "envs"
    (envs / "one").mkdir(parents=True)
    with (envs / "one.lock").open("wb") as lock_file, Connection("mini") as connection:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        items = connection.stream("install", key="one", wheel="none", lock="none")
        waiting = [next(items), next(items)]
        (envs / "one" / "ready").write_text(json.dumps({"python": "3.11.7", "installed": []}))
        fcntl.flock(lock_file, fcntl.LOCK_UN)
        *_, last = items

    assert [{"line": ""}, {"line": ""}] == waiting
    assert {"path": str(envs / "one"), "installed": []} == last


def test_a_first_command_says_that_it_installs(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    A first command announces the installation; a disk too small for it ends the command.
    """
    serve()
    monkeypatch.setattr(foreground, "prepare_environment", Mock(side_effect=HostLacksError("no further")))

    with pytest.raises(HostLacksError, match="no further"):
        foreground.run_in_foreground(RemoteHost("mini", "mini"), ["doctor"])
    monkeypatch.setattr(checks_before_run, "ENVIRONMENT_BYTES", 1e18)
    with pytest.raises(HostLacksError, match="mini: disk: "):
        foreground.run_in_foreground(RemoteHost("mini", "mini"), ["doctor"])

    assert ("", f"{installation.installing('mini')}\n") == capsys.readouterr()


def test_nothing_is_installed_during_a_run(serve: Serve, tmp_path: Path) -> None:
    """
    While a run measures, nothing is installed on its host: pip would disturb the measurement.
    """
    server = serve()
    waits = str(stand_in(tmp_path / "waits", "import time\ntime.sleep(1000)"))
    with Connection("mini") as connection:
        connection.request("start", run_id="one", argv=[], owner="anna@desk", slo_sha256="0", environment=waits)

        with pytest.raises(HostLacksError, match="anna@desk, run one") as refused:
            foreground.run_in_foreground(RemoteHost("mini", "mini"), ["doctor"])
        list(connection.stream("cancel", run_id="one"))

    assert "cancel one --on mini" in refused.value.hint
    assert not (server.state / "envs").exists()


def test_the_same_files_make_the_same_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Neither when nor where nor in which order files are read changes the wheel; one byte of one file does.
    """
    first = build_wheel()
    copy = tmp_path / "elsewhere" / "gatekeeper"
    with zipfile.ZipFile(io.BytesIO(first.content)) as archive:
        archive.extractall(copy.parent)
    os.utime(copy / "__main__.py", (1, 1))
    monkeypatch.setattr(installation, "PACKAGE", copy)
    installed = build_wheel()
    (copy / "__main__.py").write_bytes((copy / "__main__.py").read_bytes() + b"\n")

    assert first == installed
    assert first.sha256 == hashlib.sha256(first.content).hexdigest()
    assert first.sha256 != build_wheel().sha256


def test_pip_takes_it_and_what_it_holds_runs(tmp_path: Path) -> None:
    """
    A pip installs it, checking its record; the installed package is complete, its data included.
    """
    wheel = build_wheel()
    (tmp_path / wheel.name).write_bytes(wheel.content)
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, *install, tmp_path / wheel.name], check=True, timeout=120)
    slo = tmp_path / "mine.toml"
    slo.write_text((ROOT / "slos" / "quickstart.toml").read_text("utf-8"))  # it names its canaries
    ask = "import gatekeeper.core.system.inputs as i; print(i.shipped_folder('slos')); import gatekeeper.cli.main"
    ask += f"; i.read(i.Path({str(slo)!r}))"

    ran = subprocess.run(
        [sys.executable, "-P", "-c", ask],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert str(tmp_path / "site" / "gatekeeper" / "data" / "slos") == ran.stdout.strip()
    assert (tmp_path / "site" / "gatekeeper" / "data" / "soak" / "profiles" / "steady.toml").is_file()
    assert (tmp_path / "site" / f"gatekeeper_slo-{gatekeeper.__version__}.dist-info" / "entry_points.txt").is_file()


def test_only_the_package_is_in_it() -> None:
    """
    No cache, no hidden file and no file from outside the package is in it.
    """
    with zipfile.ZipFile(io.BytesIO(build_wheel().content)) as archive:
        names = archive.namelist()

    assert [] == [name for name in names if "__pycache__" in name or "/." in name or ".." in name]
    assert {"gatekeeper", f"gatekeeper_slo-{gatekeeper.__version__}.dist-info"} == {
        name.split("/")[0] for name in names
    }
