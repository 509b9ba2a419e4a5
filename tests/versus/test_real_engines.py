"""Two real engines with the little pair: the one drafts in every answer, the other cannot draft."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper.backends.http import control_requests
from gatekeeper.backends.listening_process import HOST, free_port
from gatekeeper.backends.server_process import ServerProcess, launch
from tests.builders.project_folder import ROOT, project_folder
from tests.builders.real_programs import llama_server
from tools import write_gguf

pytestmark = pytest.mark.mlx

LLAMA = ("--jinja", "--offline", "--no-cache-prompt", "--ctx-size", "2048", "--parallel", "1", "--threads", "1")


def started(folder: Path, *command: str) -> tuple[ServerProcess, str]:
    """Start a server and return it with its address."""
    port = free_port()
    server = launch(
        (*command, "--port", str(port)),
        log=folder / f"{Path(command[0]).name}.log",
        ready=lambda _: control_requests.status(f"http://{HOST}:{port}/health", {}) == 200,
        start_timeout=60,
        install="see tools/build_llama_server",
    )
    return server, f"http://{HOST}:{port}"


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The addresses of mlx_lm.server, and of llama-server with its draft on in every answer."""
    write_gguf.main([str(tmp_path), "little-target", "little-draft"])
    target, draft = (str(tmp_path / f"little-{role}.gguf") for role in ("target", "draft"))
    drafting = ("--model", target, "--spec-type", "draft-simple", "--model-draft", draft)
    mlx = (sys.executable, "-m", "mlx_lm", "server", "--model", str(ROOT / "models" / "little-target"))
    program = llama_server()
    a, address_a = started(tmp_path, *mlx, "--prompt-cache-size", "0")
    try:
        b, address_b = started(tmp_path, program, *drafting, *LLAMA)
        try:
            yield address_a, address_b
        finally:
            b.close()
    finally:
        a.close()


def test_an_engine_that_always_drafts_is_compared_with_another_one(tmp_path: Path, engines: tuple[str, str]) -> None:
    """Their words and right answers are the same; the acceptance of the one stands beside both decode times."""
    project = project_folder(tmp_path)
    canaries = project.path / "json.jsonl"
    lines = (ROOT / "canaries" / "little" / "json.jsonl").read_text().splitlines()
    canaries.write_text("\n".join(lines[:8]))
    words = ("versus", *engines, "--canaries", str(canaries), "--seconds", "1", "--json", "--quiet")

    comparison = project.run(*words, code=0).document

    a, b = (comparison[side]["measured"] for side in "ab")
    assert (8, 8, []) == tuple(comparison["words"][part] for part in ("canaries", "same", "unsteady"))
    assert a["json_pass_rate"]["center"] == b["json_pass_rate"]["center"]
    assert a["acceptance_rate"]["center"] is None
    assert 0.7 < b["acceptance_rate"]["center"] <= 1
    assert [16, 0.0, 16, 0.0] == [side["error_rate"][part] for side in (a, b) for part in ("n", "center")]
    ratios = {row["metric"]: row for row in comparison["metrics"]}
    for name in ("throughput_ratio", "ttft_delta"):
        measured = ratios[name]
        # Beside other tests the times of so few answers may be too unsteady for a ratio; then the reason stands there.
        assert measured["because"] if measured["center"] is None else measured["lo"] < measured["center"]
    assert not comparison["warnings"]
