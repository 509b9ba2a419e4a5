"""`gatekeeper doctor`, `--version`, and the words that a shell completes."""

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.metrics import ALL
from gatekeeper.run.start.versions import PACKAGES
from tests.builders import mac_tools
from tests.builders.project_folder import ProjectFolder


@pytest.fixture
def bare(project: ProjectFolder) -> ProjectFolder:
    """A project folder where PATH holds one server and nothing else, and whose home has no models."""
    mac_tools.write_tools(project.path / "bin", {"llama-server": ""})
    return project.with_environment(PATH=str(project.path / "bin"), HOME=str(project.path))


def test_every_server_and_host_objective_is_looked_at(bare: ProjectFolder) -> None:
    """What is there has its place, what is missing what needs it and the command that fixes it; then what to do."""
    items = bare.run("doctor", "--json", code=0).document["items"]
    text = bare.run("doctor", code=0).out

    by_use = {item["needed_for"]: item for item in items}
    server = by_use["backend llama-server"]
    assert (str(bare.path / "bin" / "llama-server"), None) == (server["found"], server["fix"])
    assert {f"backend {name}" for name in SERVERS if dialect_of(name).program} <= by_use.keys()
    assert {f"objective {metric.name}" for metric in ALL if metric.host} <= by_use.keys()
    assert [] == [item["what"] for item in items if (item["found"] is None) != (item["fix"] is not None)]
    assert dialect_of("mtplx").install == by_use["backend mtplx"]["fix"]
    ready, missing, following = text.splitlines()[-3:]
    assert "llama-server" in ready.removeprefix("ready for: certify with ")
    assert ("no model" in missing, "next: gatekeeper init") == (True, following)
    assert "mtplx" not in text.partition("what is missing, and what to do")[2]  # nothing here asks for it


FREE = {"File_backed_pages": 100_000, "Anonymous_pages": 700_000}
UNREAD = {"vm_stat": "echo Statistik", "macmon": """echo '{"cpu_power": 0, "gpu_power": 9, "all_power": 9}'"""}
MACS: dict[str, tuple[dict[str, str], str, str, bool]] = {
    "2 GB free": (
        {"vm_stat": mac_tools.prints(mac_tools.vm_stat(Pages_free=9_000, **FREE)), "sysctl": mac_tools.sysctl_script()},
        "free memory", "2.03 GB is free", True,
    ),
    "memory enough": (
        {"vm_stat": mac_tools.prints(mac_tools.vm_stat(Pages_free=290_000, **FREE)),
         "sysctl": mac_tools.sysctl_script()},
        "free memory", "most is held by", False,
    ),
    "a warm MacBook Air": (
        {"sysctl": mac_tools.sysctl_script(hw__model="Mac16,12")}, "cool", "this Mac has no fan", True
    ),
    "a warm mini": ({"sysctl": mac_tools.sysctl_script(hw__model="Mac16,10")}, "cool", "level 1", False),
    "low power": ({"pmset": "echo ' powermode 1'"}, "full speed", "", True),
    "on the battery": (
        {"pmset": "echo \"Now drawing from 'Battery Power'\""}, "mains power", "connect the charger", True
    ),
    "output that nothing reads": (UNREAD, "memory_headroom", "gatekeeper selftest", True),
    "counters that read 0": (UNREAD, "power_mean", "system_power_mean", True),
}  # fmt: skip
"""The tools of a Mac, the item, what it says, and whether it is missing."""


@pytest.mark.parametrize("name", MACS)
def test_what_a_mac_lacks_is_named_with_its_remedy(bare: ProjectFolder, name: str) -> None:
    """Memory that others hold, heat, settings that slow a Mac down, and tools whose output nothing reads."""
    tools, what, words, missing = MACS[name]
    mac_tools.write_tools(bare.path / "bin", tools)
    if what == "cool":
        mac_tools.build_library(bare.path / "bin")
    mac = bare.with_environment(GATEKEEPER_HOST_AS="macos", **({"STAND_IN": "warm"} if what == "cool" else {}))

    items = mac.run("doctor", "--json", code=0).document["items"]

    item: dict[str, Any]
    (item,) = [item for item in items if what in {item["what"], item["needed_for"].removeprefix("objective ")}]
    assert missing == (item["found"] is None)
    assert words in (item["fix"] or item["found"])
    assert "brew install" not in (item["fix"] or "")


def test_the_version_tells_what_a_bug_report_needs(project: ProjectFolder) -> None:
    """One line each, our own first; and no heavy package is imported for it."""
    script = (
        "import sys\nfrom gatekeeper.cli.main import run\n"
        "code = run(['--version'])\n"
        "heavy = ('mlx', 'mlx_lm', 'numpy', 'transformers', 'importlib.metadata', 'gatekeeper.host', 'pydantic_core')\n"
        "print(code, [name for name in heavy if name in sys.modules])"
    )

    ran = subprocess.run(
        [sys.executable, "-c", script], env=project.environment, capture_output=True, text=True, timeout=60, check=True
    )

    lines = [line.split(" ", 1) for line in ran.stdout.splitlines()]
    assert ["gatekeeper", "rules", "python", "mlx", "mlx-lm", "numpy", "os", "chip"] == [line[0] for line in lines[:-1]]
    assert {name: version(name) for name in PACKAGES} == {name: dict(lines[:-1])[name] for name in PACKAGES}
    assert ["0", "[]"] == lines[-1]


def test_the_version_names_a_macs_system_and_chip(bare: ProjectFolder) -> None:
    """They come from one call of sysctl; where a key is missing, or sysctl itself, they are not found."""
    mac, printed = bare.with_environment(GATEKEEPER_HOST_AS="macos"), []
    for script in (mac_tools.sysctl_script(), mac_tools.sysctl_script(kern__osversion=None), "exit 1"):
        mac_tools.write_tools(bare.path / "bin", {"sysctl": script})
        printed.append(mac.run("--version", code=0).out.splitlines()[-2:])

    absent = ["os macOS", "chip not found"]
    assert [["os macOS 26.1 25B70", "chip Apple M4"], absent, absent] == printed


def test_click_completes_words_in_a_shell(project: ProjectFolder) -> None:
    """The line in docs/install.md for zsh: click prints the words after the cursor."""
    words = {"_GATEKEEPER_COMPLETE": "zsh_complete", "COMP_WORDS": "gatekeeper certify --res", "COMP_CWORD": "2"}

    printed = subprocess.run(
        [sys.executable, "-m", "gatekeeper"], env={**project.environment, **words}, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip

    assert "--resume" in printed.stdout.splitlines()
