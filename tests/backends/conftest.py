"""Fixtures of the backends' tests: the little pair, opened backends, and helper programs."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import gatekeeper
from gatekeeper.backends import open_backend
from gatekeeper.core.canary import Canary, parse
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem, SamplingParameters
from gatekeeper.core.records import setting
from gatekeeper.core.slo.subject_table import Subject

ROOT = Path(__file__).resolve().parents[2]
MODELS = {name: ROOT / "models" / name for name in ("little-target", "little-draft", "little-draft-lite")}

# Tests import their helpers as `tests.backends.…`, also where the package under test is an installed wheel.
sys.path.insert(0, str(ROOT))

PLAIN = setting(draft=None)
DRAFTING = setting(draft="little-draft", num_draft_tokens=4)


ELSEWHERE = (
    sys.executable,
    "-c",
    f"""\
import runpy, sys
sys.path.insert(0, {str(Path(gatekeeper.__file__).parents[1])!r})
runpy.run_module("gatekeeper.backends.workers.mlx_lm", run_name="__main__", alter_sys=True)""",
)
"""Our own mlx worker, started as a program of another environment."""


class SharedBackend:
    """One backend whose systems are started once, and shared by the tests that leave them running."""

    def __init__(self, name: str, folder: Path, models: Mapping[str, Path] = MODELS, **more: Any) -> None:
        """Open the backend *name* on the little pair."""
        self.folder = folder
        (folder / "truth.json").write_text(json.dumps(more.pop("script", {})))
        written = {"backend": name, "target": "little-target", "drafts": ["little-draft", "little-draft-lite"]} | more
        self.written = Subject.model_validate(written | ({"script": "truth.json"} if name == "scripted" else {}))
        self.backend: Backend = open_backend(self.written, models=models, base=folder, logs=folder / "logs")
        self._stack = ExitStack()
        self._systems: dict[str, RunningSystem] = {}

    def system(self, which: Any) -> RunningSystem:
        """Return a running system that can answer *which*."""
        residence = self.backend.residence(which)
        if self.backend.shares_process:
            residence = self.backend.residence(DRAFTING)
        if residence not in self._systems:
            started = self.backend.start(DRAFTING if self.backend.shares_process else which)
            self._systems[residence] = self._stack.enter_context(started)
        return self._systems[residence]

    def close(self) -> None:
        """End every system."""
        self._stack.close()


@pytest.fixture(scope="session")
def shared_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SharedBackend]]:
    """Return a function that opens a backend by its name, once."""
    opened: dict[str, SharedBackend] = {}

    def get(name: str) -> SharedBackend:
        if name != "scripted":
            pytest.importorskip("mlx_lm")
        if name not in opened:
            command: dict[str, Any] = {"command": [*ELSEWHERE, "{target}", "{draft}"]} if name == "worker" else {}
            opened[name] = SharedBackend(name, tmp_path_factory.mktemp(name), **command)
        return opened[name]

    yield get
    for backend in opened.values():
        backend.close()


@cache
def canary(workload: str) -> Canary:
    """Return the first canary of a workload of the little pair."""
    text = (ROOT / "canaries" / "little" / f"{workload}.jsonl").read_text("utf-8")
    return parse(text, workload)[0]


def make_request(workload: str, which: Any, *, max_tokens: int = 96, **sampling: Any) -> DecodeRequest:
    """Return a request of a workload's first canary in the setting *which*, without the canary's own limit."""
    unlimited = canary(workload).model_copy(update={"max_tokens": None})
    return DecodeRequest(unlimited, which, SamplingParameters(max_tokens=max_tokens, **sampling))
