"""The certified run of a remote certify: uploaded from here, or named on the host."""

import json
from pathlib import Path

import pytest

from gatekeeper.core.errors import InputError, UnprovableError
from gatekeeper.run.remote.remote_baseline import remote_baseline
from tests.builders.golden_words import lines_with
from tests.builders.slo import objective, slo
from tests.run.remote.conftest import CERTIFY, Make

AGAINST = objective("acceptance_rate", at_least=0.97, against="certified")
OBJECTIVES = [objective("throughput_ratio", at_least=1.05), AGAINST]


@pytest.mark.nightly
def test_the_certified_runs_of_the_host_are_uploaded(pair: Make) -> None:
    """
    Without --baseline the certified runs downloaded from that host are uploaded, verified there, and compared with
    together; the id of a run on the host is compared with in its place, and one that is not there says so.
    """
    remote = pair(objective=OBJECTIVES, soak={"duration": "600 s", "until": "duration"})
    refused = remote.project.run(*CERTIFY, "--out", "runs/first", code=2)
    remote.project.run(*CERTIFY, "--out", "runs/first", "--baseline", "none", code=0)
    first = remote.job().name

    remote.project.run(*CERTIFY, "--out", "runs/second", code=0)
    unknown = remote.project.run(*CERTIFY, "--out", "runs/third", "--baseline", "no-such-run", code=2)

    assert "no certified run" in refused.err
    (workload,) = remote.project.verdict("runs/second")["workloads"]
    (check,) = [check for check in workload["checks"] if check.get("against") == "certified"]
    assert ("acceptance_rate", "pass") == (check["metric"], check["outcome"])
    frozen = json.loads((remote.project.path / "runs/second/manifest.json").read_text())["certified"]
    assert "baseline/first" == frozen["run"]
    (job,) = [path for path in remote.jobs.iterdir() if (path / "baseline").is_dir()]
    assert job.name != first
    assert "no-such-run" in lines_with("no certified run", unknown.err)

    remote.project.run(*CERTIFY, "--out", "runs/third", code=0)

    document = json.loads((remote.project.path / "runs/third/inputs/certified.json").read_text())
    assert "baseline/second" == document["run"]
    assert ["baseline/first"] == [run["run"] for run in document["pooled"]]


def test_a_run_on_the_host_is_named_by_its_id(tmp_path: Path) -> None:
    """
    What is no folder here is the id of a run there, beside the new one; `none` is passed on, and nothing is uploaded.
    """
    compared, alone = slo(*OBJECTIVES), slo()

    assert (("--baseline", "../20260101-x/run"), {}) == remote_baseline(compared, "20260101-x", "mini", tmp_path)
    assert (("--baseline", "none"), {}) == remote_baseline(compared, "none", "mini", tmp_path)
    assert ((), {}) == remote_baseline(alone, None, "mini", tmp_path)
    with pytest.raises(InputError, match="there is no such run"):
        remote_baseline(compared, "runs/absent", "mini", tmp_path)
    with pytest.raises(InputError, match="no objective"):
        remote_baseline(alone, "none", "mini", tmp_path)
    with pytest.raises(UnprovableError, match="no certified run"):
        remote_baseline(compared, str(tmp_path), "mini", tmp_path)
