"""Running a command on a remote host while this one waits: its output is shown, nothing is downloaded."""

import sys
from codecs import getincrementaldecoder
from collections.abc import Sequence

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.text import printable_error
from gatekeeper.run.remote.checks_before_run import check_disk, refuse_occupied, report
from gatekeeper.run.remote.installation import installing, is_installed, prepare_environment
from gatekeeper.run.remote.remote_run import RemoteHost

LINE_MOST = 1 << 16
"""Characters of a line that are kept until it ends: a command to a CI system may arrive in pieces."""


def run_in_foreground(remote: RemoteHost, argv: Sequence[str]) -> int:
    """Run gatekeeper with *argv* on the remote host; write its output as it arrives, and return its exit code."""
    code = int(ExitCode.INTERNAL_ERROR)
    with remote.connect() as connection:
        if not remote.settings.environment and not is_installed(connection):
            refuse_occupied(remote.name, connection.request("jobs")["jobs"])
            report(remote.name, [*check_disk(connection.hello, installed=False)], lambda *_: None)
            sys.stderr.write(f"{installing(remote.name)}\n")
        environment = prepare_environment(connection, path=remote.settings.environment)
        sinks = {"stdout": sys.stdout, "stderr": sys.stderr}
        decoders = {name: getincrementaldecoder("utf-8")("replace") for name in sinks}
        rests = dict.fromkeys(sinks, "")
        try:
            for item in connection.stream("run", argv=list(argv), environment=environment.path):
                if (content := item.get("content")) and (name := item.get("stream")):
                    lines, end, rests[name] = (rests[name] + decoders[name].decode(content)).rpartition("\n")
                    if len(rests[name]) > LINE_MOST:
                        lines, end, rests[name] = lines + end, rests[name], ""
                    sinks[name].write(printable_error(lines + end))
                    sinks[name].flush()
                code = int(item.get("code", code))
        finally:
            for name, rest in rests.items():
                sinks[name].write(printable_error(rest))
    if code not in set(ExitCode):
        message = f"{remote.name}: the remote gatekeeper ended with exit code {code}"
        raise GatekeeperError(message, hint="its output above may say why")
    return code
