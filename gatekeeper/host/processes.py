"""The process tree of a subject."""

from collections.abc import Sequence

import psutil


def tree(roots: Sequence[int]) -> list[int]:
    """Return *roots* that live and all their descendants, on any platform."""
    found: set[int] = set()
    for root in roots:
        try:
            process = psutil.Process(root)
            found |= {root} | {child.pid for child in process.children(recursive=True)}
        except (psutil.Error, RuntimeError):  # psutil raises RuntimeError where a new system surprises it
            continue
    return sorted(found)
