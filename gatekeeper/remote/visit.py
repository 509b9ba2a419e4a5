"""A visit: gatekeeper run on another machine in the foreground, for what it says there and then."""

import sys
from collections.abc import Sequence

from gatekeeper.remote.installation import environment, installing, is_installed
from gatekeeper.remote.order import Far, refuse_occupied
from gatekeeper.remote.survey import heed, of_link


def visit(far: Far, argv: Sequence[str]) -> int:
    """Run gatekeeper with *argv* there; what it writes is written here as it comes. Return its exit code."""
    code = 4
    with far.connect() as link:
        if not far.host.environment and not is_installed(link):
            refuse_occupied(far.name, link.ask("jobs")["jobs"])
            disk = [one for one in of_link(link.hello, installed=False) if one.about == "disk"]
            heed(far.name, disk, lambda *_: None)
            sys.stderr.write(f"{installing(far.name)}\n")
        ready = environment(link, path=far.host.environment)
        sinks = {"stdout": sys.stdout, "stderr": sys.stderr}
        for item in link.stream("run", argv=list(argv), **ready.words()):
            if content := item.get("content"):
                sink = sinks[item["stream"]]
                sink.write(content.decode(errors="replace"))
                sink.flush()
            code = int(item.get("code", code))
    return code
