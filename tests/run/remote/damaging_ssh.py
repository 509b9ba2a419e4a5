"""ssh behind a bad line: one byte of what comes is changed where a run's file closes; once, or for ever.

    python flip.py MARK TIMES ssh [OPTIONS] HOST COMMAND

MARK counts, over all connections, how often it was done.
"""

import os
import subprocess
import sys
from pathlib import Path

CLOSING = b'{"end": true, "records"'
CHANGED = CLOSING.replace(b"e", b"a", 1)


def main() -> int:
    mark, times, *words = sys.argv[1:]
    ssh = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert ssh.stdout is not None
    while piece := os.read(ssh.stdout.fileno(), 1 << 16):
        done = len(Path(mark).read_bytes()) if Path(mark).exists() else 0
        if CLOSING in piece and done < int(times):
            piece = piece.replace(CLOSING, CHANGED, 1)
            with Path(mark).open("ab") as file:
                file.write(b".")
        while piece:
            piece = piece[os.write(1, piece) :]
    return ssh.wait()


if __name__ == "__main__":
    sys.exit(main())
