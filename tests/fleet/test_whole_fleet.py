"""A whole fleet, which takes minutes: four hosts and three SLOs, and a cluster of one's own."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.waiting import until
from tests.fleet.conftest import Fleet, overlap
from tests.fleet.test_dispatch import cluster_of
from tests.run.remote.conftest import Ended

pytestmark = pytest.mark.nightly
Make = Callable[..., Fleet]
SLOS = ("one", "two", "three")


def test_three_slos_are_certified_on_four_hosts(make_fleet: Make, ended: Ended) -> None:
    """Twelve verdicts, though the cable of one host is pulled for a while and the controller is killed in the
    middle: no
    two runs overlap on a host, all four hosts overlap, and nothing is measured twice.
    """
    fleet = make_fleet(4, {name: {} for name in SLOS})
    files = [f"{name}.toml" for name in SLOS]
    fleet.hosts.hold()
    killed = fleet.project.start("fleet", "certify", *files, "-q")
    until(lambda: fleet.soaking(*"abcd"))
    killed.send_signal(signal.SIGKILL)
    killed.wait(30)
    process = fleet.project.start("fleet", "certify", *files, "--json", "-q")
    if cable := fleet.hosts.namespaces.get("b"):
        cable.pull_cable()
    fleet.hosts.release()
    until(lambda: len(fleet.runs("a")) > 1)
    if cable:
        cable.plug_in()
    done = ended(process)

    assert 0 == done.code, done.err + done.out
    assert 12 == [cell["result"]["outcome"] for cell in done.document["cells"]].count("promoted")
    spans = {host: fleet.spans(host) for host in fleet.servers}
    assert [3, 3, 3, 3] == [len(span) for span in spans.values()]
    assert not any(map(overlap, spans.values()))
    assert max(span[0][0] for span in spans.values()) < min(span[0][1] for span in spans.values())


def test_a_cluster_of_ones_own_dispatches(make_fleet: Make, tmp_path: Path, ended: Ended) -> None:
    """--scheduler with a real cluster: the controller is killed, its tasks go on following on the workers, and the same
    command gets their answers; no run is started twice.
    """
    fleet = make_fleet(2, {"one": {}})
    fleet.hosts.hold()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GATEKEEPER_SSH", "XDG_CACHE_HOME"):
            patch.setenv(name, fleet.project.environment[name])
        with cluster_of(tmp_path, "a b") as address:
            words = ("fleet", "certify", "one.toml", "--scheduler", address)
            killed = fleet.project.start(*words, "-q")
            until(lambda: fleet.soaking("a", "b"))
            killed.send_signal(signal.SIGKILL)
            killed.wait(30)
            process = fleet.project.start(*words, "--json", "-q")
            fleet.hosts.release()
            done = ended(process)

    assert 0 == done.code, done.err + done.out
    assert [1, 1] == [len(fleet.runs(host)) for host in fleet.servers]
