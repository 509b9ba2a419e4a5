"""The patches for mlx-lm: the released package has the error, and a patched copy does not."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.builders.project_folder import ROOT

UPSTREAM = ROOT / "upstream" / "mlx-lm"

pytestmark = [pytest.mark.mlx, pytest.mark.whole, pytest.mark.slow]


def run_python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run Python in *folder*, whose packages come before those installed."""
    environment = os.environ | {"PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=99, check=False)


def differing_repeats(folder: Path) -> int:
    """Return how many of three repeats differ, with the mlx-lm of *folder* or else the installed one."""
    canary = (ROOT / "canaries" / "little" / "code.jsonl").read_text().splitlines()[0]
    pair = [str(ROOT / "models" / name) for name in ("little-target", "little-draft")]
    ran = run_python(folder, str(UPSTREAM / "reproduce.py"), *pair, json.loads(canary)["messages"][0]["content"])
    assert ran.returncode == 0, ran.stderr
    count, of, repeats = ran.stdout.splitlines()[-1].split()[:3]
    assert (of, repeats) == ("of", "3")
    return int(count)


@pytest.mark.nightly
def test_the_released_server_changes_repeated_answers(tmp_path: Path) -> None:
    """The installed mlx_lm.server answers a repeated greedy request differently, because of its prompt cache."""
    assert differing_repeats(tmp_path) > 0


@pytest.mark.nightly
def test_the_patched_server_repeats_its_answers(tmp_path: Path) -> None:
    """Both patches apply to the installed mlx-lm; their own tests pass, and every repeat gets the first answer."""
    spec = find_spec("mlx_lm")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, tmp_path / "mlx_lm", ignore=shutil.ignore_patterns("__pycache__"))
    for patch in sorted(UPSTREAM.glob("*.patch")):
        subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True, timeout=60)

    ran = run_python(tmp_path, "-m", "unittest", "tests/test_server_draft.py")

    assert ran.returncode == 0, ran.stderr
    assert "Ran 3 tests" in ran.stderr
    assert differing_repeats(tmp_path) == 0
