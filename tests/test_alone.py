"""How tests run: several at once, those marked `alone` never; and properties on the same examples in each run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("xdist")
TESTS = """
import json, os, time
from pathlib import Path
import pytest

def noted(kind):
    begun = time.monotonic_ns()
    time.sleep(0.02)
    with open(Path(__file__).with_name("spans"), "a") as spans:
        spans.write(json.dumps([kind, begun, time.monotonic_ns()]) + "\\n")

@pytest.mark.parametrize("at", range(6))
def test_beside(at):
    noted("beside")

@pytest.mark.alone
@pytest.mark.parametrize("at", range(2))
def test_alone(at):
    noted("alone")
"""


SKIPPED = """
import pytest

def test_of_a_mac():
    pytest.skip("it reads the tools of a real Mac")

def test_in_a_browser():
    pytest.skip("no Chromium on PATH")
"""


def run_tests(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder by our conftest.py, as `./run tests` does."""
    (folder / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n    whole\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GATEKEEPER_TESTS"))}
    return subprocess.run(
        # With a folder of its own: pytest deletes old ones of its usual folder when it ends, which took two minutes.
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp=its-own", *options, folder],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env=clean | environment,
    )


@pytest.mark.whole
def test_a_test_is_skipped_in_ci_only_for_a_reason_that_ci_names(tmp_path: Path) -> None:
    """Elsewhere a test without its program is skipped; in CI that is a failure, or what was not tried would pass."""
    (tmp_path / "test_a.py").write_text(SKIPPED)

    elsewhere = run_tests(tmp_path)
    in_ci = run_tests(tmp_path, GATEKEEPER_TESTS_MAY_SKIP="a real Mac|no vllm")

    assert (0, True) == (elsewhere.returncode, "2 skipped" in elsewhere.stdout), elsewhere.stdout
    assert (1, True) == (in_ci.returncode, "1 failed, 1 skipped" in in_ci.stdout), in_ci.stdout
    assert "FAILED test_a.py::test_in_a_browser" in in_ci.stdout


@pytest.mark.whole
def test_what_measures_time_has_the_machine_to_itself(tmp_path: Path) -> None:
    """On two workers ordinary tests overlap, and a test marked `alone` overlaps with none, whichever worker it is
    on.
    """
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(TESTS)

    ran = run_tests(tmp_path, "-n", "2")

    spans = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    alone = [span for span in spans if span[0] == "alone"]
    assert (0, 4, 16) == (ran.returncode, len(alone), len(spans)), ran.stdout
    for own_span in alone:
        assert [own_span] == [span for span in spans if span[1] < own_span[2] and own_span[1] < span[2]]
    assert any(
        span[1] < other_span[2] and other_span[1] < span[2]
        for span in spans
        for other_span in spans
        if span is not other_span
    )


def test_examples_are_the_same_whatever_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that only one worker has loaded gives a property no constants of its own."""

    def examples() -> list[int]:
        drawn: list[int] = []

        @settings(max_examples=200, derandomize=True)
        @given(st.integers())
        def note(number: int) -> None:
            drawn.append(number)

        note()
        return drawn

    before = examples()
    source = tmp_path / "loaded.py"
    source.write_text("".join(f"number_{number} = {number}\n" for number in range(770_000, 770_200)))
    loaded = ModuleType("loaded")
    loaded.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "loaded", loaded)

    assert before == examples()
