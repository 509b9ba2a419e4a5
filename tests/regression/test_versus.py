"""`gatekeeper versus`: two systems in one run, their requests interleaved."""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.deployment import Answering
from tests.builders.project_folder import ROOT, ProjectFolder

QUICK = ("--seconds", "1", "--json", "--quiet")


def row(document: dict[str, object], metric: str) -> dict[str, object]:
    rows = document["metrics"]
    assert isinstance(rows, list)
    (metric_row,) = (line for line in rows if line["metric"] == metric)
    return dict(metric_row)


def test_two_environments_are_compared_request_by_request(worker: ProjectFolder) -> None:
    """
    The environments of two versions, as bisect made them: half the accepted tokens is proven worse, and exits 1.
    """
    search = ("bisect", "slo.toml", "--package", "echo-worker", "--metric", "acceptance_rate", "--quiet", "--json")
    worker.run(*search, "--versions", "1.1,1.3", "--out", "search", code=0)
    folder = Path(worker.environment["XDG_CACHE_HOME"]) / "gatekeeper" / "environments"
    installed = {info.name: str(info.parents[3]) for info in folder.glob("*/lib/python*/site-packages/echo_worker-*")}
    a, b = (installed[f"echo_worker-{version}.dist-info"] for version in ("1.1", "1.3"))

    words = ("versus", a, b, "--slo", "slo.toml", *QUICK, "--out", "run", "--fail-on", "worse")
    document = worker.run(*words, code=1).document

    accepted, speed = row(document, "acceptance_rate"), row(document, "throughput_ratio")
    assert "worse" == accepted["says"]
    assert "better" != speed["says"]
    assert 1.0 == row(document, "token_agreement")["center"]
    assert (worker.path / "run" / "a" / "answers.jsonl").is_file()


def test_a_system_against_itself_shows_no_difference(worker: ProjectFolder) -> None:
    """
    Two SLO files of the same system have the same acceptance and words, and exit 0.
    """
    slo = tomllib.loads((worker.path / "slo.toml").read_text())
    slo["subject"]["command"] = [sys.executable, "my_worker.py", "{target}", "{draft}"]
    for name in ("one", "other"):
        worker.write_slo({**slo, "name": name}, f"{name}.toml")

    document = worker.run("versus", "one.toml", "other.toml", *QUICK, code=0).document

    assert "no difference shown" == row(document, "acceptance_rate")["says"]
    assert 1.0 == row(document, "token_agreement")["center"]


def test_a_side_that_is_nothing_known_is_refused(worker: ProjectFolder) -> None:
    """
    A word that names no SLO file, environment, program, draft or server is exit code 2.
    """
    refused = worker.run("versus", "nothing", "there", "--slo", "slo.toml", *QUICK, code=2)

    assert "no SLO file" in refused.err


@pytest.fixture
def servers() -> Iterator[tuple[Answering, Answering]]:
    with Answering() as a, Answering() as b:
        a.cached = b.cached = 0
        yield a, b


def test_two_addresses_need_no_slo(worker: ProjectFolder, servers: tuple[Answering, Answering]) -> None:
    """
    Two running servers are compared on the shipped canaries: their models are named, their words and right answers
    counted side by side.
    """
    a, b = servers
    a.model, b.model = "org/target", "target.gguf"

    comparison = worker.run("versus", a.url, b.url, *QUICK, code=0).document

    assert ("org/target", "target.gguf") == (comparison["a"]["model"], comparison["b"]["model"])
    assert (24, 24) == (comparison["words"]["canaries"], comparison["words"]["same"])
    assert [0.0, 0.0] == [comparison[side]["measured"]["json_pass_rate"]["center"] for side in "ab"]
    assert "no difference shown" == row(comparison, "json_pass_delta")["says"]
    assert 0.9 == comparison["a"]["measured"]["acceptance_rate"]["center"]


def test_the_canaries_are_divided_among_the_files(worker: ProjectFolder, servers: tuple[Answering, Answering]) -> None:
    """
    Of two files the first twelve canaries each are sent.
    """
    files = [str(ROOT / "canaries" / "little" / f"{name}.jsonl") for name in ("json", "tools")]
    words = ("versus", *(server.url for server in servers), "--canaries", files[0], "--canaries", files[1])

    comparison = worker.run(*words, *QUICK, code=0).document

    rates = comparison["b"]["measured"]
    assert (12, 12) == (rates["json_pass_rate"]["n"], rates["tool_call_pass_rate"]["n"])
    assert "json-tools" == comparison["workload"]


def test_a_cached_prompt_shows_no_first_token(worker: ProjectFolder, servers: tuple[Answering, Answering]) -> None:
    """
    B took prompts from its cache: its first token is not compared, and the reason names B.
    """
    a, b = servers
    b.cached = 3

    comparison = worker.run("versus", a.url, b.url, *QUICK, code=0).document

    first = row(comparison, "ttft_delta")
    assert "not measured" == first["says"]
    assert str(first["because"]).startswith("B had ")
    assert comparison["b"]["measured"]["ttft"]["center"] is None
    assert comparison["a"]["measured"]["ttft"]["center"] > 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--canaries", "none.jsonl"), "none.jsonl"),
        (("--slo", "slo.toml", "--canaries", "json"), "--canaries"),
        (("--slo", "slo.toml", "--target", "big"), "--target"),
    ],
)
def test_what_two_addresses_cannot_do_is_refused(
    worker: ProjectFolder, servers: tuple[Answering, Answering], words: tuple[str, ...], reason: str
) -> None:
    """
    A file of canaries that does not exist, and canaries or a model beside an SLO, which names its own.
    """
    refused = worker.run("versus", *(server.url for server in servers), *words, *QUICK, code=2)

    assert reason in refused.err


def test_a_server_that_is_not_there_is_named(worker: ProjectFolder, servers: tuple[Answering, Answering]) -> None:
    """
    Where no server listens at B, or one that answers nothing but errors, its address is named.
    """
    a, b = servers
    with Answering() as ended:
        ended_url = ended.url
    b.status = 404

    absent = worker.run("versus", a.url, ended_url, *QUICK, code=2)
    broken = worker.run("versus", a.url, b.url, *QUICK, code=2)

    assert ended_url in absent.err
    assert b.url in broken.err
    assert "404" in broken.err
