"""`python -m gatekeeper` and the `gatekeeper` command."""

import io
import os
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    from gatekeeper.cli.main import run  # noqa: PLC0415 (so that importing this module costs nothing)
    from gatekeeper.core.errors import ExitCode  # noqa: PLC0415

    if isinstance(sys.stdout, io.TextIOWrapper):  # a path or a name may hold bytes that are no text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = run(sys.argv[1:])
        if sys.stdout is not None:  # None: it was closed before Python started
            sys.stdout.flush()
    except OSError:
        # stdout cannot be written, such as on a full disk. Python would exit with 1, which means a failed objective.
        code = ExitCode.INTERNAL_ERROR
        devnull = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):  # flushing the buffers must not fail again at exit
            os.dup2(devnull, stream)
    sys.exit(code)


if __name__ == "__main__":
    main()
