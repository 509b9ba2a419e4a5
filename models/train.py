"""The little pair's training: from a seed to mlx-lm model folders, on the CPU, the same bytes each time."""

import os

# Set before numpy is loaded: one thread and one kind of kernel, so that sums are added in the same order whatever the
# number of cores and the newest instructions of the CPU (x86 with AVX2; elsewhere numpy ignores it).
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OPENBLAS_CORETYPE"] = "Haswell"

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from jinja2 import Environment
from mlx.utils import tree_flatten
from mlx_lm.models import qwen3
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `python models/train.py` finds its neighbours

from models.corpus import Example, training_examples
from models.learning import Tokens, batches, fit
from models.vocabulary import CHAT_TEMPLATE, END, build_tokenizer, write_tokenizer

Weights = dict[str, NDArray[np.float32]]

# How often each workload comes up: the target sees the hard ones more often, a draft little of what it cannot learn.
TARGET_SHARES = {"json": 1.0, "tools": 1.0, "code": 1.0, "list": 0.8, "math": 2.0, "prose": 0.5, "random": 1.5}
DRAFT_SHARES = {"json": 1.6, "tools": 1.0, "code": 1.6, "list": 1.4, "math": 0.7, "prose": 0.4, "random": 0.1}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one model folder is made from."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    steps: int
    examples: int
    shares: dict[str, float] = field(default_factory=lambda: DRAFT_SHARES)
    copying: bool = False  # begin with a circuit that copies (see `wire_copying`)
    depth: int | None = None  # after training, expand to this many layers without changing an answer
    vocabulary: tuple[str, int] = ("tokenizer", 1024)  # seed and limit; models that share it can draft for each other


TARGET = Recipe(
    layers=4,
    width=128,
    heads=2,
    kv_heads=2,
    head_width=64,
    steps=1200,
    examples=14_000,
    shares=TARGET_SHARES,
    copying=True,
    depth=8,
)
DRAFT = Recipe(layers=1, width=64, heads=2, kv_heads=1, head_width=32, steps=1500, examples=14_000)
LITE = replace(DRAFT, width=32, heads=1, steps=1000)
BAD = replace(DRAFT, steps=25, examples=2_000)
ALIEN = replace(LITE, steps=100, examples=2_000, vocabulary=("alien", 512))
RECIPES = {
    "little-target": TARGET,
    "little-draft": DRAFT,
    "little-draft-lite": LITE,
    "little-draft-bad": BAD,
    "little-draft-alien": ALIEN,
}


def tokenize(examples: Iterator[Example], count: int, tokenizer: Any) -> list[Tokens]:
    """Render *count* examples as the chat template does, and split prompt from answer."""
    # The settings under which transformers renders a chat template; tojson is not used on a first turn.
    render = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False).from_string(CHAT_TEMPLATE).render  # noqa: S701
    rows = []
    for example in islice(examples, count):
        prompt = render(messages=example.messages, tools=list(example.tools), add_generation_prompt=True)
        rows.append(Tokens(tokenizer.encode(prompt).ids, tokenizer.encode(example.answer + END).ids))
    return rows


def configuration(recipe: Recipe, vocabulary: int, layers: int, end: int) -> dict[str, Any]:
    """Describe a Qwen3 model of this shape, as its `config.json`."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": recipe.width,
        "num_hidden_layers": layers,
        "intermediate_size": 2 * recipe.width,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.kv_heads,
        "head_dim": recipe.head_width,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocabulary,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "rope_theta": 10000.0,
        "torch_dtype": "float32",
        "eos_token_id": end,
    }


def blank(config: dict[str, Any]) -> Any:
    """Make a model of this shape; its weights are still to come."""
    return qwen3.Model(qwen3.ModelArgs.from_dict(config))


def initial_weights(config: dict[str, Any], chance: np.random.Generator) -> Weights:
    """Unit-variance matrices, quieter where they write to the residual stream; norms stay at one."""
    weights: Weights = {}
    for name, value in tree_flatten(blank(config).parameters()):
        weights[name] = np.ones(value.shape, np.float32)
        if value.ndim == 2:
            scale = value.shape[1] ** -0.5
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                scale *= (2 * config["num_hidden_layers"]) ** -0.5
            weights[name] = (chance.standard_normal(value.shape) * scale).astype(np.float32)
    return weights


def wire_copying(weights: Weights, config: dict[str, Any], chance: np.random.Generator) -> Weights:
    """Begin with an induction circuit: "find where this token stood before, and say what followed it".

    Copying is what JSON, tool calls and random codes need, and it is what a small model otherwise takes hours to find.
    Block 0 writes the tokens one and two places back into two subspaces of each position; block 1 looks for a position
    whose predecessor is the current token (and, half of its second head, whose last two are the current last two) and
    writes that position's token to the output. Training is free to change all of it.
    """
    width, head = config["hidden_size"], config["head_dim"]
    half = head // 2
    if config["num_attention_heads"] < 2 or config["num_key_value_heads"] != config["num_attention_heads"]:
        raise ValueError("wire_copying needs two heads with keys of their own; raise kv_heads in the recipe")

    def rotation() -> NDArray[np.float64]:
        return np.linalg.qr(chance.standard_normal((width, width)))[0]

    wired = {
        # the other blocks speak softly at first, so that the circuit is heard
        name: value * np.float32(0.1) if name.endswith(("o_proj.weight", "down_proj.weight")) else value.copy()
        for name, value in weights.items()
    }
    # one feature that every token has: a handle for "from wherever I am"
    wired["model.embed_tokens.weight"][:, 0] = 4 * width**-0.5
    token = rotation()[:head]  # what of a token is carried back
    places = (rotation(), rotation())  # where "one back" and "two back" are written
    result = rotation()
    frequencies = config["rope_theta"] ** (-np.arange(half) / half)

    def attention(block: int) -> dict[str, NDArray[np.float32]]:
        prefix = f"model.layers.{block}.self_attn."
        for norm in ("q_norm", "k_norm"):
            wired[f"{prefix}{norm}.weight"][:] = 2.5  # sharp enough to pick one position
        for part in "qk":
            wired[f"{prefix}{part}_proj.weight"] *= 0.2
        return {part: wired[f"{prefix}{part}_proj.weight"] for part in "qkvo"}

    back = attention(0)
    fast = np.arange(8)  # the quickest rotary frequencies tell neighbours apart
    for number, place in enumerate(places):
        rows, steps = slice(number * head, (number + 1) * head), number + 1
        back["q"][rows, 0] = back["k"][rows, 0] = 0
        back["q"][number * head + fast, 0] = np.cos(-frequencies[fast] * steps)
        back["q"][number * head + fast + half, 0] = np.sin(-frequencies[fast] * steps)
        back["k"][number * head + fast, 0] = 1
        back["v"][rows] = token
        back["o"][:, rows] = place @ token.T / width**0.5

    match = attention(1)
    slow = np.r_[half // 2 : half, half + half // 2 : head]  # slow frequencies hardly care where the match stands
    reader = token[: len(slow)]
    one_back, two_back = reader @ places[0].T, reader @ places[1].T
    match["q"][slow], match["k"][slow] = reader, one_back
    front, rear = head + slow[: half // 2], head + slow[half // 2 :]
    match["q"][front], match["k"][front] = reader[: half // 2], one_back[: half // 2]
    match["q"][rear], match["k"][rear] = one_back[: half // 2], two_back[: half // 2]
    for number in (0, 1):
        rows = slice(number * head, (number + 1) * head)
        match["v"][rows] = result[rows]
        match["o"][:, rows] = 2 * result[rows].T / width**0.5
    return wired


def expand(weights: dict[str, mx.array], layers: int, depth: int) -> dict[str, mx.array]:
    """Put silent copies before each block, so that the model costs *depth* layers and answers exactly as before."""
    if depth % layers:
        raise ValueError(f"depth {depth} is no multiple of {layers} layers")
    times = depth // layers
    deeper = {}
    for name, value in weights.items():
        head, _, rest = name.partition(".layers.")
        if not rest:
            deeper[name] = value
            continue
        block, _, part = rest.partition(".")
        for copy in range(times):
            silent = copy < times - 1 and part in {"self_attn.o_proj.weight", "mlp.down_proj.weight"}
            deeper[f"{head}.layers.{int(block) * times + copy}.{part}"] = mx.zeros_like(value) if silent else value
    return deeper


def build(name: str, recipe: Recipe, folder: Path) -> None:
    """Train one recipe and write its model folder."""
    seed, limit = recipe.vocabulary
    tokenizer = build_tokenizer(limit, seed)
    end = tokenizer.token_to_id(END)
    rows = tokenize(training_examples(f"{name} examples", recipe.shares), recipe.examples, tokenizer)
    chance = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]))
    config = configuration(recipe, tokenizer.get_vocab_size(), recipe.layers, end)
    weights = initial_weights(config, chance)
    if recipe.copying:
        weights = wire_copying(weights, config, chance)
    model = blank(config)
    model.load_weights([(key, mx.array(value)) for key, value in weights.items()])
    fit(model, batches(rows, chance), recipe.steps, name)
    trained = dict(tree_flatten(model.parameters()))
    if recipe.depth is not None:
        trained = expand(trained, recipe.layers, recipe.depth)
        config = configuration(recipe, tokenizer.get_vocab_size(), recipe.depth, end)
    write_tokenizer(tokenizer, folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    mx.save_safetensors(str(folder / "model.safetensors"), trained, metadata={"format": "mlx"})


def write_sums(out: Path) -> None:
    """Write `SHA256SUMS` of every file in the model folders, readable by `sha256sum --check`."""
    files = sorted(file for name in RECIPES for file in (out / name).glob("*") if file.is_file())
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(out).as_posix()}\n" for file in files]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Train the models asked for, then write the sums of all that are there."""
    parser = argparse.ArgumentParser(description="Train the little pair with MLX on the CPU.")
    parser.add_argument("--out", type=Path, default=Path("models"), help="where the model folders go (default: models)")
    parser.add_argument("--only", choices=sorted(RECIPES), action="append", help="only this model; may be repeated")
    chosen = parser.parse_args()
    mx.set_default_device(mx.cpu)  # on a Mac too: the GPU adds in another order
    for name in chosen.only or RECIPES:
        started = time.monotonic()
        build(name, RECIPES[name], chosen.out / name)
        print(f"{name}: written in {time.monotonic() - started:.0f} s", flush=True)
    write_sums(chosen.out)


if __name__ == "__main__":
    main()
