"""Local wheels of a small worker, one of whose versions drafts badly, and an SLO that measures it."""

import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.builders.place import Place
from tests.e2e.conftest import place as place_in
from tests.e2e.test_worker_run import EXAMPLE, echoing

PACKAGE = "echo_worker"


def write_wheel(folder: Path, version: str, *, accepted: int, starts: bool = True) -> None:
    """Write a wheel of the example worker whose draft is right for *accepted* tokens a round."""
    code = EXAMPLE.read_text().replace(
        "for place, word in enumerate(words[len(arrivals) :][: width + 1]):",
        f"right = min(width, {accepted})\n        for place, word in enumerate(words[len(arrivals) :][: right + 1]):",
    )
    code = code.replace("[now, 1, place < width,", "[now, 1, place < right,")
    code = code if starts else "raise SystemExit(5)\n"
    info = f"{PACKAGE}-{version}.dist-info"
    files = {
        f"{PACKAGE}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{PACKAGE}-{version}-py3-none-any.whl", "w") as wheel:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, content)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five versions: the draft of 1.3 and 1.4 is right half as often, and 1.2 does not start."""
    folder = tmp_path_factory.mktemp("wheels")
    for version, accepted in (("1.0", 4), ("1.1", 4), ("1.2", 4), ("1.3", 2), ("1.4", 2)):
        write_wheel(folder, version, accepted=accepted, starts=version != "1.2")
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environments are made once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def worker(tmp_path: Path, cache: Path, wheels: Path) -> Place:
    """A folder with an SLO of the packaged worker, and `pip` restricted to the local wheels."""
    place: Place = place_in.__wrapped__(tmp_path)  # type: ignore[attr-defined]
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels)}
    place = Place(place.path, {**place.environment, **pip, "XDG_CACHE_HOME": str(cache)})
    echoing(place, command=["python", "-m", PACKAGE, "{target}", "{draft}"])
    slo = tomllib.loads((place.path / "slo.toml").read_text())
    slo["sweep"]["default"] = {"num_draft_tokens": 4}
    place.write_slo(slo)
    return place
