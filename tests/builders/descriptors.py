"""A process that may open few more files and connections."""

import contextlib
import gc
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def few_descriptors(spare: int) -> Iterator[None]:
    """Let this process open only *spare* more files and connections, and raise its limit again afterwards."""
    gc.collect()  # files that nobody holds any more would be closed later, and count as more
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.open(os.devnull, os.O_RDONLY)
    descriptors = [last]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last + spare + 64, hard))
        with contextlib.suppress(OSError):  # also the gaps below the last one
            while True:
                descriptors.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(spare):
            os.close(descriptors.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in descriptors:
            os.close(descriptor)
