"""Lossy speculation at the command line: refused before anything is measured, not admitted, turned off."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.errors import InputError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.live.running.deployed_server import check_server
from tests.builders.deployment import Answering, Deployed
from tests.builders.golden_words import says
from tests.builders.project_folder import ROOT, ProjectFolder, canary_lines
from tests.builders.servers import PROTOCOLS, RecordedServer

MODELS = {"target": str(ROOT / "models" / "little-target"), "drafts": [str(ROOT / "models" / "little-draft")]}
FLY = ["--speculative-config.rejection_sample_method", "fly"]
PLAN, CERTIFY = ("plan", "slo.toml"), ("certify", "slo.toml", "--out", "run", "--quiet")
ANSWERING = """
import time
from tests.builders.deployment import Answering
with Answering() as server:
    print(server.url, flush=True)
    time.sleep(600)
"""


def written(project: ProjectFolder, backend: str, *, temperature: float = 0.0, **subject: Any) -> ProjectFolder:
    """Write an SLO of a server with the little pair."""
    (project.path / "easy.jsonl").write_text(canary_lines("easy", 12))
    project.write_slo(
        {
            "schema": 1,
            "name": "lossy",
            "subject": {"backend": backend, **MODELS, **subject},
            "workload": [{"name": "easy", "canaries": "easy.jsonl"}],
            "sampling": {"temperature": temperature},
            "objective": [{"metric": "error_rate", "at_most": 0.5, "scope": "frozen", "why": "it must answer"}],
        }
    )
    return project


@contextmanager
def answering(*words: str, **variables: str) -> Iterator[str]:
    """Start a server of one process, whose command line and environment hold these; yield its address."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-c", ANSWERING, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("words", [PLAN, CERTIFY])
def test_no_command_measures_with_a_lossy_option(project: ProjectFolder, words: tuple[str, ...]) -> None:
    """`plan` and `certify` end with 2 and name the option, its place, what it does and what to remove."""
    refused = written(project, "vllm", args=FLY).run(*words, code=2)

    message, _, hint = " ".join(refused.err.split()).removeprefix("gatekeeper: ").partition(" hint: ")
    says("backends", "the error says where what and what to do (1)", message)
    says("backends", "the error says where what and what to do (2)", hint)
    assert [] == [*project.path.glob("run/*.jsonl")]


def test_doctor_names_a_variable_that_makes_speculation_lossy(project: ProjectFolder) -> None:
    """The variable is named with the servers it concerns and how to unset it; exit 2."""
    report = project.with_environment(SGLANG_SIMULATE_ACC_LEN="3.5").run("doctor", code=2).out

    (backends,) = re.findall(r"^  for (.*):\n +unset SGLANG_SIMULATE_ACC_LEN", report, flags=re.MULTILINE)
    assert ["backend openai", "backend sglang"] == backends.split(", ")
    assert "make speculation lossy" not in project.run("doctor", code=0).out


def test_a_running_server_is_refused_by_how_it_was_started(project: ProjectFolder) -> None:
    """A server that is attached to shows a lossy option on its command line: exit 2, and no request is sent."""
    with answering("--pflash", "always") as lossy, answering() as plain:
        refused = written(project, "openai", url=lossy, plain_url=plain).run(*CERTIFY, code=2)

    assert all(word in " ".join(refused.err.split()) for word in ("--pflash = always", "remove --pflash"))


@pytest.mark.parametrize("backend", ["dflash-mlx", "ddtree"])
def test_sampling_is_refused_of_a_server_that_decodes_greedily(project: ProjectFolder, backend: str) -> None:
    """dflash-mlx and DDTree answer greedily at any temperature: an SLO above 0 is refused before a request is sent."""
    with RecordedServer(PROTOCOLS[backend], drafting=True) as server:
        sampled = written(project, backend, temperature=0.7, url=server.url, plain_url=server.url)
        printed = [sampled.run(*PLAN, code=2).out, sampled.run(*CERTIFY, code=2).err]

    assert [] == server.requests
    assert all(f"backend {backend} decodes greedily" in " ".join(text.split()) for text in printed)


def test_an_older_certificate_of_a_lossy_server_is_not_admitted(project: ProjectFolder) -> None:
    """`admit` refuses an SLO with a lossy option, whatever a run certified of it."""
    (project.path / "runs").mkdir()

    refused = written(project, "vllm", args=FLY).run("admit", "slo.toml", "--runs", "runs", "--json", code=3).document

    assert ("unproven", False) == (refused["reason"], refused["admitted"])
    assert "rejection_sample_method" in refused["because"]


@pytest.mark.parametrize(
    ("words", "variables", "lossy"),
    [(("--pflash", "auto"), {}, True), ((), {"SGLANG_SIMULATE_ACC_LEN": "3"}, True), (("--pflash", "off"), {}, False)],
)
def test_a_deployed_server_is_compared(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], lossy: bool
) -> None:
    """For `admit --url` a running server with a lossy option differs from what was certified."""
    with answering(*words, **variables) as url:
        deployed = Deployed.served(tmp_path, url)
        compared = check_server(deployed.path / "run", deployed.path / "slo.toml", Address(url))

    differing = [part.detail for part in compared if part.part == "lossless speculation"]
    assert lossy == bool(differing)
    assert all("; remove " in detail or "; unset " in detail for detail in differing)


@pytest.mark.nightly
def test_a_watch_turns_off_a_server_with_a_lossy_option(tmp_path: Path) -> None:
    """The route is off for as long as the server that answers has the option, and the change names it."""
    with answering("--pflash", "auto") as url:
        deployed = Deployed.served(tmp_path, url)
        code, output = deployed.watch(2)

    assert (1, True) == (code, "--pflash = auto" in output.of("change")[0]["because"])
    assert not tomllib.loads(deployed.overlay)["route"][0]["speculation"]


def test_a_plain_server_with_a_lossy_option_is_no_baseline(tmp_path: Path) -> None:
    """A watch with such a server at --plain-url does not begin: its answers are not plain decoding's."""
    with Answering() as server, answering("--pflash", "auto") as plain:
        deployed = Deployed.served(tmp_path, server.url)
        with pytest.raises(InputError, match="sets --pflash = auto"):
            deployed.watch(1, url=server.url, plain_url=plain)
