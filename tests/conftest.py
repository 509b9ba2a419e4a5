"""What holds for every test: its examples, a lock and a state folder; and what measures time runs alone."""

import gc
import os
import re
import signal
import tempfile
from collections.abc import Generator, Iterator
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.builders import golden_words, mac_tools

# No deadline: this machine may be busy. The same examples each time, so that what passes once passes again, and so no
# more than thirty; the night draws a hundred others. `./run unit` takes the first few.
settings.register_profile("the same", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("few", deadline=None, derandomize=True, max_examples=10)
settings.register_profile("others", deadline=None, print_blob=True)
settings.load_profile("the same")
# Hypothesis also draws constants of the modules that are loaded, and each worker has loaded others. It has no setting
# for that: with the same examples in each run there are none.
_constants_of_modules = providers._get_local_constants
providers._get_local_constants = lambda: Constants() if settings().derandomize else _constants_of_modules()

# Arrays here are small, and a second thread of the linear algebra waits for the first by spinning: beside other test
# processes it takes six times the processor time. Read when numpy is imported; what tests start inherits it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Two test processes measure nothing that the other could spoil; what they start inherits the lock of their own.
_LOCKS = tempfile.TemporaryDirectory(prefix="gatekeeper-tests-")
os.environ["GATEKEEPER_HOST_LOCK"] = str(Path(_LOCKS.name) / "host.lock")
# Runs of tests are no tries of whoever runs the tests; a test that counts them has a state folder of its own.
os.environ["XDG_STATE_HOME"] = str(Path(_LOCKS.name) / "state")
# Every Mac is a Mac mini for tests: the one that runs them may be a virtual Mac, on which nothing is ever proven.
_MINI = Path(_LOCKS.name) / mac_tools.MINI
mac_tools.write_tools(_MINI, {"sysctl": mac_tools.sysctl_script()})
os.environ["PATH"] = os.pathsep.join((str(_MINI), os.environ["PATH"]))

# A shell that starts a job in the background has it ignore Ctrl-C, nohup has it ignore SIGHUP; so would all that the
# tests start and interrupt.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

MAY_SKIP = os.environ.get("GATEKEEPER_TESTS_MAY_SKIP")
"""In CI, the only reasons for which a test may be skipped, as a regular expression; without it, any."""

WHOLE = ("e2e", "faults", "versus", "run/remote", "live/running", "shipped")
"""Folders whose tests run whole commands, or read all that is shipped; `./run unit` leaves them out."""
WHOLE_FOLDERS = tuple(f"{Path(__file__).parent / folder}/" for folder in WHOLE)
WHOLE_FIXTURES = {"dist", "fresh", "llama_server", "make_fleet", "scripted", "told"}
"""Elsewhere, a test that takes one of these does too: it builds a wheel, certifies a run, starts hosts or a server."""
_BUILDERS = "background_server|browser|deployment|hostile_host|live_server|otlp|proxy_process|servers|small_run|tls"
STARTS = re.compile(
    rf"^import subprocess$|^from tests\.builders\.(?:{_BUILDERS}) |\b(?:ProjectFolder|fake_server|fake_llama_server)\b"
    r"|\b(?:start_server|ThreadingHTTPServer|healthy_mac|stand_in)\b|import .*\bproject_folder\b",
    re.MULTILINE,
)
"""What the source of a file has that starts a program, a server or a command: all its tests count as whole.

A rule on files, because a file that is left out need not be imported.
"""
HEAVY = (*WHOLE, "backends", "live")
"""Folders with files that take a minute."""
MOST_WORKERS = 4
"""Each imports numpy and starts real programs; tests that run alone keep all of them waiting."""


REAL_PAIR = ("dialects/test_mlx_server", "test_contract", "test_forced_passes", "test_mlx", "test_reading_again")
ON_ONE_WORKER = {
    **{f"tests/backends/{name}.py": "the real servers and workers of `shared_backend`" for name in REAL_PAIR},
    **{
        f"tests/report/html/test_{name}.py": "the pages of tests/builders/pages.py"
        for name in ("accessibility", "page_browser")
    },
    **{
        f"tests/report/otel/test_{name}.py": "the run of tests/report/otel/conftest.py"
        for name in ("exported_run", "exporter", "failures")
    },
}
"""Files with a fixture of the session that takes seconds to make, and which."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep files that share what is slow to make on one worker, as `--dist loadfile` keeps the tests of each file."""
    if config.getvalue("dist") != "loadfile":
        return None
    scheduler = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda test: ON_ONE_WORKER.get(file_of(test), file_of(test))
    return scheduler


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    # Two more than there are processors, because tests wait for what they started. The quick ones wait for little, and
    # each worker imports all of them, which in a fresh clone takes half a minute.
    processors = os.cpu_count() or 1
    return min(MOST_WORKERS, processors if "whole" in _left_out(config) else processors + 2)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file out before its imports where `-m` leaves out all its tests; mlx-lm alone takes a second."""
    left_out, named_files = _left_out(config), {Path(word.partition("::")[0]).resolve() for word in config.args}
    if collection_path in named_files:
        return None
    if "whole" in left_out and f"{collection_path}/".startswith(WHOLE_FOLDERS):
        return True
    if not left_out or collection_path.suffix != ".py":
        return None
    if "whole" in left_out and _starts(collection_path):
        return True
    marked = re.search(r"^pytestmark = (.+)", collection_path.read_text("utf-8"), re.MULTILINE)
    return True if marked and left_out & {*re.findall(r"\bmark\.(\w+)", marked[1])} else None


@cache
def _starts(path: Path) -> bool:
    return path.name.startswith("test_") and STARTS.search(path.read_text("utf-8")) is not None


def _left_out(config: pytest.Config) -> set[str]:
    """Return the marks that `-m "not one and not another"` leaves out; nothing where it says more than that."""
    parts = config.option.markexpr.split(" and ")
    only_left_out = all(re.fullmatch(r"not \w+", part) for part in parts)
    return {part.removeprefix("not ") for part in parts} if only_left_out else set()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    without = find_spec("mlx_lm") is None
    for item in items:
        if without and item.get_closest_marker("mlx"):
            item.add_marker(pytest.mark.skip(reason="no mlx-lm here: the extra `mlx` is not installed"))
        is_whole = str(item.path).startswith(WHOLE_FOLDERS) or _starts(item.path)
        if is_whole or WHOLE_FIXTURES & {*getattr(item, "fixturenames", ())}:
            item.add_marker("whole")
    alone = {item.path for item in items if item.get_closest_marker("alone") and not item.get_closest_marker("nightly")}
    items.sort(key=lambda item: _weight(item.path, alone=item.path in alone))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what was collected out of garbage collection: each full one would walk thousands of tests and modules."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # A run makes and drops a hundred thousand objects: to look through them at the usual 700 takes a twentieth.
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


def _weight(path: Path, *, alone: bool) -> int:
    """Rank a file: the longest piece of work begins first, and small pieces fill the end of the run.

    A test that runs alone waits for what runs, and all others wait for it: before the small pieces that is not long.
    """
    if alone:
        return 1
    if any(f"tests/{folder}/" in path.as_posix() for folder in HEAVY):
        return 0
    return 2 if _starts(path) else 3


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Let a skipped test fail where CI has not named its reason: what was not tried has not passed."""
    return _refuse_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Let a skipped file fail in the same way."""
    return _refuse_skip((yield))


def _refuse_skip(report: Any) -> Any:
    if MAY_SKIP is not None and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not MAY_SKIP or not re.search(MAY_SKIP, reason):
            report.outcome = "failed"
            report.longrepr = f"{reason}\n.ci/run installs what a test needs, or names why it may be skipped"
    return report


@pytest.fixture(scope="session", autouse=True)
def _folders_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tell `says` where pytest makes the folders of this session, so that it stores none of them."""
    golden_words.temporary = str(tmp_path_factory.getbasetemp())


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
