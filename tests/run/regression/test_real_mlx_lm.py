"""The search on the real mlx-lm and the little pair: which release corrupts answers from its prompt cache.

It downloads releases of mlx-lm and mlx from the package index of this machine.
"""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.builders.place import ROOT, Place
from tests.e2e.conftest import place as place_in

pytestmark = [pytest.mark.nightly, pytest.mark.mlx, pytest.mark.timeout(3600)]

STORES = (
    "            self.prompt_cache.insert_cache(\n                self.model_provider.model_key, cache_key, cache\n"
)
"""Where mlx_lm.server keeps the cache of a request that was drafted."""
KEEPS_NOTHING = STORES.replace("self.prompt_cache.insert_cache(", "(lambda *_: None)(", 1)


def repaired(version: str, folder: Path) -> None:
    """Write a wheel of mlx-lm *version* whose server stores no cache of a drafted request, as `version+repaired`."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*download, f"mlx-lm=={version}"], check=True, timeout=300)
    (wheel,) = folder.glob(f"mlx_lm-{version}-*.whl")
    changed = folder / wheel.name.replace(version, f"{version}+repaired")
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(changed, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name == "mlx_lm/server.py":
                assert content.decode().count(STORES) == 1
                content = content.decode().replace(STORES, KEEPS_NOTHING).encode()
            if name.endswith(("METADATA", "RECORD")):
                content = content.replace(version.encode(), f"{version}+repaired".encode())
            after.writestr(name.replace(f"-{version}.dist-info", f"-{version}+repaired.dist-info"), content)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made: Place = place_in.__wrapped__(tmp_path)  # type: ignore[attr-defined]
    slo = tomllib.loads((ROOT / "slos" / "quickstart-warm-cache.toml").read_text())
    models = ROOT / "models"
    slo["subject"] |= {"target": str(models / "little-target"), "drafts": [str(models / "little-draft")]}
    made.write_slo(slo)
    # Environments are kept in the user's cache: installing them takes longer than the search.
    kept = {name: value for name, value in made.environment.items() if name != "XDG_CACHE_HOME"}
    return Place(made.path, kept | {name: os.environ[name] for name in ("XDG_CACHE_HOME",) if name in os.environ})


def test_the_version_that_stores_drafted_caches_is_found(place: Place, tmp_path: Path) -> None:
    """
    mlx-lm 0.31.1 with its server repaired by hand, 0.31.1 and 0.32.2: the search names 0.31.1.
    """
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    repaired("0.31.1", wheels)
    links = {"PIP_FIND_LINKS": str(wheels), "UV_FIND_LINKS": str(wheels)}
    place = Place(place.path, {**place.environment, **links})
    extra = "[cpu]" if sys.platform == "linux" else ""
    steps = (("0.31.1+repaired", "0.31.1"), ("0.31.1", "0.31.1"), ("0.32.2", "0.32.4"))
    words = [word for lm, mlx in steps for word in ("--step", f"mlx-lm=={lm} mlx{extra}=={mlx}")]
    search = ("bisect", "slo.toml", "--workload", "code", "--metric", "warm_cache_agreement", *words)

    found = place.run(*search, "--out", "search", "--json", "--quiet", code=0).document

    assert (f"mlx-lm==0.31.1 mlx{extra}==0.31.1", 0) == (found["first_bad"], found["exit_code"])
    assert [1.0, 0.125, 0.125] == [step["center"] for step in found["steps"]]
