"""A whole fleet, which takes minutes: four hosts and three SLOs, and a cluster of one's own."""

import signal
from collections.abc import Callable

import pytest

from tests.builders.waiting import until
from tests.fleet.conftest import Fleet, overlap
from tests.run.remote.conftest import Ended

pytestmark = pytest.mark.nightly
Make = Callable[..., Fleet]
SLOS = ("one", "two", "three")


def test_three_slos_are_certified_on_four_hosts(make_fleet: Make, ended: Ended) -> None:
    """Twelve verdicts, though a cable is pulled and the controller killed: none overlap on a host, all hosts do."""
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
