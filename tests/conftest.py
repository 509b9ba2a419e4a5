"""What holds for every test: properties are searched without a clock, and what measures real time runs alone."""

import os
import tempfile
from collections.abc import Iterator
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

WHOLE = ("e2e", "remote", "watch")
"""Folders whose tests run whole commands; `./run unit` leaves them out."""
MOST_WORKERS = 4
"""Each imports numpy and starts real programs; tests that run alone keep all of them waiting."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return min(MOST_WORKERS, os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here, without = Path(__file__).parent, find_spec("mlx_lm") is None
    for item in items:
        if without and item.get_closest_marker("mlx"):
            item.add_marker(pytest.mark.skip(reason="no mlx-lm here: the extra `mlx` is not installed"))
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in WHOLE:
            item.add_marker("whole")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hold a lock around each test, of which the others take a share: one marked `alone` waits until nothing runs."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if session is None:
        return (yield)
    gate, room = (Path(tempfile.gettempdir()) / f"gatekeeper-tests-{session}-{name}" for name in ("gate", "room"))
    with gate.open("w") as queue, room.open("w") as shared:
        # Who waits for the room holds the gate: nobody slips past a test that waits to be alone.
        flock(queue, LOCK_EX)
        flock(shared, LOCK_EX if item.get_closest_marker("alone") else LOCK_SH)
        flock(queue, LOCK_UN)
        return (yield)
