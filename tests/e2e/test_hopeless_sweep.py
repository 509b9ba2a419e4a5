"""A sweep whose plain arm cannot be compared with."""

from tests.e2e.test_account import Scripted

UNSTABLE = {"modes": [{"share": 0.4, "slower": 6.0, "arm": "plain"}]}


def test_a_run_ends_with_a_sweep_that_no_soak_can_mend(scripted: Scripted) -> None:
    """
    Where plain decoding has no one speed in every workload, no soak is sent: unproven with the cause, exit code 3, and
    the same verdict from the stored run.
    """
    made = scripted(UNSTABLE)

    done = made.run("certify", "slo.toml", "--out", "run", code=3)
    made.run("judge", "run", code=3)

    assert not list((made.path / "run").glob("soak-*.jsonl"))
    verdict = made.verdict()
    assert ["unproven", "unproven"] == [workload["outcome"] for workload in verdict["workloads"]]
    assert "unstable_arm" in {finding["kind"] for finding in verdict["findings"]}
    assert ["next:", "gatekeeper", "certify", "slo.toml"] == done.out.split()[-4:]
