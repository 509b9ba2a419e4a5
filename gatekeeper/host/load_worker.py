"""The child process of a background load: holds memory, uses CPU or reads the disk until its parent ends.

Run as `python load_worker.py KIND AMOUNT`. It imports nothing of ours, so it starts fast and stays small.
"""

import contextlib
import mmap
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

MEBIBYTE = 1 << 20

TOUCH_EVERY = 10.0
"""Seconds between two passes over the held memory: desktop apps are mostly idle, and use their memory at times."""

CYCLE = 0.1
"""Seconds of one duty cycle of a CPU load."""

FILE_MOST = 512 * MEBIBYTE
"""Bytes of the file that is read again and again; its pages are dropped from the cache before each read."""

F_NOCACHE = 48
"""macOS's fcntl that keeps a file out of the unified buffer cache."""


def die_with_parent() -> None:
    """Exit when the parent closes our stdin; its death closes it too."""

    def wait() -> None:
        while sys.stdin.buffer.read(1):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def ready() -> None:
    """Report to the parent that the load is running."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def hold_memory(size: int) -> None:
    """Hold *size* bytes that cannot be compressed, the same ones in every run."""
    block = random.Random(0).randbytes(MEBIBYTE)
    memory = mmap.mmap(-1, max(1, size))
    for start in range(0, size, MEBIBYTE):
        memory[start : start + MEBIBYTE] = block[: min(MEBIBYTE, size - start)]
    ready()
    while True:
        time.sleep(TOUCH_EVERY)
        for start in range(0, size, MEBIBYTE):
            _ = memory[start : min(start + MEBIBYTE, size) : 4096]


def burn_cpu(share: float) -> None:
    """Keep *share* of one core busy, in cycles of a tenth of a second."""
    ready()
    begin = time.monotonic()
    while True:
        while time.monotonic() - begin < CYCLE * share:
            pass
        begin += CYCLE
        pause = begin - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        else:
            begin = time.monotonic()


def read_disk(rate: float) -> None:
    """Read *rate* bytes per second from a temporary file, without the page cache where the system allows it."""
    size = min(FILE_MOST, max(MEBIBYTE, round(rate * 30) // MEBIBYTE * MEBIBYTE))
    with tempfile.TemporaryFile() as file:  # it has no name, so nothing is left behind
        block = random.Random(0).randbytes(MEBIBYTE)
        for _ in range(size // MEBIBYTE):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        bypass_cache(file.fileno())
        ready()
        begin, done, place = time.monotonic(), 0, 0
        while True:
            drop_from_cache(file.fileno(), place)
            done += len(os.pread(file.fileno(), MEBIBYTE, place))
            place = (place + MEBIBYTE) % size
            time.sleep(max(0.0, begin + done / rate - time.monotonic()))


def bypass_cache(fd: int) -> None:
    """Keep the file out of the cache on macOS."""
    if sys.platform == "darwin":
        import fcntl  # noqa: PLC0415  not on every platform

        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, F_NOCACHE, 1)


def drop_from_cache(fd: int, place: int) -> None:
    """Drop the next block from the cache on Linux, so that reading it reaches the disk."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, place, MEBIBYTE, os.POSIX_FADV_DONTNEED)


def main(kind: str, amount: str) -> None:
    """Run one kind of load until the parent ends."""
    die_with_parent()
    with contextlib.suppress(OSError):
        os.nice(5)  # desktop apps yield to the foreground job, and so does this
    with contextlib.suppress(OSError):  # on Linux: if memory runs out, this is killed and not the server
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    {"memory": lambda: hold_memory(int(amount)), "cpu": lambda: burn_cpu(float(amount))}.get(
        kind, lambda: read_disk(float(amount))
    )()


if __name__ == "__main__":
    main(*sys.argv[1:3])
