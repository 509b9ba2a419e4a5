"""Environments of versions: by pip, and by uv where it is installed; made once, and again where the wheels changed."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gatekeeper.regression.package_environments import MADE, make_environment
from tests.regression.conftest import write_wheel


def installed(environment: Path) -> str:
    """Return the version that its own interpreter sees."""
    code = "import echo_drafter; print(echo_drafter.RIGHT)"
    return subprocess.run(
        [environment / "bin" / "python", "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_an_environment_is_made_once(
    installer: str, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    By uv where it is there, else by pip: the version that was asked for, from local wheels alone. The second time it is
    used again, and a wheel that changed under the same version is installed anew.
    """
    if installer == "uv" and shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    links = tmp_path / "links"
    links.mkdir()
    shutil.copy(wheels / "echo_drafter-0.1-py3-none-any.whl", links)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if installer == "pip":
        monkeypatch.setattr(shutil, "which", lambda *_: None)
    notes: list[str] = []
    arguments = (["echo-drafter==0.1"], ["--no-index", f"--find-links={links}"], notes.append)

    first, second = make_environment(*arguments), make_environment(*arguments)
    write_wheel(links, "echo_drafter", "0.1", "RIGHT = 'changed'\n")
    third = make_environment(*arguments)

    assert (first, "4") == (second, installed(first))
    assert ("changed", 2) == (installed(third), len(notes))
    written = json.loads((first / MADE).read_text())
    assert ["echo-drafter==0.1"] == written["requirements"]
    log = first.with_suffix(".log").read_text()
    assert "Traceback" not in log
