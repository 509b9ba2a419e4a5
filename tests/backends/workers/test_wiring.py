"""Memory that the mlx worker has the GPU keep."""

import pytest

pytest.importorskip("mlx.core")

import mlx.core as mx

from gatekeeper.backends.workers import mlx_lm

pytestmark = pytest.mark.mlx


@pytest.mark.parametrize(("metal", "limits"), [(True, [17_000_000_000]), (False, [])])
def test_memory_is_wired_once_where_there_is_metal(
    monkeypatch: pytest.MonkeyPatch, metal: bool, limits: list[int]
) -> None:
    """Up to Metal's recommended working set, as mlx_lm.server does; nothing elsewhere."""
    wired: list[int] = []
    monkeypatch.setattr(mx.metal, "is_available", lambda: metal)
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 17_000_000_000})
    monkeypatch.setattr(mx, "set_wired_limit", wired.append)

    mlx_lm.wire_once()

    assert limits == wired
