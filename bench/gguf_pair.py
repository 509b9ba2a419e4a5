"""Whether the little target as GGUF in llama-server answers like in mlx-lm: prompts, tokens, greedy answers."""

import argparse
import json
import platform
import shutil
import sys
import tempfile
from importlib.metadata import version
from os import environ
from pathlib import Path
from typing import Any

import httpx2
import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import generate_step

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it runs as a script, from anywhere

from gatekeeper.backends.http import control_requests  # noqa: E402
from gatekeeper.backends.listening_process import HOST, free_port  # noqa: E402
from gatekeeper.backends.server_process import launch  # noqa: E402
from models.corpus import WORKLOADS  # noqa: E402
from tools import write_gguf  # noqa: E402

NEAR_TIE = 0.001
"""A lead of the best logit that other kernels, which sum in another order, may turn."""


class Server:
    """A llama-server with the little target; plain, unless *options* name a draft."""

    def __init__(self, program: str, target: Path, log: Path, *options: str) -> None:
        port = free_port()
        # Keys and values as exact as in mlx-lm, which keeps the type of the weights.
        exact = (
            "--cache-type-k",
            "f32",
            "--cache-type-v",
            "f32",
            "--ctx-size",
            "2048",
            "--parallel",
            "1",
            "--threads",
            "1",
        )
        command = (program, "--model", str(target), "--port", str(port), "--offline", "--jinja", *exact, *options)
        self._launched = launch(
            command,
            log=log,
            ready=lambda _: control_requests.status(f"http://{HOST}:{port}/health", {}) == 200,
            start_timeout=60,
            install="see tools/build_llama_server",
        )
        self._client = httpx2.Client(base_url=f"http://{HOST}:{port}", timeout=60)

    def ask(self, path: str, document: dict[str, Any]) -> Any:
        """Return the server's answer to one request."""
        return self._client.post(path, json=document).raise_for_status().json()

    def close(self) -> None:
        """End it."""
        self._client.close()
        self._launched.close()


def greedy(model: Any, prompt: list[int], limit: int, ends: set[int]) -> tuple[list[int], list[float]]:
    """Return mlx-lm's tokens, and by how much the best logit led at each."""
    tokens, leads = [], []
    for token, scores in generate_step(mx.array(prompt), model, max_tokens=limit):
        best = mx.sort(scores)[-2:]
        tokens.append(int(token))
        leads.append(float(best[1] - best[0]))
        if tokens[-1] in ends:
            break
    return tokens, leads


def compare(
    server: Server, model: Any, tokenizer: Any, canary: dict[str, Any]
) -> tuple[bool, bool, bool, float | None]:
    """Return whether template, prompt tokens and answer agree, and the lead where the answers part."""
    tools = {"tools": canary["tools"]} if canary.get("tools") else {}
    text = tokenizer.apply_chat_template(canary["messages"], **tools, add_generation_prompt=True, tokenize=False)
    prompt = tokenizer.encode(text, add_special_tokens=False)
    templated = server.ask("/apply-template", {"messages": canary["messages"], **tools})["prompt"]
    read = server.ask("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]
    asked = {"prompt": prompt, "n_predict": canary["max_tokens"], "temperature": 0, "cache_prompt": False}
    theirs = server.ask("/completion", {**asked, "return_tokens": True})["tokens"]
    mine, leads = greedy(model, prompt, canary["max_tokens"], tokenizer.eos_token_ids)
    ends = tokenizer.eos_token_ids
    mine, theirs = ([token for token in tokens if token not in ends] for tokens in (mine, theirs))
    if mine == theirs:
        return text == templated, prompt == read, True, None
    shared = next((at for at, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]), None)
    return text == templated, prompt == read, False, leads[min(len(mine), len(theirs)) if shared is None else shared]


def main() -> None:
    """Print one line a kind of work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--count", type=int, default=96, help="canaries per kind")
    count = parser.parse_args().count
    program = environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    if program is None:
        raise SystemExit("no llama-server: set LLAMA_SERVER, e.g. to what tools/build_llama_server prints")
    model, tokenizer, *_ = load(str(ROOT / "models" / "little-target"))
    print(f"{platform.system()} {platform.machine()}, mlx-lm {version('mlx-lm')}; {count} canaries per kind")
    print("kind      same prompt   same prompt tokens   same answer     differ at near-tie   differ elsewhere")
    with tempfile.TemporaryDirectory() as folder:
        write_gguf.write(ROOT / "models" / "little-target", Path(folder, "little-target.gguf"))
        server = Server(program, Path(folder, "little-target.gguf"), Path(folder, "log"))
        try:
            for kind in WORKLOADS:
                lines = (ROOT / "canaries" / "little" / f"{kind}.jsonl").read_text().splitlines()[:count]
                seen = [compare(server, model, tokenizer, json.loads(line)) for line in lines]
                *same, leads = zip(*seen, strict=True)
                parted = [lead for lead in leads if lead is not None]
                near = sum(lead <= NEAR_TIE for lead in parted)
                row = (*(sum(map(bool, one)) for one in same), near, len(parted) - near)
                cells = (f"{cell:>{width}}" for cell, width in zip(row, (13, 21, 14, 23, 19), strict=True))
                print(f"{kind:<8}{''.join(cells)}", flush=True)
        finally:
            server.close()


if __name__ == "__main__":
    main()
