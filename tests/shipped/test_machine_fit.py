"""What the shipped SLO files say of memory and duration is what gatekeeper computes, without their models."""

import re
from pathlib import Path

import pytest

from gatekeeper.analysis.plan.complaints.memory_fit import complaints, estimate_fit
from gatekeeper.core.manifest import Model, Shape
from gatekeeper.core.system import inputs
from gatekeeper.core.units import BYTES, SECONDS, parse
from gatekeeper.run.plan import forecast

ROOT = Path(__file__).resolve().parents[2]
SAID = {
    path.stem: path.read_text("utf-8")
    for path in sorted((ROOT / "slos").glob("*.toml"))
    if "# Memory: " in path.read_text("utf-8")
}

BILLION = 1e9
PUBLISHED: dict[str, tuple[float, float, Shape | None]] = {
    # Billions of parameters and bits per weight (group scales included), and the cache as config.json describes it.
    "Qwen3-0.6B": (0.6, 16, Shape(layers=28, kv_heads=8, head_dim=128, value_bytes=2, every_layer=True)),
    "Qwen3-1.7B": (1.72, 16, Shape(layers=28, kv_heads=8, head_dim=128, value_bytes=2, every_layer=True)),
    "Qwen3-4B": (4.02, 16, Shape(layers=36, kv_heads=8, head_dim=128, value_bytes=2, every_layer=True)),
    "Qwen3-8B": (8.19, 16, Shape(layers=36, kv_heads=8, head_dim=128, value_bytes=2, every_layer=True)),
    "Qwen3-Coder-30B-A3B": (30.5, 16, Shape(layers=48, kv_heads=4, head_dim=128, value_bytes=2, every_layer=True)),
    "Qwen3-235B-A22B": (235.1, 16, Shape(layers=94, kv_heads=4, head_dim=128, value_bytes=2, every_layer=True)),
    # Linear attention keeps a state of fixed size: its cache is left out.
    "Qwen3.5-9B": (9.4, 16, None),
    "Qwen3.6-27B": (27.3, 4.75, None),
    "qwen3-8b-4bit": (8.19, 16, None),
    # The draft of block diffusion: a few layers as wide as the target's.
    "z-lab/Qwen3-8B-DFlash": (1.05, 16, None),
}
BITS = {"4bit": 4.5, "6bit": 6.5, "8bit": 8.5, "Q4_K_M": 4.85, "Q6_K": 6.56, "Q8_0": 8.5}


def published(name: str) -> Model:
    """Return a model by its public name, as large as its parameters and bits make it."""
    size_name = max((key for key in PUBLISHED if key in name), key=len)
    billions, bits, shape = PUBLISHED[size_name]
    bits = next((width for label, width in BITS.items() if label in name), bits)
    size = round(billions * BILLION * bits / 8)
    return Model(
        name=name, digest="", files={}, bytes=size, quantisation="", vocabulary=151_936,
        tokens_sha256=None, template_sha256=None, shape=shape,
    )  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_the_memory_a_file_speaks_of_is_what_gatekeeper_estimates(name: str) -> None:
    """Weights and caches of the heaviest pair are the figure in the file, and fit its machine."""
    slo_inputs = inputs.read(ROOT / "slos" / f"{name}.toml")
    subject = slo_inputs.slo.subject
    shares = subject.backend in {"mlx", "zlab-dflash", "mtplx", "lmstudio"}
    drafts = [published(draft) for draft in subject.drafts if "/" in draft]

    fit = estimate_fit(
        slo_inputs.slo, slo_inputs.canaries, published(subject.target), drafts,
        background=slo_inputs.profile.background.memory, memory=1e12, shares_process=shares,
    )  # fmt: skip

    memory_line = re.search(r"^# Memory: ([0-9.]+ GB)", SAID[name], re.MULTILINE)
    assert fit is not None
    assert memory_line is not None
    pair = sum(part.bytes or 0.0 for part in fit.parts if part.name.startswith(("target", "draft")))
    assert pytest.approx(pair, rel=0.02) == parse(memory_line[1], BYTES), fit.text()
    assert [] == [complaint for complaint in complaints(fit) if complaint.weight == "never"]


@pytest.mark.parametrize("name", SAID)
def test_the_duration_a_file_speaks_of_is_what_plan_says(name: str) -> None:
    """With the speed that a file assumes, `gatekeeper plan` says what its header does, to 2 %."""
    duration_line = re.search(
        r'^# Duration: at most ([0-9.]+ (?:h|min)) \(gatekeeper plan(?: --assume "([0-9]+) tok/s")?\)',
        SAID[name],
        re.MULTILINE,
    )
    assert duration_line is not None

    document, _ = forecast(ROOT / "slos" / f"{name}.toml", float(duration_line[2]) if duration_line[2] else None)

    assert pytest.approx(document["expected_total_seconds"], rel=0.02) == parse(duration_line[1], SECONDS)


@pytest.mark.parametrize("name", ["dflash-mlx", "llama-server", "llama-server-mtp", "m2-ultra-64gb-gguf", "ollama"])
def test_no_soak_waits_for_what_cannot_come(name: str) -> None:
    """Where plain decoding has its own process, no soak lasts until max_duration."""
    slo_inputs = inputs.read(ROOT / "slos" / f"{name}.toml")
    document, _ = forecast(ROOT / "slos" / f"{name}.toml", 60.0)

    assert document["expected_seconds"]["soak"] < slo_inputs.slo.soak.max_duration
