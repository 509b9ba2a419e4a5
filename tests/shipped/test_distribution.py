"""What is installed: the lock files, the number of packages, and the wheel in an environment of its own."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.report.commands.explain_document import find_page
from gatekeeper.report.data.glossary import find_entries
from tests.builders.project_folder import ROOT, ProjectFolder

IMAGE_LOCK = ROOT / "integrations" / "pylock.image.toml"
LOCKS = [ROOT / "pylock.toml", IMAGE_LOCK]
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"}
PACKAGES_MOST, BYTES_MOST = 37, 105_000_000
"""Ours among them; without the inference engine."""
INSTALLERS = ("pip", "setuptools", "_distutils_hack")
SITE_HERE = next(folder for folder in sys.path if folder.endswith("site-packages"))
"""Lends its libraries by PYTHONPATH, which reads no .pth file: a checkout installed in it is not found."""


def packages(lock: Path) -> list[dict[str, Any]]:
    locked: list[dict[str, Any]] = tomllib.loads(lock.read_text("utf-8"))["packages"]
    return locked


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel, as the release workflow does."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, timeout=120)
    return folder


def clean_environment(folder: Path, dist: Path) -> Path:
    """Make an environment that holds the wheel alone; return its command."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    python = folder / "bin" / "python"
    subprocess.run([*pip_install(python), *map(str, dist.glob("*.whl"))], check=True, timeout=120)
    return python.with_name("gatekeeper")


def pip_install(python: Path) -> list[str]:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    return [*pip, "install", "-q", "--no-deps", "--no-compile"]


def test_the_files_of_a_release_are_accepted(dist: Path) -> None:
    """What the release workflow asks of sdist and wheel: the index takes their metadata and description, and the wheel
    holds no file that does not belong there.
    """
    pytest.importorskip("twine")
    pytest.importorskip("check_wheel_contents")
    files = sorted(dist.iterdir())
    wheels = [str(file) for file in files if file.suffix == ".whl"]
    checks = (["twine", "check", "--strict", *map(str, files)], ["check_wheel_contents", *wheels])

    ran = [
        subprocess.run(
            [sys.executable, "-m", *check], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        for check in checks
    ]

    assert ["gatekeeper_slo", "gatekeeper_slo"] == [file.name.partition("-")[0] for file in files]
    assert [0, 0] == [process.returncode for process in ran], "".join(
        process.stdout + process.stderr for process in ran
    )


def test_the_wheel_alone_plans_from_another_folder(dist: Path, tmp_path: Path) -> None:
    """Installed in an environment of its own, it finds SLO, canaries, profile and the little pair by their names."""
    gatekeeper = clean_environment(tmp_path / "venv", dist)
    (tmp_path / "elsewhere").mkdir()

    ran = subprocess.run(
        [gatekeeper, "plan", "smoke", "--json"],
        env={**os.environ, "PYTHONPATH": SITE_HERE},
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert 0 == ran.returncode, ran.stderr
    assert "smoke" == json.loads(ran.stdout)["slo"]


def messages() -> list[str]:
    """Return the texts of the package that are no docstrings."""
    texts = []
    for file in (ROOT / "gatekeeper").rglob("*.py"):
        tree = ast.parse(file.read_text())
        bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in bare)
        texts += [node.value for node in constants if isinstance(node.value, str)]
    return texts


def test_a_hint_opens_on_a_machine_without_the_repository() -> None:
    """No message names a file of docs/; each `gatekeeper explain WORD` in one is a word, or a page that the wheel
    holds.
    """
    in_wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    named = {word for text in messages() for word in re.findall(r"gatekeeper explain ([a-z][\w/-]*)", text)}

    pages = {word: find_page(word) for word in named - {"lists", "metrics"} if not find_entries(word)}

    assert [] == [text for text in messages() if re.search(r"\bdocs/[\w/-]+\.md|hosts\.example", text)]
    assert {"worker-protocol", "servers", "your-canaries", "fleet"} <= pages.keys()
    for word, page in pages.items():
        assert page is not None, word
        place = page.relative_to(ROOT).as_posix()
        assert {place, str(Path(place).parent)} & in_wheel["force-include"].keys(), word


def test_a_light_installation() -> None:
    """Without the inference engine at most 37 packages are installed, ours among them; no gRPC, no second HTTP
    client.
    """
    markers = pytest.importorskip("packaging.markers")

    needed = {package["name"] for package in packages(LOCKS[0]) if markers.Marker(package["marker"]).evaluate(LINUX)}

    assert len(needed) + 1 <= PACKAGES_MOST
    assert {"numpy", "requests", "opentelemetry-exporter-otlp-proto-http"} <= needed
    assert not {"grpcio", "httpx", "httpx2", "mlx"} & needed


@pytest.mark.parametrize("lock", LOCKS, ids=["gatekeeper", "image"])
def test_lock_files_name_the_public_index_alone(lock: Path) -> None:
    """Every file of a lock has its hash, and its address on the public index: never one of the machine that wrote
    it.
    """
    text = lock.read_text("utf-8")
    files = [
        file
        for package in packages(lock)
        for file in (*package.get("wheels", ()), *filter(None, [package.get("sdist")]))
    ]

    assert {"https://files.pythonhosted.org/"} == set(re.findall(r"\w+://[^/]*/", text))
    assert all(re.fullmatch("[0-9a-f]{64}", file["hashes"]["sha256"]) for file in files)
    assert "path =" not in text


def test_the_image_has_the_same_libraries_and_those_of_its_commands() -> None:
    """The proxy and every kind of signature work in it, and what gatekeeper alone needs has the same version."""
    common, image = (
        {(package["name"], package["version"]) for package in packages(lock)} for lock in (LOCKS[0], IMAGE_LOCK)
    )

    assert common <= image
    assert {"aiohttp", "uvloop", "prometheus-client", "securesystemslib", "sigstore"} <= {name for name, _ in image}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_steps_of_the_image_make_a_gatekeeper(tmp_path: Path) -> None:
    """The build stage of the Containerfile, run here in other folders: the command answers, and its libraries are
    there.
    """
    _, build, _ = (ROOT / "Containerfile").read_text().split("\nFROM ")
    step = build.partition("\nRUN ")[2]
    for project, replacement in (("/tmp/", f"{tmp_path}/"), ("/opt/gatekeeper", tmp_path / "venv"), ("/src", ROOT)):  # noqa: S108
        step = step.replace(project, str(replacement))
    subprocess.run(["sh", "-ec", step], cwd=tmp_path, check=True, timeout=600)

    asks = (["-m", "gatekeeper", "proxy", "--help"], ["-c", "import aiohttp, uvloop, sigstore, securesystemslib"])
    ran = [
        subprocess.run([tmp_path / "venv" / "bin" / "python", *words], cwd=tmp_path, check=False, timeout=120)
        for words in asks
    ]
    command = subprocess.run([tmp_path / "venv" / "bin" / "gatekeeper", "explain"], check=False, timeout=120)

    assert [0, 0, 0] == [process.returncode for process in (*ran, command)]


def test_a_shipped_slo_is_found_by_its_name(tmp_path: Path) -> None:
    """From any folder `plan smoke` plans the shipped file; a file of that name in the folder comes first."""
    project = ProjectFolder(tmp_path, {**os.environ})

    shipped = project.run("plan", "smoke", "--json", code=0).document
    (tmp_path / "smoke").write_text("schema = 1\n")
    own_file = project.run("plan", "smoke")

    assert "smoke" == shipped["slo"]
    assert 2 == own_file.code


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_wheel_alone_certifies_from_another_folder(dist: Path, tmp_path: Path) -> None:
    """Built as for an index and installed in an environment of its own from the lock, it stays below 105 MB, finds
    SLOs,
    canaries, profiles and the little pair by their names, and certifies; MLX is lent by this environment.
    """
    gatekeeper = clean_environment(tmp_path / "venv", dist)
    python = gatekeeper.with_name("python")
    convert: list[Any] = [python, ROOT / "integrations" / "install_pinned.py", ROOT / "pylock.toml"]
    (tmp_path / "pins.txt").write_bytes(subprocess.run(convert, check=True, capture_output=True).stdout)
    pinned = ["--require-hashes", "-r", str(tmp_path / "pins.txt")]
    subprocess.run([*pip_install(python), *pinned], check=True, timeout=600)

    site = next((tmp_path / "venv" / "lib").glob("*/site-packages"))
    own_files = [
        path
        for path in site.rglob("*")
        if path.is_file() and not path.relative_to(site).parts[0].startswith(INSTALLERS)
    ]
    size = sum(path.stat().st_size for path in own_files if path.suffix != ".pyc")
    (tmp_path / "elsewhere").mkdir()
    ran = subprocess.run(
        [gatekeeper, "certify", "smoke", "--quiet"],
        env={**os.environ, "PYTHONPATH": SITE_HERE},
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert size <= BYTES_MOST
    assert 0 == ran.returncode, ran.stderr
    assert "smoke: promoted" in ran.stdout
