"""What is installed: the lock files, the number of packages, and the wheel in an environment of its own."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.builders.place import ROOT, Place

LOCKS = [ROOT / "pylock.toml", ROOT / "gatekeeper" / "run" / "remote" / "pylock.toml"]
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"}
PACKAGES_MOST, BYTES_MOST = 37, 105_000_000
"""Ours among them; without the inference engine."""
INSTALLERS = ("pip", "setuptools", "_distutils_hack")


def packages(lock: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(lock.read_text("utf-8"))["packages"]
    return found


def test_a_light_installation() -> None:
    """
    Without the inference engine at most 37 packages are installed, ours among them; no gRPC, no second HTTP client.
    """
    markers = pytest.importorskip("packaging.markers")

    needed = {one["name"] for one in packages(LOCKS[0]) if markers.Marker(one["marker"]).evaluate(LINUX)}

    assert len(needed) + 1 <= PACKAGES_MOST
    assert {"numpy", "requests", "opentelemetry-exporter-otlp-proto-http"} <= needed
    assert not {"grpcio", "httpx", "httpx2", "mlx"} & needed


@pytest.mark.parametrize("lock", LOCKS, ids=["gatekeeper", "remote"])
def test_lock_files_name_the_public_index_alone(lock: Path) -> None:
    """
    Every file of a lock has its hash, and its address on the public index: never one of the machine that wrote it.
    """
    text = lock.read_text("utf-8")
    files = [file for one in packages(lock) for file in (*one.get("wheels", ()), *filter(None, [one.get("sdist")]))]

    assert {"https://files.pythonhosted.org/"} == set(re.findall(r"\w+://[^/]*/", text))
    assert all(re.fullmatch("[0-9a-f]{64}", file["hashes"]["sha256"]) for file in files)
    assert "path =" not in text


def test_a_shipped_slo_is_found_by_its_name(tmp_path: Path) -> None:
    """
    From any folder `plan smoke` plans the shipped file; a file of that name in the folder comes first.
    """
    place = Place(tmp_path, {**os.environ})

    shipped = place.run("plan", "smoke", "--json", code=0).document
    (tmp_path / "smoke").write_text("schema = 1\n")
    own = place.run("plan", "smoke")

    assert "smoke" == shipped["slo"]
    assert 2 == own.code


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_wheel_alone_certifies_from_another_folder(tmp_path: Path) -> None:
    """
    Built as for an index and installed in an environment of its own from the lock, it stays below 105 MB, finds SLOs,
    canaries, profiles and the little pair by their names, and certifies; MLX is lent by this environment.
    """
    site_here = next(one for one in sys.path if one.endswith("site-packages"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path / "dist", ROOT], check=True, timeout=300)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    convert: list[Any] = [python, ROOT / "gatekeeper" / "run" / "remote" / "pylock.py", ROOT / "pylock.toml"]
    (tmp_path / "pins.txt").write_bytes(subprocess.run(convert, check=True, capture_output=True).stdout)
    install: list[Any] = [python, "-m", "pip", "-q", "install", "--no-deps", "--no-compile"]
    subprocess.run([*install, "--require-hashes", "-r", tmp_path / "pins.txt"], check=True, timeout=600)
    subprocess.run([*install, *(tmp_path / "dist").glob("*.whl")], check=True, timeout=120)

    site = next((tmp_path / "venv" / "lib").glob("*/site-packages"))
    ours = [
        one for one in site.rglob("*") if one.is_file() and not one.relative_to(site).parts[0].startswith(INSTALLERS)
    ]
    size = sum(one.stat().st_size for one in ours if one.suffix != ".pyc")
    (tmp_path / "elsewhere").mkdir()
    ran = subprocess.run(
        [python.with_name("gatekeeper"), "certify", "smoke", "--quiet"],
        env={**os.environ, "PYTHONPATH": site_here},
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert size <= BYTES_MOST
    assert 0 == ran.returncode, ran.stderr
    assert "smoke: promoted" in ran.stdout
