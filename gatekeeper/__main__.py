"""`python -m gatekeeper` and the `gatekeeper` command."""

import gc
import io
import os
import sys


def _run() -> int:
    """Run the command line and return its exit code."""
    from gatekeeper.cli.main import run  # noqa: PLC0415 (so that importing this module costs nothing)
    from gatekeeper.core.exit_codes import ExitCode  # noqa: PLC0415

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path or a name may hold bytes that are no text
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except OSError:
        # stdout cannot be written, such as on a full disk. Python would exit with 1, which means a failed objective.
        code = ExitCode.INTERNAL_ERROR
        devnull = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):  # flushing the buffers must not fail again at exit
            os.dup2(devnull, descriptor)
    return code


def main() -> None:
    """Run the command line and leave with its exit code."""
    # What a command imports and reads stays until it ends: to look for garbage in it after every 700 objects takes a
    # twelfth of the time of `plan`, after every 50,000 a twentieth of that of `judge`.
    gc.set_threshold(200_000, 20, 20)
    if sys.stdout is None or sys.stderr is None:  # closed by whoever started this: no verdict could be printed
        sys.exit(4)
    try:
        code = _run()
    except KeyboardInterrupt:  # before the command line could catch it, or after
        sys.stderr.write("gatekeeper: interrupted\n")
        code = 130
    gc.freeze()  # leaving would look for garbage in all that was loaded, which takes a seventh of the time of `judge`
    sys.exit(code)


if __name__ == "__main__":
    main()
