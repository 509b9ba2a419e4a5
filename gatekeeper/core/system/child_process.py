"""Ends a child process and its process group: from here, or from a guard that outlives a killed gatekeeper.

Run as a program it is the guard, a small parent between gatekeeper and a server: `python child_process.py FD GRACE
PROGRAM …`. FD is the read end of a pipe whose other end only gatekeeper holds: when the pipe ends, gatekeeper is gone,
and the server gets SIGTERM, GRACE seconds, then SIGKILL. A SIGTERM to the guard does the same. The guard writes the
server's pid to stdout, gives it stderr, and exits as the server does (128 + n for signal n). It must start without
packages, so this module imports nothing but the standard library.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the process group that *process* leads; a group that is gone, or root's, is left alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def end(process: subprocess.Popen[bytes], *, grace: float, limit: float | None = None) -> int | None:
    """End *process* and the group that it leads, wait for it, and return its exit status; safe to call twice.

    SIGTERM comes first and SIGKILL *grace* seconds later, at once where *grace* is 0. Children that are left in the
    group when *process* has ended are killed too. With a *limit*, wait only so many seconds after SIGKILL, because a
    process of root's cannot be killed; return None where it still runs.
    """
    if grace > 0 and process.poll() is None:
        signal_group(process, signal.SIGTERM)
        # A stopped program receives its SIGTERM only once it runs again.
        signal_group(process, signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    signal_group(process, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(limit)
    return None


def exit_reason(status: int) -> str:
    """Write an exit status as `signal 9` or `exit code 1`; 128 + n is a signal that a parent passed on."""
    if status < 0 or status > 128:
        return f"signal {-status if status < 0 else status - 128}"
    return f"exit code {status}"


def add_guard(command: list[str], *, pipe: int, grace: float) -> list[str]:
    """Return the command line that runs *command* under the guard, which must inherit *pipe*."""
    return [sys.executable, "-I", "-S", __file__, str(pipe), str(grace), *command]


def guard(pipe: int, grace: float, command: list[str]) -> int:
    """Run *command* until it ends, or until *pipe* ends or SIGTERM comes; return its exit status."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)

    def end_server() -> None:
        end(server, grace=grace)

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        end_server()

    # In a thread: the handler runs inside the main thread's wait, which it must not block.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end_server, daemon=True).start())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.close()
    status = server.wait()
    signal_group(server, signal.SIGKILL)  # a server's own children must not outlive it either
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
