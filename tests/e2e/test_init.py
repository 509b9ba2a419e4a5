"""`gatekeeper init`: an SLO file for this machine, which `gatekeeper plan` accepts as it is."""

import re
import shutil
import sys
import tomllib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gatekeeper import host
from gatekeeper.core import slo
from gatekeeper.core.system import inputs
from gatekeeper.core.system.own_command import hub_command
from gatekeeper.run.start import init_slo
from tests.builders import mac_tools
from tests.builders import models as laid_out
from tests.builders.models import MODELS
from tests.builders.project_folder import ROOT, ProjectFolder
from tests.e2e.test_m4_24gb import mac
from tools import write_gguf

FILE = "slos/this-host.toml"
needs_mlx = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="no mlx-lm here: no pair of folders is served")


@pytest.fixture
def home(project: ProjectFolder) -> ProjectFolder:
    """A project whose home folder is its own, and so are the caches, whatever a variable of this machine names."""
    cache = {
        "HF_HUB_CACHE": str(project.path / ".cache/huggingface/hub"),
        "OLLAMA_MODELS": str(project.path / "ollama"),
    }
    return project.with_environment(**{**cache, "HOME": str(project.path)})


@pytest.fixture
def with_llama_server(home: ProjectFolder) -> ProjectFolder:
    """The same with a llama-server on PATH; a fake one, of which only the version is used."""
    folder = home.path / "bin"
    folder.mkdir()
    fake = ROOT / "tests" / "backends" / "fake_llama_server.py"
    program = folder / "llama-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake}" new "$@"\n')
    program.chmod(0o755)
    return home.with_environment(PATH=f"{folder}:{home.environment['PATH']}")


@needs_mlx
def test_the_heaviest_pair_of_the_hub_cache_is_proposed(home: ProjectFolder) -> None:
    """Target and drafts are found by size and token map, the alien and the damaged one are not taken, and the plan
    of the
    written file has nothing to complain of but this host.
    """
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
    planned = home.run("plan", FILE, "--json")
    assert planned.code in {0, 3}, planned.err
    assert [] == [complaint for complaint in planned.document["complaints"] if complaint["weight"] == "never"]
    assert [] == planned.document["doubts"]
    written = inputs.read(home.path / FILE)
    assert {"json", "code", "random"} == written.canaries.keys()
    assert all(workload.canaries == f"little/{workload.name}" for workload in written.slo.workload)


def test_nothing_is_overwritten_without_force(home: ProjectFolder) -> None:
    """A file that exists stays as it is, exit code 2, and --force replaces it."""
    path = home.path / "mine.toml"
    path.write_text("mine")

    refused = home.run("init", "-o", "mine.toml", code=2)
    text = path.read_text()
    forced = home.run("init", "-o", "mine.toml", "--force")

    assert ("mine", True) == (text, "--force" in refused.err)
    assert 3 == forced.code
    assert "mine" == slo.parse(path.read_text(), "mine.toml").name


def test_what_other_commands_print_as_their_next_runs_twice(home: ProjectFolder) -> None:
    """Without --output a file that exists stays, and the new one is written beside it under a name that is free."""
    written = [home.run("init", "--json", code=3).document["written"] for _ in range(3)]

    assert [FILE, "slos/this-host-2.toml", "slos/this-host-3.toml"] == written


def test_without_a_pair_it_says_what_to_fetch(home: ProjectFolder) -> None:
    """The file names a public pair for machines of this size, the commands that fetch it are printed, and the exit code
    is 3: no objective can be checked on this machine yet.
    """
    done = home.run("init", code=3)

    written = slo.parse((home.path / FILE).read_text(), FILE)
    assert str(ROOT) not in (home.path / FILE).read_text()  # it is read in CI, where the installation is elsewhere
    for name in (written.subject.target, *written.subject.drafts):
        assert f"first: {hub_command()} download {name}\n" in done.out
        assert f"#     hf download {name}\n" in (home.path / FILE).read_text()
    assert {"json", "code", "tools"} == {workload.name for workload in written.workload}
    assert home.run("plan", FILE, "--assume", "38 tok/s", "--json").document["expected_total_seconds"] < 3600
    assert False is written.sampling.thinking
    planned = home.run("plan", FILE, code=3)  # a forecast needs no models
    assert f"download them: {hub_command()} download" in " ".join(planned.out.split())
    assert f"a certificate would cover: gatekeeper plan {FILE} --log LOG\n" in done.out


def test_machines_are_listed_by_their_memory() -> None:
    """Every shipped file that is made for a machine, from the smallest on."""
    files = [slo.parse(path.read_text(), path.name) for path in (ROOT / "slos").glob("*-*gb.toml")]

    assert [file.name for file in sorted(files, key=lambda machine: machine.host.memory_gb or 0)] == list(
        init_slo.MACHINES
    )


def test_other_files_beside_the_shipped_ones_do_not_matter(
    home: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout the folder of SLO files is its owner's, too: a broken one, or an earlier proposal, is not read."""
    for folder in ("canaries", "slos"):
        shutil.copytree(ROOT / folder, home.path / folder)
    monkeypatch.setattr(inputs, "shipped_folder", lambda folder: home.path / folder)
    (home.path / "slos" / "broken.toml").write_text("no toml")

    first = home.run("init", "--json", code=3).document
    again = home.run("init", "--json", "--force", code=3).document

    assert first["pair"] == again["pair"]


def test_files_of_lm_studio_and_ollama_make_a_pair_for_llama_server(with_llama_server: ProjectFolder) -> None:
    """GGUF files are paired across stores by their names there, and the server is taken at its word on acceptance."""
    project = with_llama_server
    for name in ("little-target", "little-draft"):
        write_gguf.write(MODELS / name, project.path / f"{name}.gguf")
    laid_out.lm_studio(project.path, "maker/target", project.path / "little-target.gguf")
    draft = (project.path / "little-draft.gguf").read_bytes()
    laid_out.ollama(project.path / "ollama", "registry.ollama.ai/library/little/draft", {"model": draft})

    document = project.run("init", "--json", code=0).document

    assert {"little:draft", "maker/target/little-target.gguf"} == {model["name"] for model in document["models"]}
    pair = {"backend": "llama-server", "target": "maker/target/little-target.gguf", "drafts": ["little:draft"]}
    assert pair == document["pair"]
    written = slo.parse((project.path / FILE).read_text(), FILE)
    assert {"acceptance_rate": "claims"} == {
        objective.metric: objective.source for objective in written.objective if objective.source == "claims"
    }
    assert project.run("plan", FILE).code in {0, 3}


@needs_mlx
def test_the_same_model_in_two_stores_is_taken_once(home: ProjectFolder) -> None:
    """A copy of LM Studio's of what the hub cache has is left out, and so is one in the folder models: ids of the
    hub mean
    the same on every machine.
    """
    for name in ("little-target", "little-draft"):
        laid_out.hub(home.path, f"org/{name}", MODELS / name)
        laid_out.lm_studio(home.path, f"org/{name}", MODELS / name)
        shutil.copytree(MODELS / name, home.path / "models" / name)

    document = home.run("init", "--json", code=0).document

    assert {"backend": "mlx-server", "target": "org/little-target", "drafts": ["org/little-draft"]} == document["pair"]
    left_out = [model["left_out"] for model in document["models"]]
    assert (6, 2) == (len(left_out), left_out.count(None))
    assert 2 == sum("org/little-draft" in (reason or "").split() for reason in left_out)
    assert "# draft" not in (home.path / FILE).read_text()  # a lighter draft, which is none


@needs_mlx
def test_a_pair_that_is_named_is_written(home: ProjectFolder) -> None:
    """`--target` and `--draft` decide the pair; paths of the current folder become relative to the file, all drafts are
    swept, heaviest first, and the commands for other backends name the pair, too. `try` and `doctor` see the same pair.
    """
    (home.path / "models").symlink_to(MODELS)
    words = [
        "--target",
        "models/little-target",
        "--draft",
        "models/little-draft-lite",
        "--draft",
        "models/little-draft",
    ]

    document = home.run("init", *words, "--json", code=0).document

    written = inputs.read(home.path / FILE).slo
    drafts = ("../models/little-draft", "../models/little-draft-lite")
    assert ("../models/little-target", drafts, drafts) == (
        written.subject.target, written.subject.drafts, written.sweep.draft
    )  # fmt: skip
    assert words[:2] == document["also"]["mlx"].split()[2:4]
    assert "--backend mlx " in document["also"]["mlx"]
    assert home.run("plan", FILE).code in {0, 3}
    doctor = home.run("doctor", "--json").document
    assert {words[1], words[5]} <= set(doctor["ready"][1].split())
    assert ["gatekeeper", "try"] == doctor["next"].split()


def test_the_pair_of_lm_studio_is_named_for_it(home: ProjectFolder) -> None:
    """`--backend lmstudio` takes a pair of its own store into the example of its server, and says that it is one."""
    for name in ("little-target", "little-draft"):
        laid_out.lm_studio(home.path, f"maker/{name}", MODELS / name)

    done = home.run("init", "--backend", "lmstudio", code=3)

    subject = slo.parse((home.path / FILE).read_text(), FILE).subject
    assert ("maker/little-target", ("maker/little-draft",)) == (subject.target, subject.drafts)
    assert "example" in done.out


def test_a_pair_without_its_server_waits_for_it(home: ProjectFolder) -> None:
    """Where only the backend is missing, the file names the pair that is here and the command that installs the
    backend.
    """
    for name in ("little-target", "little-draft"):
        write_gguf.write(MODELS / name, home.path / f"{name}.gguf")
        laid_out.lm_studio(home.path, f"maker/{name}", home.path / f"{name}.gguf")
    bare = home.with_environment(PATH="/nowhere")

    document = bare.run("init", "--json", code=3).document

    assert (True, "llama-server") == (document["here"], document["pair"]["backend"])
    assert ["install llama.cpp"] == [command.partition(" (")[0] for command in document["do_first"]]


@needs_mlx
def test_models_that_can_not_be_drafted_for_are_left_out(home: ProjectFolder) -> None:
    """Windows, foreign quantisations and folders without a tokenizer are named with the reason."""
    config = (MODELS / "little-draft" / "config.json").read_text()
    kinds = {"windowed": '"sliding_window": 64,', "gptq": '"quantization_config": {"quant_method": "gptq"},'}
    for name, more in kinds.items():
        folder = Path(shutil.copytree(MODELS / "little-draft", home.path / name))
        (folder / "config.json").write_text(config.replace("{", "{" + more, 1))
        laid_out.hub(home.path, f"org/{name}", folder)
    folder = Path(shutil.copytree(MODELS / "little-draft", home.path / "mute"))
    (folder / "tokenizer.json").unlink()
    laid_out.hub(home.path, "org/mute", folder)
    laid_out.hub(home.path, "org/target", MODELS / "little-target")

    document = home.run("init", "--json", code=3).document

    reasons = {model["name"]: model["left_out"] for model in document["models"]}
    assert "not every layer" in reasons["org/windowed"]
    assert "gptq" in reasons["org/gptq"]
    assert "no token map" in reasons["org/mute"]
    assert reasons["org/target"] is None
    assert not document["here"]


@needs_mlx
def test_canaries_are_named_and_the_schema_is_relative(home: ProjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The written file names canary sets, wherever gatekeeper is installed; in a checkout it names the schema,
    relatively.
    """
    for name in ("little-target", "little-draft"):
        laid_out.hub(home.path, f"org/{name}", MODELS / name)
    for folder in ("canaries", "slos", "soak"):
        shutil.copytree(ROOT / folder, home.path / folder)
    monkeypatch.setattr(inputs, "shipped_folder", lambda folder: home.path / folder)

    home.run("init", code=0)

    text = (home.path / FILE).read_text()
    assert ["#:schema", "slo.schema.json"] == text.splitlines()[0].split()
    assert {f"little/{name}" for name in ("json", "code", "random")} == {
        workload["canaries"] for workload in tomllib.loads(text)["workload"]
    }
    assert home.run("plan", FILE).code in {0, 3}


@needs_mlx
def test_a_mac_is_written_down_as_it_names_itself(home: ProjectFolder) -> None:
    """Chip, memory, the system's major version and mains power stand in [host]; what a Mac shows, heat included, is
    promised. The tools are small scripts that print what those of a Mac print.
    """
    for name in ("little-target", "little-draft"):
        laid_out.hub(home.path, f"org/{name}", MODELS / name)
    mini = home.with_environment(**mac(home.path / "tools"))

    document = mini.run("init", "--json", code=0).document

    assert document["host"]["available"] is not None
    written = tomllib.loads((home.path / FILE).read_text())
    assert {"chip": "Apple M4", "memory_gb": 24, "power": "ac"} == written["host"]
    assert {"throttle_time", "memory_headroom", "swap_growth"} <= {
        objective["metric"] for objective in written["objective"]
    }
    assert {} == document["left_out"]
    assert [] == mini.run("plan", FILE, "--json").document["doubts"]


@needs_mlx
def test_a_virtual_mac_is_named_before_anything_is_measured(home: ProjectFolder) -> None:
    """doctor, init and plan say at once that it certifies nothing, and what to do."""
    for name in ("little-target", "little-draft"):
        laid_out.hub(home.path, f"org/{name}", MODELS / name)
    virtual = home.with_environment(
        **mac(home.path / "tools", sysctl=mac_tools.sysctl_script(hw__model="VirtualMac2,1"))
    )

    assert "a certificate: a physical Mac" in virtual.run("doctor").out.splitlines()[-2]
    for command in (("doctor",), ("init",), ("plan", FILE)):
        printed = " ".join(virtual.run(*command).out.split())
        assert "a virtual Mac certifies nothing" in printed, command
        assert "certify on the physical machine" in printed, command


@needs_mlx
def test_a_pair_that_the_gpu_may_not_hold_is_not_proposed(home: ProjectFolder) -> None:
    """What the GPU may wire is less than what is free: a pair beyond it would be refused by the plan."""
    for name in ("little-target", "little-draft"):
        laid_out.hub(home.path, f"org/{name}", MODELS / name)
    mini = home.with_environment(**mac(home.path / "tools", sysctl=mac_tools.sysctl_script(iogpu__wired_limit_mb="1")))

    document = mini.run("init", "--json", code=3).document

    assert "1.05 MB" in document["elsewhere"]


@needs_mlx
def test_what_a_mac_does_not_show_is_not_said_to_be_free(home: ProjectFolder) -> None:
    """Where vm_stat prints what nothing reads, what is available is unknown, not all of the memory."""
    mini = home.with_environment(**mac(home.path / "tools", vm_stat="echo Statistik"))

    document = mini.run("init", "--json", code=3).document

    assert (25769803776, None) == (document["host"]["memory_bytes"], document["host"]["available"])


@needs_mlx
def test_first_token_and_memory_are_promised_with_a_control(home: ProjectFolder) -> None:
    """The written file bounds the first token, the footprint and its growth, and has a workload on which no draft
    helps.
    """
    for name in ("little-target", "little-draft"):
        laid_out.hub(home.path, f"org/{name}", MODELS / name)

    document = home.run("init", "--json", code=0).document

    written = slo.parse((home.path / FILE).read_text(), FILE)
    metrics = {objective.metric: objective for objective in written.objective}
    assert {"ttft_delta", "footprint_peak", "footprint_growth", "memory_headroom"} <= metrics.keys() | document[
        "left_out"
    ]
    assert "warm-up" == metrics["ttft_delta"].or_with
    assert "random" in {workload.name for workload in written.workload}
    assert document["backends"]["mlx"]
    words = ["gatekeeper", "init", "--backend", "mlx", "-o", "slos/mlx.toml"]
    assert words == document["also"]["mlx"].split()


@pytest.mark.parametrize("backend", ["mlx-server", "llama-server", "mtplx", "dflash-mlx", "lmstudio", "ollama"])
def test_a_file_for_another_backend_is_planned(home: ProjectFolder, backend: str) -> None:
    """`--backend` writes a file for that system, whether or not it is installed, which plan reads; the code is 3.

    Where releases are known to change answers with the prompt cache on, it says which, and proposes to deploy without.
    """
    document = home.run("init", "--backend", backend, "-o", "other.toml", "--json", code=3).document

    written = slo.parse((home.path / "other.toml").read_text(), "other.toml")
    assert (backend, backend, "other") == (document["pair"]["backend"], written.subject.backend, written.name)
    assert "off" == written.subject.prompt_cache
    assert ("mlx-lm 0.23.2 to 0.32.2" in (home.path / "other.toml").read_text()) == (backend == "mlx-server")
    assert document["do_first"]
    planned = home.run("plan", "other.toml", "--json", code=3)
    assert [] == [complaint for complaint in planned.document["complaints"] if complaint["weight"] == "never"]


def test_a_backend_without_a_proposal_is_refused(home: ProjectFolder) -> None:
    """Exit code 2, with the backends that init writes files for."""
    refused = home.run("init", "--backend", "mlx-servr", code=2)

    assert "'mlx-server'?" in refused.err


@needs_mlx
def test_a_pair_that_does_not_fit_now_is_not_proposed(home: ProjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the memory that is available now counts: a pair of the hub is proposed instead. Where the one that is
    here fits
    into the machine, programs are to be closed, and init run again; it is not for a larger machine.
    """
    for name in ("little-target", "little-draft"):
        laid_out.hub(home.path, f"org/{name}", MODELS / name)
    readings, lacks = host.survey()
    full = {**readings, "memory_headroom": replace(readings["memory_headroom"], value=0.9e9)}
    monkeypatch.setattr(host, "survey", lambda: (full, lacks))

    done = home.run("init", code=3)

    assert "no two of them" in done.out
    assert "little-target" not in (home.path / FILE).read_text()
    assert "org/little-draft needs " in done.out
    assert re.search(r"900 MB.*: .*held by", done.out)
    assert "close them, then run gatekeeper init again with --force" in done.out
    assert "remote certify" not in done.out


def test_one_odd_model_does_not_hide_the_others(home: ProjectFolder) -> None:
    """Whatever lies in a cache is listed with what is wrong with it."""
    for number, (file, content) in enumerate(
        [("chat_template.jinja", b"\xff\xfe"), ("config.json", b'{"quantization": 3}'), ("tokenizer.json", b"[]")]
    ):
        folder = Path(shutil.copytree(MODELS / "little-draft", home.path / f"odd{number}"))
        (folder / file).write_bytes(content)
        laid_out.hub(home.path, f"org/odd{number}", folder)
    (home.path / ".cache/huggingface/hub/models--org--empty/refs").mkdir(parents=True)

    models = home.run("init", "--json", code=3).document["models"]

    assert ["org/odd0", "org/odd1", "org/odd2"] == [model["name"] for model in models]
    assert all(model["left_out"] for model in models)


def test_a_link_that_leads_nowhere_is_a_file_too(home: ProjectFolder) -> None:
    """Nothing is written through a link to a place that is not there yet."""
    (home.path / "link.toml").symlink_to(home.path / "elsewhere.toml")

    home.run("init", "-o", "link.toml", code=2)

    assert not (home.path / "elsewhere.toml").exists()


def test_a_place_that_can_not_be_written_is_said(home: ProjectFolder) -> None:
    """Exit code 4, with the path."""
    (home.path / "file").write_text("")

    done = home.run("init", "-o", "file/slo.toml", code=4)

    assert "file/slo.toml" in done.err
