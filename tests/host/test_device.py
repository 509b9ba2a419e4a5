"""The device that computes, as the manifest holds it."""

import json
from pathlib import Path
from typing import Any

import pytest

from gatekeeper import host
from gatekeeper.host import host_facts
from gatekeeper.host.host_facts import FROM_METAL, FROM_SYSCTL, _ask_metal, cuda, metal
from gatekeeper.host.tool_commands import Output
from tests.builders import mac_tools
from tests.host.conftest import StandIn

GIB = 1 << 30


def output(text: str, code: int = 0) -> Output:
    return Output(code, text.encode())


def test_a_linux_machine_without_a_gpu_computes_on_its_processor() -> None:
    """The processor and its memory are named, and nothing is wired for a GPU."""
    facts = {"platform": "linux", "chip": "AMD EPYC", "memory_bytes": 8 * GIB}

    device = host.device(facts)

    if device["kind"] == "cuda":
        pytest.skip("this machine has a CUDA device")
    assert ("cpu", "AMD EPYC", 8 * GIB, None) == tuple(
        device[key] for key in ("kind", "name", "memory_bytes", "wired_limit")
    )


@pytest.mark.parametrize(("limit", "expected"), [("0", (None, None)), ("18000", (18000 << 20, FROM_SYSCTL))])
def test_a_mac_computes_with_metal(healthy_mac: StandIn, limit: str, expected: tuple[Any, Any]) -> None:
    """The chip is the GPU's name; the limit is that of sysctl, where 0 stands for a default that it does not tell."""
    healthy_mac("sysctl", mac_tools.sysctl_script(iogpu__wired_limit_mb=limit))

    device = host.device(host.facts("macos"))

    assert ("metal", "Apple M4") == (device["kind"], device["name"])
    assert expected == (device["wired_limit"], device["wired_limit_from"])


@pytest.mark.parametrize("told_by", ["mx", "mx.metal"])
def test_metal_is_asked_through_mlx(
    healthy_mac: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told_by: str
) -> None:
    """A library in MLX's place, of a newer and of an older release, runs in a process of its own: its working set wins
    over what sysctl leaves open, and is what a plan holds its weights against.
    """
    healthy_mac("sysctl", mac_tools.sysctl_script())
    metal_facts = {"device_name": "Apple M2 Pro", "memory_size": 32 * GIB, "max_recommended_working_set_size": 22 * GIB}
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").touch()
    says = f"def device_info(): return {metal_facts}\n"
    metal_says = "import types\nmetal = types.SimpleNamespace(device_info=device_info)\ndel device_info\n"
    (tmp_path / "mlx" / "core.py").write_text(says + (metal_says if told_by == "mx.metal" else ""))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    facts = host.facts("macos")
    monkeypatch.setattr(host_facts, "is_real_mac", lambda: True)
    _ask_metal.cache_clear()

    device = host.device(facts)
    _ask_metal.cache_clear()

    assert ("Apple M2 Pro", 22 * GIB, FROM_METAL) == tuple(
        device[key] for key in ("name", "wired_limit", "wired_limit_from")
    )


def test_metal_says_what_it_recommends() -> None:
    """The working set that Metal recommends is the limit of wired memory; without it, or damaged, nothing is taken."""
    metal_facts = {"device_name": "Apple M4", "memory_size": 24 * GIB, "max_recommended_working_set_size": 16 * GIB}
    expected = {"name": "Apple M4", "memory_bytes": 24 * GIB, "wired_limit": 16 * GIB, "wired_limit_from": FROM_METAL}

    assert expected == metal(output(json.dumps(metal_facts)))
    for text, code in (("{}", 0), ("[1]", 0), ("{", 0), (json.dumps(metal_facts), 1)):
        assert {} == metal(output(text, code))
    assert {} == metal(output('{"max_recommended_working_set_size": true}'))
    assert {} == metal(None)


def test_cuda_devices_are_named_with_the_memory_of_the_first() -> None:
    """One line a device; what is no such line is left out."""
    device = cuda(output("NVIDIA L4, 23034\nNVIDIA L4, 23034\nsome warning\n"))

    assert {"kind": "cuda", "name": "NVIDIA L4, NVIDIA L4", "memory_bytes": 23034 << 20} == device
    assert {} == cuda(output("no devices were found\n", 6))
    assert {} == cuda(None)
