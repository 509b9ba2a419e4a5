"""The search on the real mlx-lm and the little pair: which release corrupts answers from its prompt cache.

It downloads releases of mlx-lm and mlx from the package index of this machine.
"""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder, project_folder

pytestmark = [pytest.mark.nightly, pytest.mark.mlx, pytest.mark.timeout(3600)]

STORES = (
    "            self.prompt_cache.insert_cache(\n                self.model_provider.model_key, cache_key, cache\n"
)
"""Where mlx_lm.server keeps the cache of a request that was drafted."""
KEEPS_NOTHING = STORES.replace("self.prompt_cache.insert_cache(", "(lambda *_: None)(", 1)


METAL_ONLY = "    model_bytes = tree_reduce(\n"
"""Where releases before 0.25.3 read the memory of a GPU, which Linux does not have."""
ANYWHERE = f"    if not mx.metal.is_available():\n        yield\n        return\n{METAL_ONLY}"
QWEN3 = "mlx_lm/models/qwen3.py"
"""The architecture of the little pair, which 0.24.0 brought."""
OF_THEN = "transformers==4.53.3"


def downloaded(version: str, folder: Path) -> Path:
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*download, f"mlx-lm=={version}"], check=True, timeout=300)
    (wheel,) = folder.glob(f"mlx_lm-{version}-*.whl")
    return wheel


def changed(wheel: Path, name: str, edits: Mapping[str, tuple[str, str]], more: Mapping[str, bytes]) -> None:
    """Write the wheel as version *name*, with one edit in each file of *edits* and the files *more*."""
    version = wheel.name.split("-")[1]
    with (
        zipfile.ZipFile(wheel) as before,
        zipfile.ZipFile(wheel.with_name(wheel.name.replace(version, name)), "w") as to,
    ):
        for path in before.namelist():
            content = before.read(path)
            if path in edits:
                old, new = edits[path]
                assert content.decode().count(old) == 1
                content = content.decode().replace(old, new).encode()
            if path.endswith(("METADATA", "RECORD")):
                content = content.replace(version.encode(), name.encode())
            if path.endswith("RECORD"):
                content += "".join(f"{path},,\n" for path in more).encode()
            to.writestr(path.replace(f"-{version}.dist-info", f"-{name}.dist-info"), content)
        for path, content in more.items():
            to.writestr(path, content)
    wheel.unlink()  # so that it is not taken for the other one


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    bare_project = project_folder(tmp_path)
    slo = tomllib.loads((ROOT / "slos" / "quickstart-warm-cache.toml").read_text())
    models = ROOT / "models"
    slo["subject"] |= {"target": str(models / "little-target"), "drafts": [str(models / "little-draft")]}
    bare_project.write_slo(slo)
    # Environments are kept in the user's cache: installing them takes longer than the search.
    environment = {name: value for name, value in bare_project.environment.items() if name != "XDG_CACHE_HOME"}
    return ProjectFolder(
        bare_project.path, environment | {name: os.environ[name] for name in ("XDG_CACHE_HOME",) if name in os.environ}
    )


@pytest.fixture(scope="module", autouse=True)
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where no package index is reachable."""
    try:
        downloaded("0.31.2", tmp_path_factory.mktemp("index"))
    except subprocess.SubprocessError:
        pytest.skip("no package index that has mlx-lm 0.31.2 is reachable from here")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


def search(project: ProjectFolder, wheels: Path, steps: Sequence[str], *words: str) -> dict[str, Any]:
    """Search *steps* for the prompt cache that changes answers, with the changed wheels."""
    links = {"PIP_FIND_LINKS": str(wheels), "UV_FIND_LINKS": str(wheels)}
    project = project.with_environment(**links)
    listed = [word for step in steps for word in ("--step", step)]
    command = ("bisect", "slo.toml", "--workload", "code", "--metric", "warm_cache_agreement", *listed, *words)
    return project.run(*command, "--out", "search", "--json", "--quiet", code=0).document


def wrong(step: Path) -> dict[bool, tuple[int, int]]:
    """Return how many drafted answers differ from plain decoding's, and of how many.

    By whether the request before was of the same conversation, whose whole prompt is then in the cache.
    """
    lines = [json.loads(line) for line in (step / "answers.jsonl").read_text().splitlines()]
    warm = [line for line in lines if line.get("role") == "warm"]
    plain = {line["canary"]: line["answer"]["text"] for line in warm if line["arm"] == "plain"}
    drafted = sorted((line for line in warm if line["arm"] != "plain"), key=lambda line: line["answer"]["sent_ns"])
    counts = {True: (0, 0), False: (0, 0)}
    for before, after in pairwise([{"canary": ""}, *drafted]):
        same_conversation = before["canary"].partition("+")[0] == after["canary"].partition("+")[0]
        differing, total = counts[same_conversation]
        counts[same_conversation] = differing + (after["answer"]["text"] != plain[after["canary"]]), total + 1
    return counts


def test_the_version_that_stores_drafted_caches_is_found(project: ProjectFolder, wheels: Path) -> None:
    """
    mlx-lm 0.31.1 with its server repaired by hand, 0.31.1 and 0.32.2: the search names 0.31.1.
    """
    # A development version, as `==0.31.1` would take 0.31.1+repaired, too.
    changed(downloaded("0.31.1", wheels), "0.31.1.dev0+repaired", {"mlx_lm/server.py": (STORES, KEEPS_NOTHING)}, {})
    extra = "[cpu]" if sys.platform == "linux" else ""
    versions = (("0.31.1.dev0+repaired", "0.31.1"), ("0.31.1", "0.31.1"), ("0.32.2", "0.32.4"))

    document = search(project, wheels, [f"mlx-lm=={lm} mlx{extra}=={mlx}" for lm, mlx in versions])

    assert (f"mlx-lm==0.31.1 mlx{extra}==0.31.1", 0) == (document["first_bad"], document["exit_code"])
    repaired, *other_shares = [step["center"] for step in document["steps"]]
    assert repaired == 1.0
    assert max(other_shares) < 0.5


def test_the_release_that_made_nearly_every_answer_wrong_is_found(project: ProjectFolder, wheels: Path) -> None:
    """
    0.23.2, the first release with a draft in its server, answers a repeated prompt wrongly; 0.24.1, which shares the
    beginnings of prompts, changes nearly all canaries: the search names it.
    """
    newer = downloaded("0.24.0", wheels)
    with zipfile.ZipFile(newer) as content:
        qwen3 = {QWEN3: content.read(QWEN3)}
    for wheel in (newer, *(downloaded(version, wheels) for version in ("0.23.2", "0.24.1"))):
        version = wheel.name.split("-")[1]
        more = qwen3 if version == "0.23.2" else {}
        changed(wheel, f"{version}+cpu", {"mlx_lm/generate.py": (METAL_ONLY, ANYWHERE)}, more)
    versions = (("0.23.2+cpu", "0.25.2"), ("0.24.0+cpu", "0.25.2"), ("0.24.1+cpu", "0.25.2"), ("0.25.3", "0.26.3"))

    document = search(
        project, wheels, [f"mlx-lm=={lm} mlx=={mlx} {OF_THEN}" for lm, mlx in versions], "--at-least", "0.5"
    )

    assert (f"mlx-lm==0.24.1+cpu mlx==0.25.2 {OF_THEN}", 0) == (document["first_bad"], document["exit_code"])
    shares = [step["center"] for step in document["steps"]]
    assert [0.75, 0.75, 0.25, 0.25] == shares
    first, _, shared, _ = (wrong(project.path / "search" / f"step-{number:03}") for number in range(4))
    # Already in 0.23.2 a prompt that is in the cache is answered wrongly, and since 0.24.1 others, too.
    assert first == {True: (3, 4), False: (0, 28)}
    assert shared == {True: (4, 4), False: (12, 28)}


def test_releases_are_searched_as_a_user_types_it(project: ProjectFolder) -> None:
    """
    Releases of the index, the real pair and no further option: the acceptance of 0.31.2 and 0.32.2 is the same, each
    with the mlx that it can decode with.
    """
    slo = str(ROOT / "slos" / "quickstart.toml")
    ends = ("--package", "mlx-lm", "--good", "0.31.2", "--bad", "0.32.2")

    document = project.run("bisect", slo, *ends, "--metric", "acceptance_rate", "--json", "--quiet", code=3).document

    assert document["because"].startswith("acceptance_rate shows no")
    good, bad = document["steps"]
    assert (24, 24) == (good["n"], bad["n"])
    assert good["center"] == pytest.approx(bad["center"], abs=0.01)
    assert "0.31.1" == good["versions"]["mlx"]


@pytest.mark.parametrize("versions", ["0.28.0,0.29.1", "0.30.4,0.32.0"])
def test_releases_of_the_index_are_measured(versions: str, project: ProjectFolder) -> None:
    """
    Rows of the docs: each release accepts as much as any other, and its cache changes most answers.
    """
    slo = str(ROOT / "slos" / "quickstart.toml")
    words = ("--package", "mlx-lm", "--versions", versions, "--workload", "code", "--json", "--quiet")

    counted = project.run("bisect", slo, *words, "--metric", "acceptance_rate", code=3).document
    cached = project.run("bisect", "slo.toml", *words, "--metric", "warm_cache_agreement", code=3).document

    assert ["0.922", "0.922"] == [f"{step['center']:.3f}" for step in counted["steps"]]
    assert [0.25 if "0.28.0" in step["name"] else 0.125 for step in cached["steps"]] == [
        step["center"] for step in cached["steps"]
    ]


def test_the_lighter_draft_of_the_quickstart_is_accepted_less_often(project: ProjectFolder) -> None:
    """
    Two drafts side by side on the real mlx-lm: the figure of the docs, which counts no time, and equal answers.
    """
    sides = ("../models/little-draft", "../models/little-draft-lite")
    slo = str(ROOT / "slos" / "quickstart.toml")

    document = project.run("versus", *sides, "--slo", slo, "--seconds", "1", "--json", "--quiet", code=0).document

    rows = {metric["metric"]: metric for metric in document["metrics"]}
    assert ("0.994", "worse") == (f"{rows['acceptance_rate']['center']:.3f}", rows["acceptance_rate"]["says"])
    assert 1.0 == rows["token_agreement"]["center"]
