"""`python -m gatekeeper` and the `gatekeeper` command."""

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    from gatekeeper.cli import run  # noqa: PLC0415 (so that importing this module costs nothing)

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
