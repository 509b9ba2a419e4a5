"""`gatekeeper doctor`, `--version`, and the words that a shell completes."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from gatekeeper.analysis.plan.complaints.wrong_host import host_doubts
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.metrics import ALL
from gatekeeper.core.slo import Host
from gatekeeper.run.start.doctor import LOW_POWER
from gatekeeper.run.start.versions import PACKAGES
from tests.builders import mac_tools
from tests.builders.project_folder import ProjectFolder


@pytest.fixture
def bare(project: ProjectFolder) -> ProjectFolder:
    """A project folder where PATH holds one server and nothing else, and whose home has no models."""
    folder = project.path / "bin"
    folder.mkdir()
    (folder / "llama-server").write_text("#!/bin/sh\n")
    (folder / "llama-server").chmod(0o755)
    return project.with_environment(PATH=str(folder), HOME=str(project.path))


def test_every_server_and_host_objective_is_looked_at(bare: ProjectFolder) -> None:
    """What is there is shown with its place; what is missing with what needs it and the command that fixes it; exit
    0.
    """
    items = bare.run("doctor", "--json", code=0).document["items"]

    by_use = {item["needed_for"]: item for item in items}
    server = by_use["backend llama-server"]
    assert (str(bare.path / "bin" / "llama-server"), None) == (server["found"], server["fix"])
    started = {name for name in SERVERS if dialect_of(name).program}
    assert {f"backend {name}" for name in started} <= by_use.keys()
    assert {f"objective {metric.name}" for metric in ALL if metric.host} <= by_use.keys()
    assert [] == [item["what"] for item in items if (item["found"] is None) != (item["fix"] is not None)]
    assert dialect_of("mtplx").install == by_use["backend mtplx"]["fix"]


def test_a_mac_without_tools_hears_how_to_get_them(bare: ProjectFolder) -> None:
    """Without macmon or sudo, power is missing: the table lists the commands and the objectives that need them."""
    mac = bare.with_environment(GATEKEEPER_HOST_AS="macos")

    done = mac.run("doctor", code=0)

    assert ["ready for: ", "missing for: ", "next: "] == [
        line.partition(": ")[0] + ": " for line in done.out.splitlines()[-3:]
    ]
    lacking = re.findall(r"^  for (.*):\n +`brew install macmon`", done.out, flags=re.MULTILINE)
    lacks_power = [f"objective {metric}" for metric in ("energy_ratio", "power_mean", "energy_per_token")]
    assert lacks_power in [objectives.split(", ") for objectives in lacking]
    assert "missing" in next(line for line in done.out.splitlines() if "objective power_mean" in line)


def test_a_tool_that_prints_what_nothing_reads_is_not_put_on_path(bare: ProjectFolder) -> None:
    """A tool of a Mac that is there, and whose output is of a version or language not known, is no question of PATH,
    and
    macmon whose counters read 0 need not be installed.
    """
    for name, prints in {"vm_stat": "Statistik", "macmon": '{"cpu_power": 0, "gpu_power": 9, "all_power": 9}'}.items():
        (bare.path / "bin" / name).write_text(f"#!/bin/sh\necho '{prints}'\n")
        (bare.path / "bin" / name).chmod(0o755)

    items = bare.with_environment(GATEKEEPER_HOST_AS="macos").run("doctor", "--json", code=0).document["items"]

    fix = {item["needed_for"].removeprefix("objective "): item["fix"] for item in items if item["kind"] == "host"}
    assert "gatekeeper selftest" in fix["memory_headroom"]
    assert "system_power_mean" in fix["power_mean"]
    assert "brew install" not in fix["power_mean"]
    assert "gatekeeper selftest" in fix["memory_pressure_critical"]


@pytest.mark.parametrize(("free", "short"), [(9_000, True), (290_000, False)])
def test_a_mac_that_others_have_filled_is_told_what_holds_its_memory(
    bare: ProjectFolder, free: int, short: bool
) -> None:
    """With 2 of 24 GB free no run keeps the headroom that init writes: it is missing, and who holds most is named."""
    rows = {"Pages_free": free, "File_backed_pages": 100_000, "Anonymous_pages": 700_000}
    for name, script in {
        "vm_stat": mac_tools.prints(mac_tools.vm_stat(**rows)),
        "sysctl": mac_tools.sysctl_script(),
    }.items():
        (bare.path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (bare.path / "bin" / name).chmod(0o755)

    items = bare.with_environment(GATEKEEPER_HOST_AS="macos").run("doctor", "--json", code=0).document["items"]

    (memory,) = [item for item in items if item["what"] == "free memory"]
    assert short == (memory["found"] is None) == ("2.03 GB is free" in (memory["fix"] or ""))
    assert "most is held by" in (memory["fix"] or memory["found"])


@pytest.mark.parametrize(("model", "hot"), [("Mac16,12", True), ("Mac16,10", False)])
def test_a_warm_mac_is_hot_from_the_level_that_certify_counts(bare: ProjectFolder, model: str, hot: bool) -> None:
    """At level 1 a MacBook Air is throttled, because it has no fan; a Mac mini is not."""
    mac_tools.write_tools(bare.path / "bin", {"sysctl": mac_tools.sysctl_script(hw__model=model)})
    mac_tools.build_library(bare.path / "bin")
    warm = bare.with_environment(GATEKEEPER_HOST_AS="macos", STAND_IN="warm")

    items = warm.run("doctor", "--json", code=0).document["items"]

    (heat,) = [item for item in items if item["what"] == "cool"]
    assert hot == (heat["found"] is None) == ("this Mac has no fan" in (heat["fix"] or ""))
    assert "level 1" in (heat["fix"] or heat["found"])


@pytest.mark.parametrize(
    ("rows", "advised"), [(" powermode 1", True), (" lowpowermode 1", True), (" powermode 0", False)]
)
def test_low_power_mode_is_named(bare: ProjectFolder, rows: str, advised: bool) -> None:
    """A Mac that is slow by its settings hears so before it measures, and how to switch it off."""
    pmset = bare.path / "bin" / "pmset"
    pmset.write_text(f"#!/bin/sh\necho '{rows}'\n")
    pmset.chmod(0o755)

    done = bare.with_environment(GATEKEEPER_HOST_AS="macos").run("doctor", code=0)

    assert advised == (LOW_POWER in done.out)


def test_a_mac_on_its_battery_is_named(bare: ProjectFolder) -> None:
    """Files for mains power need the charger: said by doctor, and by the plan of one."""
    mac_tools.write_tools(bare.path / "bin", {"pmset": "echo \"Now drawing from 'Battery Power'\""})

    items = bare.with_environment(GATEKEEPER_HOST_AS="macos").run("doctor", "--json", code=0).document["items"]

    assert ["connect the charger"] == [item["fix"] for item in items if item["what"] == "mains power"]
    assert host_doubts(Host(power="ac"), {"power_source": "battery"})[0].endswith(": connect the charger")
    assert "charger" not in host_doubts(Host(power="ac"), {})[0]


def test_it_ends_in_what_to_do_next(bare: ProjectFolder) -> None:
    """What is ready, what is missing for what, the next command; systems that nobody asked for are one line, no
    faults.
    """
    done = bare.run("doctor", code=0)

    ready, missing, following = done.out.splitlines()[-3:]
    assert "llama-server" in ready.removeprefix("ready for: certify with ")
    assert "no model" in missing
    assert "next: gatekeeper init" == following
    advice = done.out.partition("what is missing, and what to do")[2]
    assert "mtplx" not in advice
    assert "mtplx" in next(line for line in done.out.splitlines() if line.startswith("  not installed: "))


def test_a_program_of_this_environment_counts(bare: ProjectFolder) -> None:
    """`hf` beside the running Python is present, whether or not the environment is activated."""
    hf = Path(sys.executable).parent / "hf"
    if not hf.is_file():
        pytest.skip("huggingface_hub's program is not in this environment")

    items = bare.run("doctor", "--json", code=0).document["items"]

    assert str(hf) == next(item["found"] for item in items if item["what"] == "hf")


@pytest.mark.skipif(any(Path("/sys/class/powercap").glob("intel-rapl:*/energy_uj")), reason="it has an energy counter")
def test_no_permission_is_advised_for_a_file_that_does_not_exist(bare: ProjectFolder) -> None:
    """Without an energy counter, doctor says so, and advises no chmod."""
    linux = bare.with_environment(GATEKEEPER_HOST_AS="linux")

    done = linux.run("doctor", code=0)

    assert "chmod" not in done.out
    assert "no energy counter" in done.out


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
    mac, sysctl = bare.with_environment(GATEKEEPER_HOST_AS="macos"), bare.path / "bin" / "sysctl"

    printed = []
    for script in (mac_tools.sysctl_script(), mac_tools.sysctl_script(kern__osversion=None), None):
        sysctl.unlink(missing_ok=True)
        if script is not None:
            sysctl.write_text(f"#!/bin/sh\n{script}\n")
            sysctl.chmod(0o755)
        printed.append(mac.run("--version", code=0).out.splitlines()[-2:])

    absent = ["os macOS", "chip not found"]
    assert [["os macOS 26.1 25B70", "chip Apple M4"], absent, absent] == printed


def test_click_completes_words_in_a_shell(project: ProjectFolder) -> None:
    """docs/install.md has the line for zsh: click prints the script, which asks for the words after the cursor."""

    def printed(**asking: str) -> str:
        environment = {**project.environment, **asking}
        command = [sys.executable, "-m", "gatekeeper"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout

    def completed(words: str, position: int) -> list[str]:
        return printed(_GATEKEEPER_COMPLETE="zsh_complete", COMP_WORDS=words, COMP_CWORD=str(position)).splitlines()

    assert "_GATEKEEPER_COMPLETE=zsh_complete" in printed(_GATEKEEPER_COMPLETE="zsh_source")
    assert "certify" in completed("gatekeeper cer", 1)
    assert "--resume" in completed("gatekeeper certify --res", 2)
