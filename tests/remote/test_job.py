"""Jobs: what is started over a link lives on without it, and how it ended is never lost."""

from pathlib import Path

from gatekeeper.remote.link import Link
from tests.remote.conftest import Serve


def test_a_job_runs_to_its_end_and_says_how(serve: Serve, environment: Path) -> None:
    """
    A job is detached, its state is read off its processes, and its exit code is kept.
    """
    serve()

    with Link("far") as link:
        started = link.ask(
            "start", run_id="one", argv=["metrics"], owner="me", slo_sha256="0", environment=str(environment)
        )
        last = list(link.stream("follow", run_id="one"))[-1]

    assert started["run_id"] == "one"
    assert ("finished", 0) == (last["job"]["state"], last["job"]["exit"]["code"])
    assert "throughput_ratio" in last["job"]["log"]
