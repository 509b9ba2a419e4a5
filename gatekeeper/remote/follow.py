"""Following a run on another machine: its events as they come, over as many connections as it takes."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper import relay
from gatekeeper.remote.link import Link
from gatekeeper.remote.tether import Tether
from gatekeeper.terms.ports import Observer
from gatekeeper.terms.records import Event


def follow(tether: Tether, run_id: str, shown_as: str, observers: Sequence[Observer]) -> Mapping[str, Any]:
    """Show each event of a run once, from its first, until it has ended; return what is left to be known of it.

    *shown_as* is where the run will lie here: what it is called there means nothing to anybody here.
    """
    offset = 0

    def act(link: Link) -> Mapping[str, Any]:
        nonlocal offset
        job: Mapping[str, Any] = {}
        for item in link.stream("follow", run_id=run_id, offset=offset):
            for line in item.get("lines", ()):
                _show(line, shown_as, observers)
            offset = int(item["offset"])
            tether.alive()
            job = item.get("job") or job
        return job

    return tether.hold(act)


def _show(line: str, shown_as: str, observers: Sequence[Observer]) -> None:
    event = relay.decode(line)
    if event is None:
        return
    if event.kind == "begin":
        event = Event(event.at, event.kind, {**event.detail, "run": shown_as})
    for observer in observers:
        observer(event)
