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
from tools.rehearse_release import MOST_PACKAGES, check_licences, check_size, check_vulnerabilities

IMAGE_LOCK = ROOT / "integrations" / "pylock.image.toml"
LOCKS = [ROOT / "pylock.toml", IMAGE_LOCK]
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"}
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


def package(name: str, licence: str = "MIT", size: int = 1) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "licence": licence, "bytes": size}


def test_a_release_is_refused_for_a_licence_or_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    """A licence that is not on the list, or that a package does not name, is not accepted; nor is a large package."""
    packages = [package("a", "MIT AND Zlib"), package("b", "AGPL-3.0-only OR MIT"), package("c", ""), package("d")]

    refused = check_licences(packages)

    assert ["licence of b 1.0: AGPL-3.0-only OR MIT", "licence of c 1.0: not named"] == refused
    assert ["more than 35 packages or 95 MB"] == check_size([*packages, package("large", size=96_000_000)])
    assert [] == check_size(packages)
    assert "2 of 4 packages" in capsys.readouterr().out


def test_what_no_database_knows_is_not_free_of_vulnerabilities(capsys: pytest.CaptureFixture[str]) -> None:
    """A package that pip-audit left out, and all of them without an answer, are not checked; a known one is named."""
    answer = {
        "dependencies": [
            {"name": "a", "version": "1.0", "vulns": [{"id": "CVE-1"}]},
            {"name": "b", "skip_reason": "not found"},
        ]
    }

    known = check_vulnerabilities(json.dumps(answer), [package("A"), package("b")])
    without_network = check_vulnerabilities("ERROR: no route to host\n", [package("a")])

    assert (["a: CVE-1"], []) == (known, without_network)
    assert [
        "vulnerabilities: 1 packages checked; not checked: b",
        "vulnerabilities: not checked: ERROR: no route to host",
    ] == capsys.readouterr().out.splitlines()


def test_a_light_installation() -> None:
    """Without the inference engine as many packages as a release may have; no gRPC, no second HTTP client."""
    markers = pytest.importorskip("packaging.markers")

    needed = {package["name"] for package in packages(LOCKS[0]) if markers.Marker(package["marker"]).evaluate(LINUX)}

    assert len(needed) + 1 <= MOST_PACKAGES
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
