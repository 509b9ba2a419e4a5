"""The memory fit: weights, caches, allowance, load and headroom against what a machine has."""

from typing import Any

import pytest

from gatekeeper.analysis.plan.complaints import memory_fit
from gatekeeper.analysis.plan.complaints.complaint import Complaint
from gatekeeper.backends.models.artifacts import cache_shape
from gatekeeper.core.canary import Canary
from gatekeeper.core.manifest import Model, Shape
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import show_bytes
from tests.builders.golden_words import says

GIB = 2.0**30
DENSE = Shape(layers=36, kv_heads=8, head_dim=128, value_bytes=2, every_layer=True)


def model(name: str, size: float, shape: Shape | None = DENSE) -> Model:
    return Model(
        name=name,
        digest="",
        files={},
        bytes=round(size),
        quantisation="4-bit g64",
        vocabulary=151936,
        tokens_sha256=None,
        template_sha256=None,
        shape=shape,
    )


def slo(**changes: Any) -> Slo:
    return Slo.model_validate(
        {
            "schema": 1,
            "name": "s",
            "subject": {"backend": "mlx", "target": "t", "drafts": ["d"]},
            "workload": [{"name": "w", "canaries": "w.jsonl"}],
            "objective": [{"metric": "memory_headroom", "at_least": "10 GB", "why": "w"}],
            **changes,
        }
    )


CANARIES = {"w": (Canary(id="a", messages=({"role": "user", "content": "x" * 2958},), max_tokens=256),)}
CACHE = 2 * 36 * 8 * 128 * 2 * (round((2958 + 33) / 3) + 64 + 256)
"""Bytes of one model's keys and values for the one canary and its answer."""


def fitted(
    promised: Slo, target: Model, *drafts: Model, memory: float | None = 24 * GIB, **more: Any
) -> memory_fit.MemoryFit:
    more = {"background": 4e9, "shares_process": True, **more}
    fit = memory_fit.estimate_fit(promised, CANARIES, target, drafts, memory=memory, **more)
    assert fit is not None
    return fit


def test_a_pair_that_fits_is_added_up_and_not_complained_of() -> None:
    """Weights, caches, allowance, background and the promised headroom are in the sum: the cache once for each stream,
    the system's own share, and the target twice where the arms cannot share a process.
    """
    fit = fitted(slo(), model("t", 4.6e9), model("d", 0.6e9))
    share = memory_fit.system_share(slo(host={"chip": "Apple M4"}), "linux")
    alone, crowd, mac, twice = (
        fitted(written, model("t", 12e9), **more).needed
        for written, more in (
            (slo(), {}),
            (slo(soak={"concurrency": 8}), {}),
            (slo(), {"system": share}),
            (slo(), {"shares_process": False}),
        )
    )

    assert 4.6e9 + 0.6e9 + 2 * CACHE + 1e9 + 4e9 + 10e9 == pytest.approx(fit.needed, rel=1e-3)
    assert [] == memory_fit.complaints(fit)
    assert (7 * CACHE, share) == pytest.approx((crowd - alone, mac - alone))
    assert share == memory_fit.system_share(slo(), "macos") > memory_fit.system_share(slo(), "linux") > 0
    assert twice > alone + 1e9


def test_a_floor_that_cannot_be_kept_ends_the_run() -> None:
    """Weights and load alone leave less than the floor: who holds the rest is named, and the line of the floor that can
    be kept, if there is one, or a command with such a floor. Where only caches and allowances are missing, it is a
    note.
    """
    fit = fitted(slo(), model("t", 4.6e9), model("d", 0.6e9))
    held = 4.6e9 + 0.6e9 + 4e9

    def short(free: float, easier: str = "") -> Complaint:
        (complaint,) = memory_fit.short_now(
            fit.needed_now, free, lambda: "Xcode 2 GB", floor=10e9, held=fit.held, easier=lambda: easier
        )
        return complaint

    assert held == fit.held
    assert ("not-here", "weak") == (short(held + 10e9 - 1).weight, short(held + 10e9).weight)
    assert "Xcode 2 GB" in short(held + 4.7e9).hint
    (without_models,) = memory_fit.short_now(11e9, 9e9, str, floor=10e9)
    assert "9 GB can be had now, less than the 10 GB of memory_headroom" == without_models.message
    assert 'at_least = "4.5 GB" for memory_headroom' in short(held + 4.7e9).hint
    assert short(held + 4.7e9, "gatekeeper certify b.toml").hint.endswith("all the same: gatekeeper certify b.toml")
    assert short(held).hint.endswith("use a smaller pair, or a lighter profile in [soak]")


def test_models_that_are_not_here_yet_count_by_their_names() -> None:
    """4 B at 4.5 bits, and the heavier draft; a name may tell nothing."""
    subject = {"backend": "mlx", "target": "org/Qwen3-4B-4bit", "drafts": ["org/Qwen3-0.6B-8bit", "draft"]}

    assert 2.25e9 + 0.6375e9 + 1e9 + 4e9 + 10e9 == memory_fit.needed_by_names(slo(subject=subject), 4e9)
    assert 1e9 + 10e9 == memory_fit.needed_by_names(slo(), 0.0)


def test_a_mapped_file_is_no_headroom() -> None:
    """Where headroom is judged and the weights are a mapped file, the plan names their size."""
    (complaint,) = memory_fit.mapped_weights(slo(), model("t", 4.6e9))

    assert ("weak", "memory_headroom") == (complaint.weight, complaint.about.split()[-1])
    assert "4.6 GB" in complaint.message
    assert [] == memory_fit.mapped_weights(slo(), None)
    assert [] == memory_fit.mapped_weights(
        slo(objective=[{"metric": "throughput_ratio", "at_least": 1.1, "why": "w"}]), model("t", 4.6e9)
    )


@pytest.mark.parametrize(
    ("chip", "limit", "weight"),
    [("Apple M4", 12 * GIB, "not-here"), ("Apple M4", None, "weak"), ("Apple M4", 20 * GIB, ""), (None, None, "")],
)
def test_the_gpu_may_not_wire_all_of_the_memory(chip: str | None, limit: float | None, weight: str) -> None:
    """Beyond the limit of wired memory is not for this host; beyond the estimated default, a note."""
    lighter = [{"metric": "memory_headroom", "at_least": "1 GB", "why": "w"}]
    promised = slo(host={"chip": chip} if chip else {}, objective=lighter)

    complaints = memory_fit.complaints(fitted(promised, model("t", 17.5e9), background=0.0, wired_limit=limit))

    assert [complaint.weight for complaint in complaints] == [weight] * bool(weight)
    assert all("iogpu.wired_limit_mb=" in complaint.hint for complaint in complaints)
    assert all(("may let" in complaint.message) == (weight == "weak") for complaint in complaints)


def test_what_the_named_host_can_not_hold_is_refused_everywhere() -> None:
    """A pair that does not fit the SLO's own [host] is an objective no run could prove, and the parts are shown."""
    (complaint,) = memory_fit.complaints(
        fitted(slo(host={"memory_gb": 16}), model("t", 4.6e9), model("d", 0.6e9), memory=64 * GIB)
    )

    assert "never" == complaint.weight
    says("complaints", "what the named host can not hold is refused everywhere", complaint.message)
    for here in (slo(host={"memory_gb": 24}), slo()):
        (small,) = memory_fit.complaints(fitted(here, model("t", 4.6e9), memory=16 * GIB))
        assert "not-here" == small.weight
    short = 4.6e9 + 0.6e9 + 2 * CACHE + 1e9 + 4e9 + 10e9 - 16 * GIB
    assert f"reduce it by {show_bytes(short)}: a smaller" in complaint.hint


def test_an_unknown_memory_or_cache_is_never_taken_for_enough() -> None:
    """A host that does not tell its memory, and a config that does not tell its cache, are said."""
    (host,) = memory_fit.complaints(fitted(slo(), model("t", 1e9), memory=None))
    (cache,) = memory_fit.complaints(fitted(slo(), model("t", 1e9, None)))

    assert ("weak", "weak") == (host.weight, cache.weight)
    says("complaints", "an unknown memory or cache is never taken for enough", host.message)
    assert "target cache unknown" in cache.message


HEADS = {"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
WINDOWED = Shape(layers=2, kv_heads=4, head_dim=8, value_bytes=2, every_layer=False)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}, DENSE),
        (
            {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "torch_dtype": "float32"},
            Shape(layers=2, kv_heads=4, head_dim=16, value_bytes=4, every_layer=True),
        ),
        ({"text_config": {**HEADS, "sliding_window": 512}}, WINDOWED),
        ({**HEADS, "layer_types": ["linear_attention", "full_attention"]}, WINDOWED),
        (
            {**HEADS, "sliding_window": 512, "use_sliding_window": False},
            WINDOWED.model_copy(update={"every_layer": True}),
        ),
        ({"model_type": "mamba"}, None),
        ({"num_hidden_layers": 2, "num_attention_heads": 0, "hidden_size": 64}, None),
    ],
)
def test_the_cache_is_read_from_the_config(config: dict[str, Any], expected: Shape | None) -> None:
    """Layers, heads and their size come from config.json; windows and hybrid layers make it an upper estimate."""
    assert expected == cache_shape(config)
