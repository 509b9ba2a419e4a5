"""Local wheels of a small worker, one of whose versions drafts badly, and an SLO that measures it."""

import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders.project_folder import ProjectFolder, project_folder
from tests.e2e.test_worker_run import EXAMPLE, echoing

PACKAGE = "echo_worker"


def write_worker(
    folder: Path,
    version: str,
    accepted: str,
    *,
    starts: bool = True,
    begin: str = "",
    name: str = PACKAGE,
    metadata: Sequence[str] = (),
) -> None:
    """Write a wheel of the example worker, after the lines *begin*; its draft is right for *accepted* tokens."""
    code = EXAMPLE.read_text().replace(
        "for place, word in enumerate(words[len(arrivals) :][: width + 1]):",
        f"right = min(width, {accepted})\n        for place, word in enumerate(words[len(arrivals) :][: right + 1]):",
    )
    code = code.replace("[now, 1, place < width,", "[now, 1, place < right,").replace(
        "versions={}", "versions=VERSIONS"
    )
    begin = f"VERSIONS = {{}}\n{begin}"
    write_wheel(folder, name, version, begin + code if starts else "raise SystemExit(5)\n", *metadata)


def write_wheel(folder: Path, name: str, version: str, code: str, *metadata: str) -> None:
    """Write a wheel of one module, with further lines of its metadata."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata, ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, content)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The draft of 1.3 and 1.4 is right half as often, and 1.2 does not start; 2.1 holds more memory than 2.0.

    In 3.0 another package, `echo-drafter`, says how often the draft is right.
    """
    folder = tmp_path_factory.mktemp("wheels")
    for version, accepted in (("1.0", 4), ("1.1", 4), ("1.2", 4), ("1.3", 2), ("1.4", 2)):
        write_worker(folder, version, str(accepted), starts=version != "1.2")
    for version, megabytes in (("2.0", 1), ("2.1", 300)):
        write_worker(folder, version, "4", begin=f"held = bytearray({megabytes} << 20)\n")
    write_worker(folder, "3.0", "echo_drafter.RIGHT", begin="import echo_drafter\n")
    for version, right in (("0.1", 4), ("0.2", 2)):
        write_wheel(folder, "echo_drafter", version, f"RIGHT = {right}\n")
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environments are made once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def worker(tmp_path: Path, cache: Path, wheels: Path) -> ProjectFolder:
    """A folder with an SLO of the packaged worker, and `pip` restricted to the local wheels."""
    project = project_folder(tmp_path)
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels)}
    project = project.with_environment(**{**pip, "XDG_CACHE_HOME": str(cache)})
    echoing(project, command=["python", "-m", PACKAGE, "{target}", "{draft}"])
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["sweep"]["default"] = {"num_draft_tokens": 4}
    project.write_slo(slo)
    return project
