"""`gatekeeper versus`: two systems in one run, their requests interleaved."""

import sys
import tomllib
from pathlib import Path

from tests.builders.project_folder import ProjectFolder

QUICK = ("--seconds", "1", "--json", "--quiet")


def row(document: dict[str, object], metric: str) -> dict[str, object]:
    rows = document["metrics"]
    assert isinstance(rows, list)
    (found,) = (one for one in rows if one["metric"] == metric)
    return dict(found)


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
    found = worker.run(*words, code=1).document

    accepted, speed = row(found, "acceptance_rate"), row(found, "throughput_ratio")
    assert ("worse", "worse") == (accepted["says"], speed["says"])
    assert 1.0 == row(found, "token_agreement")["center"]
    assert (worker.path / "run" / "a" / "answers.jsonl").is_file()


def test_a_system_against_itself_shows_no_difference(worker: ProjectFolder) -> None:
    """
    Two SLO files of the same system have the same acceptance and words, and exit 0.
    """
    slo = tomllib.loads((worker.path / "slo.toml").read_text())
    slo["subject"]["command"] = [sys.executable, "my_worker.py", "{target}", "{draft}"]
    for name in ("one", "other"):
        worker.write_slo({**slo, "name": name}, f"{name}.toml")

    found = worker.run("versus", "one.toml", "other.toml", *QUICK, code=0).document

    assert "no difference shown" == row(found, "acceptance_rate")["says"]
    assert 1.0 == row(found, "token_agreement")["center"]


def test_a_side_that_is_nothing_known_is_refused(worker: ProjectFolder) -> None:
    """
    A word that names no SLO file, environment, program, draft or server is exit code 2.
    """
    refused = worker.run("versus", "nothing", "there", "--slo", "slo.toml", *QUICK, code=2)

    assert "no SLO file" in refused.err
