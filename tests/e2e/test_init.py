"""`gatekeeper init`: an SLO file for this machine, which `gatekeeper plan` accepts as it is."""

import re
import shutil
import sys
import tomllib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import pytest

from gatekeeper import host
from gatekeeper.core import slo
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.system import inputs
from gatekeeper.core.system.own_command import hub_command
from gatekeeper.run.start import init_slo
from tests.builders import mac_tools
from tests.builders import models as laid_out
from tests.builders.models import MODELS
from tests.builders.project_folder import ROOT, ProjectFolder
from tools import write_gguf

FILE = "slos/this-host.toml"
needs_mlx = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="no mlx-lm here: no pair of folders is served")


needs_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


@pytest.fixture
def home(project: ProjectFolder) -> ProjectFolder:
    """A project whose home folder is its own, and so are the caches, whatever a variable of this machine names."""
    cache = {
        "HF_HUB_CACHE": str(project.path / ".cache/huggingface/hub"),
        "OLLAMA_MODELS": str(project.path / "ollama"),
    }
    return project.with_environment(**{**cache, "HOME": str(project.path)})


@pytest.fixture
def with_pair(home: ProjectFolder) -> ProjectFolder:
    """The same with the little pair in the hub cache."""
    for name in ("little-target", "little-draft"):
        laid_out.hub(home.path, f"org/{name}", MODELS / name)
    return home


def never(project: ProjectFolder, name: str = FILE) -> list[str]:
    """Return what `plan` says that no run of the file could prove."""
    planned = project.run("plan", name, "--json")
    assert planned.code in {0, 3}, planned.err
    assert [] == planned.document["doubts"]
    return [complaint["message"] for complaint in planned.document["complaints"] if complaint["weight"] == "never"]


@needs_mlx
def test_the_heaviest_pair_of_the_hub_cache_is_proposed(home: ProjectFolder) -> None:
    """Target and drafts are found by size and token map, and the plan of the file has no complaint."""
    for name in ("little-target", "little-draft", "little-draft-lite", "little-draft-alien"):
        laid_out.hub(home.path, f"gatekeeper/{name}", MODELS / name)
    damaged = laid_out.hub(home.path, "gatekeeper/cut-short", MODELS / "little-draft")
    weights = (damaged / "model.safetensors").resolve()
    weights.write_bytes(weights.read_bytes()[:-100])

    document = home.run("init", "--json", code=0).document

    pair = document["pair"]
    assert ("mlx-server", "gatekeeper/little-target") == (pair["backend"], pair["target"])
    assert ["gatekeeper/little-draft"] == pair["drafts"]
    assert 2 == (home.path / FILE).read_text().count('"gatekeeper/little-draft-lite"')
    assert "truncated" in {model["name"]: model["left_out"] for model in document["models"]}["gatekeeper/cut-short"]
    assert [] == never(home)
    written = inputs.read(home.path / FILE)
    assert {"json", "code", "random"} == written.canaries.keys()
    assert all(workload.canaries == f"little/{workload.name}" for workload in written.slo.workload)
    metrics = {objective.metric: objective for objective in written.slo.objective}
    assert {"ttft_delta", "footprint_peak", "footprint_growth"} <= metrics.keys() | document["left_out"].keys()
    assert "warm-up" == metrics["ttft_delta"].or_with


def test_nothing_is_overwritten_without_force(home: ProjectFolder) -> None:
    """A file that exists stays as it is, --force replaces it, and no link is followed to where there is nothing."""
    path = home.path / "mine.toml"
    path.write_text("mine")
    (home.path / "link.toml").symlink_to(home.path / "elsewhere.toml")

    refused = home.run("init", "-o", "mine.toml", code=2)
    text = path.read_text()
    home.run("init", "-o", "mine.toml", "--force", code=3)
    home.run("init", "-o", "link.toml", code=2)
    twice = [home.run("init", "--json", code=3).document["written"] for _ in range(2)]

    assert ("mine", True) == (text, "--force" in refused.err)
    assert "mine" == slo.parse(path.read_text(), "mine.toml").name
    assert not (home.path / "elsewhere.toml").exists()
    assert [FILE, "slos/this-host-2.toml"] == twice


@needs_full_disk
def test_a_full_disk_leaves_no_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says to free space, and the next init is not stopped by a file that exists."""
    output, file_open = tmp_path / "mine.toml", Path.open

    def open_full(path: Path, mode: str = "r", **options: Any) -> IO[Any]:
        file = file_open(path, mode, **options)
        if mode != "x":
            return file
        file.close()
        return file_open(Path("/dev/full"), "w")

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(GatekeeperError, match="No space left") as raised:
        init_slo.propose(output, force=False, backend=None)

    assert "free disk space" in str(raised.value.hint)
    assert not output.exists()


def test_without_a_pair_it_says_what_to_fetch(home: ProjectFolder) -> None:
    """The file names a public pair of this machine's size, and the commands that fetch it: code 3."""
    done = home.run("init", code=3)

    text = (home.path / FILE).read_text()
    written = slo.parse(text, FILE)
    assert str(ROOT) not in text  # it is read in CI, where the installation is elsewhere
    for name in (written.subject.target, *written.subject.drafts):
        assert f"first: {hub_command()} download {name}\n" in done.out
        assert f"#     hf download {name}\n" in text
    assert {"json", "code", "tools"} == {workload.name for workload in written.workload}
    assert home.run("plan", FILE, "--assume", "38 tok/s", "--json").document["expected_total_seconds"] < 3600
    assert False is written.sampling.thinking
    planned = home.run("plan", FILE, code=3)  # a forecast needs no models
    assert f"download them: {hub_command()} download" in " ".join(planned.out.split())
    assert f"a certificate would cover: gatekeeper plan {FILE} --log LOG\n" in done.out


def test_machines_are_listed_by_their_memory() -> None:
    """Every shipped file that is made for a machine, from the smallest on."""
    files = [slo.parse(path.read_text(), path.name) for path in (ROOT / "slos").glob("*-*gb.toml")]

    files.sort(key=lambda machine: machine.host.memory_gb or 0)
    assert [file.name for file in files] == list(init_slo.MACHINES)


@pytest.mark.parametrize("server", [True, False], ids=["with its server", "without"])
def test_files_of_lm_studio_and_ollama_make_a_pair_for_llama_server(home: ProjectFolder, *, server: bool) -> None:
    """GGUF files are paired across stores by their names there; a missing server is named with its command."""
    fake = ROOT / "tests" / "backends" / "fake_llama_server.py"
    programs = {"llama-server": f'exec "{sys.executable}" "{fake}" new "$@"'} if server else {}
    mac_tools.write_tools(home.path / "bin", programs)
    path = f"{home.path / 'bin'}:{home.environment['PATH']}" if server else "/nowhere"
    project = home.with_environment(PATH=path)
    for name in ("little-target", "little-draft"):
        write_gguf.write(MODELS / name, project.path / f"{name}.gguf")
    laid_out.lm_studio(project.path, "maker/target", project.path / "little-target.gguf")
    draft = (project.path / "little-draft.gguf").read_bytes()
    laid_out.ollama(project.path / "ollama", "registry.ollama.ai/library/little/draft", {"model": draft})

    document = project.run("init", "--json", code=0 if server else 3).document

    pair = {"backend": "llama-server", "target": "maker/target/little-target.gguf", "drafts": ["little:draft"]}
    assert (pair, True) == (document["pair"], document["here"])
    if server:
        written = slo.parse((project.path / FILE).read_text(), FILE)
        assert ["acceptance_rate"] == [each.metric for each in written.objective if each.source == "claims"]
        assert project.run("plan", FILE).code in {0, 3}
    else:
        assert ["install llama.cpp"] == [command.partition(" (")[0] for command in document["do_first"]]


@needs_mlx
def test_the_same_model_in_two_stores_is_taken_once(with_pair: ProjectFolder) -> None:
    """A copy of what the hub cache has is left out: ids of the hub mean the same on every machine."""
    for name in ("little-target", "little-draft"):
        laid_out.lm_studio(with_pair.path, f"org/{name}", MODELS / name)
        shutil.copytree(MODELS / name, with_pair.path / "models" / name)

    document = with_pair.run("init", "--json", code=0).document

    assert {"backend": "mlx-server", "target": "org/little-target", "drafts": ["org/little-draft"]} == document["pair"]
    left_out = [model["left_out"] for model in document["models"]]
    assert (6, 2) == (len(left_out), left_out.count(None))
    assert 2 == sum("org/little-draft" in (reason or "").split() for reason in left_out)


@needs_mlx
def test_a_pair_that_is_named_is_written(home: ProjectFolder) -> None:
    """`--target` and `--draft` decide the pair, paths become relative to the file, and the heaviest draft is first."""
    (home.path / "models").symlink_to(MODELS)
    target, drafts = "models/little-target", ("models/little-draft-lite", "models/little-draft")
    words = ["--target", target, *(word for draft in drafts for word in ("--draft", draft))]

    document = home.run("init", *words, "--json", code=0).document

    written = inputs.read(home.path / FILE).slo
    expected = tuple(f"../{draft}" for draft in reversed(drafts))
    assert ("../models/little-target", expected, expected) == (
        written.subject.target, written.subject.drafts, written.sweep.draft
    )  # fmt: skip
    assert ["--target", target] == document["also"]["mlx"].split()[2:4]
    assert "--backend mlx " in document["also"]["mlx"]
    assert home.run("plan", FILE).code in {0, 3}
    doctor = home.run("doctor", "--json").document
    assert {target, drafts[1]} <= set(doctor["ready"][1].split())
    assert ["gatekeeper", "try"] == doctor["next"].split()


@needs_mlx
def test_models_that_can_not_be_drafted_for_are_left_out(home: ProjectFolder) -> None:
    """Whatever lies in a cache is listed with what is wrong with it, and hides no other model."""
    config = (MODELS / "little-draft" / "config.json").read_bytes()
    odd: dict[str, tuple[str, bytes | None, str]] = {
        "windowed": ("config.json", config.replace(b"{", b'{"sliding_window": 64,', 1), "not every layer"),
        "gptq": ("config.json", config.replace(b"{", b'{"quantization_config": {"quant_method": "gptq"},', 1), "gptq"),
        "mute": ("tokenizer.json", None, "no token map"),
        "template": ("chat_template.jinja", b"\xff\xfe", ""),
        "numbers": ("config.json", b'{"quantization": 3}', ""),
        "tokens": ("tokenizer.json", b"[]", ""),
    }
    for name, (file, content, _) in odd.items():
        folder = Path(shutil.copytree(MODELS / "little-draft", home.path / name))
        (folder / file).write_bytes(content or b"")
        if content is None:
            (folder / file).unlink()
        laid_out.hub(home.path, f"org/{name}", folder)
    laid_out.hub(home.path, "org/target", MODELS / "little-target")
    (home.path / ".cache/huggingface/hub/models--org--empty/refs").mkdir(parents=True)

    document = home.run("init", "--json", code=3).document

    reasons = {model["name"].removeprefix("org/"): model["left_out"] for model in document["models"]}
    assert {*odd, "target"} == reasons.keys()
    assert [] == [name for name, (_, _, reason) in odd.items() if reason not in (reasons[name] or "no reason")]
    assert all(reasons[name] for name in odd)
    assert (None, False) == (reasons["target"], document["here"])


@needs_mlx
def test_a_mac_is_written_down_as_it_names_itself(with_pair: ProjectFolder) -> None:
    """Chip, memory and mains power stand in [host], and what a Mac shows, heat included, has objectives."""
    mini = with_pair.with_environment(**mac_tools.healthy_mini(with_pair.path / "tools"))

    document = mini.run("init", "--json", code=0).document

    assert document["host"]["available"] is not None
    written = tomllib.loads((mini.path / FILE).read_text())
    assert {"chip": "Apple M4", "memory_gb": 24, "power": "ac"} == written["host"]
    metrics = {objective["metric"] for objective in written["objective"]}
    assert {"throttle_time", "memory_headroom", "swap_growth"} <= metrics
    assert {} == document["left_out"]
    assert [] == never(mini)


@needs_mlx
def test_a_virtual_mac_is_named_before_anything_is_measured(with_pair: ProjectFolder) -> None:
    """Each of doctor, init and plan says at once that it certifies nothing, and what to do."""
    sysctl = mac_tools.sysctl_script(hw__model="VirtualMac2,1")
    virtual = with_pair.with_environment(**mac_tools.healthy_mini(with_pair.path / "tools", sysctl=sysctl))

    assert "a certificate: a physical Mac" in virtual.run("doctor").out.splitlines()[-2]
    for command in (("doctor",), ("init",), ("plan", FILE)):
        printed = " ".join(virtual.run(*command).out.split())
        assert "a virtual Mac certifies nothing" in printed, command
        assert "certify on the physical machine" in printed, command


@needs_mlx
def test_what_a_mac_cannot_give_is_not_counted_on(with_pair: ProjectFolder) -> None:
    """What vm_stat does not show is unknown, not free; and a pair beyond what the GPU may wire is not proposed."""
    unread = with_pair.with_environment(**mac_tools.healthy_mini(with_pair.path / "a", vm_stat="echo Statistik"))
    sysctl = mac_tools.sysctl_script(iogpu__wired_limit_mb="1")
    wired = with_pair.with_environment(**mac_tools.healthy_mini(with_pair.path / "b", sysctl=sysctl))

    host_facts = unread.run("init", "--json", code=0).document["host"]

    assert (25769803776, None) == (host_facts["memory_bytes"], host_facts["available"])
    assert "1.05 MB" in wired.run("init", "--json", code=3).document["elsewhere"]


@pytest.mark.parametrize("backend", ["mlx-server", "llama-server", "mtplx", "dflash-mlx", "lmstudio", "ollama"])
def test_a_file_for_another_backend_is_planned(home: ProjectFolder, backend: str) -> None:
    """`--backend` writes a file for a system that may not be installed, without a cache that changes answers."""
    document = home.run("init", "--backend", backend, "-o", "other.toml", "--json", code=3).document

    text = (home.path / "other.toml").read_text()
    written = slo.parse(text, "other.toml")
    assert (backend, backend, "other") == (document["pair"]["backend"], written.subject.backend, written.name)
    assert "off" == written.subject.prompt_cache
    assert ("mlx-lm 0.23.2 to 0.32.2" in text) == (backend == "mlx-server")
    assert document["do_first"]
    assert [] == never(home, "other.toml")


def test_a_backend_without_a_proposal_is_refused(home: ProjectFolder) -> None:
    """Exit code 2, with the backends that init writes files for."""
    assert "'mlx-server'?" in home.run("init", "--backend", "mlx-servr", code=2).err


@needs_mlx
def test_a_pair_that_does_not_fit_now_is_not_proposed(
    with_pair: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair of the hub is proposed instead; programs are to be closed where the machine itself is large enough."""
    readings, lacks = host.survey()
    full = {**readings, "memory_headroom": replace(readings["memory_headroom"], value=0.9e9)}
    monkeypatch.setattr(host, "survey", lambda: (full, lacks))

    done = with_pair.run("init", code=3)

    assert "little-target" not in (with_pair.path / FILE).read_text()
    assert all(words in done.out for words in ("no two of them", "org/little-draft needs "))
    assert re.search(r"900 MB.*: .*held by", done.out)
    assert "close them, then run gatekeeper init again with --force" in done.out
    assert "remote certify" not in done.out
