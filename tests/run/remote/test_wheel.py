"""The wheel: this gatekeeper as one file, the same bytes for the same files."""

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gatekeeper
from gatekeeper.run.remote import environment as wheels
from gatekeeper.run.remote.environment import wheel


def test_the_same_files_make_the_same_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Neither when nor where nor in which order files are read changes the wheel; one byte of one file does.
    """
    first = wheel()
    copy = tmp_path / "elsewhere" / "gatekeeper"
    with zipfile.ZipFile(io.BytesIO(first.content)) as archive:
        archive.extractall(copy.parent)
    os.utime(copy / "__main__.py", (1, 1))
    monkeypatch.setattr(wheels, "PACKAGE", copy)
    installed = wheel()
    (copy / "__main__.py").write_bytes((copy / "__main__.py").read_bytes() + b"\n")

    assert first == installed
    assert first.sha256 == hashlib.sha256(first.content).hexdigest()
    assert first.sha256 != wheel().sha256


def test_pip_takes_it_and_what_it_holds_runs(tmp_path: Path) -> None:
    """
    A pip installs it, checking its record; the installed package is complete, its data included.
    """
    made = wheel()
    (tmp_path / made.name).write_bytes(made.content)
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, *install, tmp_path / made.name], check=True, timeout=120)
    ask = "import gatekeeper.core.inputs as i; print(i.shipped_folder('slos')); import gatekeeper.cli.main"

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
    assert (tmp_path / "site" / f"gatekeeper-{gatekeeper.__version__}.dist-info" / "entry_points.txt").is_file()


def test_nothing_but_the_package_travels() -> None:
    """
    No cache, no hidden file and no file from outside the package is in it.
    """
    with zipfile.ZipFile(io.BytesIO(wheel().content)) as archive:
        names = archive.namelist()

    assert [] == [name for name in names if "__pycache__" in name or "/." in name or ".." in name]
    assert {"gatekeeper", f"gatekeeper-{gatekeeper.__version__}.dist-info"} == {name.split("/")[0] for name in names}
