"""The leash: a tiny parent between gatekeeper and a server, so that no server outlives a gatekeeper that was killed.

Runs as `python leash.py FD GRACE PROGRAM …`. FD is the read end of a pipe whose other end only gatekeeper holds: when
it ends, gatekeeper is gone, and the server gets SIGTERM, GRACE seconds, then SIGKILL. A SIGTERM to the leash does the
same. It writes the server's pid to stdout, lends it stderr, and exits as the server does (128 + n for signal n).
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main() -> int:
    """Start the program, guard it, and return its exit status."""
    pipe, grace, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)

    def tell_group(number: int) -> None:
        # The whole group: a server's own workers must not outlive it either.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, number)

    def end() -> None:
        tell_group(signal.SIGTERM)
        tell_group(signal.SIGCONT)
        try:
            server.wait(grace)
        except subprocess.TimeoutExpired:
            tell_group(signal.SIGKILL)

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        end()

    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end, daemon=True).start())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.close()
    status = server.wait()
    tell_group(signal.SIGKILL)
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
