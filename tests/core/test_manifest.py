"""The manifest: its text, its digests, and what makes two of them incomparable."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.manifest import Manifest, differences, digest_of, seed_of, sha256
from tests.builders import manifest as manifests


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "versions": {"gatekeeper": "1", "numpy": "2"},
        "host": {"chip": "Apple M4", "memory_gb": 24},
        "sampling": {"temperature": 0.0, "seed": 7},
        **changes,
    }
    return manifests.manifest(**fields)


def test_the_digest_does_not_depend_on_key_order() -> None:
    """The same facts in another order are the same manifest."""
    first = manifest(host={"chip": "Apple M4", "memory_gb": 24}, versions={"numpy": "2", "gatekeeper": "1"})
    second = manifest(host={"memory_gb": 24, "chip": "Apple M4"}, versions={"gatekeeper": "1", "numpy": "2"})

    assert sha256(first.text()) == sha256(second.text())
    assert first.text() == Manifest.model_validate_json(first.text()).text()
    assert '"memory_gb": null' in manifest(host={"memory_gb": float("nan")}).text(), "NaN is no JSON"


def test_differences_name_what_makes_two_runs_incomparable() -> None:
    """Another chip and another numpy are named by their part; the time of freezing and the uptime are no difference."""
    changed = manifest(
        host={"chip": "Apple M5", "memory_gb": 24}, versions={"gatekeeper": "1", "numpy": "3"}, frozen_at="later"
    )

    assert ["versions.numpy", "host.chip"] == differences(manifest(), changed)
    assert [] == differences(manifest(), manifest(frozen_at="later"))
    assert ["target"] == differences(manifest(), manifest(target=None))
    assert [] == differences(manifest(), manifest(host={"chip": "Apple M4", "memory_gb": 24, "uptime_s": 5}))


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.text("01", min_size=1, max_size=3), max_size=5))
def test_a_folders_digest_covers_names_and_contents(files: dict[str, str]) -> None:
    """Order does not matter; a renamed or changed file does."""
    assert digest_of(files) == digest_of(dict(reversed(files.items())))
    assert all(digest_of({**files, name: "x"}) != digest_of(files) for name in files)
    assert digest_of({**files, "z": "1"}) != digest_of({**files, "zz": "1"})


def test_the_seed_comes_from_the_manifest() -> None:
    """Other inputs draw other bootstraps, the same inputs the same; a simulated run has the seed of its script."""
    real, simulated = manifest(), manifest(backend="scripted", seed=3)

    assert seed_of(real, "a") == seed_of(real, "a") != seed_of(real, "b")
    assert (3, 3) == (seed_of(simulated, "a"), seed_of(simulated, "b"))
    assert seed_of(manifest(backend="mlx", seed=3), "a") == seed_of(manifest(backend="mlx"), "a") != 3
