"""The overlay: written whole, read by any program, kept by one watch."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.live.overlay import Overlay, OverlayRoute, hold_lock, write
from tests.builders.deployment import Deployed, WatchOutput

ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC)
OWNER = {"since": "2026-01-01T00:00:00Z", "policy": "policy.toml"}

CALL = """
import sys
may = knobs(*sys.argv[1:])
sys.exit(1 if may is None else print("\\n".join(f"{knob}={value}" for knob, value in may.items())))
"""
"""What makes a program of the function that the docs show."""
(FUNCTION,) = re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / "docs" / "watch.md").read_text())
READERS = {"sh": (ROOT / "integrations" / "may-speculate").read_text(), "python": FUNCTION}

REQUEST = {"num_draft_tokens": 9, "options": {"workload": "chat", "next_look_before": "2000"}}
"""What a request may carry: words that mean something else where a route has them."""

Reader = Callable[[str, Path], str | None]
"""Returns the draft length to speculate with, None for plain decoding."""


def overlay(*, seconds: float = 3600.0, speculation: bool = True, ended: str | None = None) -> Overlay:
    routes = (
        OverlayRoute(
            "chat", False, 'an "unlucky" guard = 1\nspeculation = true', request={"speculation": True, "schema": 7}
        ),
        OverlayRoute("json", speculation, "as certified", (("draft", "org/draft"), ("num_draft_tokens", 3)), REQUEST),
    )
    return Overlay("m4", "0" * 64, "1" * 64, NOW, NOW + timedelta(seconds=seconds), routes, ended)


@pytest.fixture(params=["sh", "python"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Reader:
    """One of our readers, run as it stands there."""
    script = tmp_path / f"reader.{request.param}"
    script.write_text(READERS[request.param] + (CALL if request.param == "python" else ""))
    program = {"sh": "sh", "python": sys.executable}[request.param]

    def read(workload: str, path: Path) -> str | None:
        ran = subprocess.run([program, script, workload, path], capture_output=True, text=True, timeout=60, check=False)
        setting_lines = [line for line in ran.stdout.splitlines() if line.startswith("num_draft_tokens=")]
        assert bool(setting_lines) == (ran.returncode == 0), ran.stderr
        return setting_lines[0].partition("=")[2] if setting_lines else None

    return read


def test_a_reader_gets_the_setting(reader: Reader, tmp_path: Path) -> None:
    """A route that speculates gives its knobs, one that does not gives none, whatever its reason contains."""
    path = tmp_path / "policy.live.toml"
    path.write_text(overlay().text())

    assert ["3", None, None] == [reader(workload, path) for workload in ("json", "chat", "unknown")]


@pytest.mark.parametrize(
    "text",
    [
        overlay(seconds=-2).text(),
        overlay(speculation=False).text(),
        overlay().text().replace("schema = 1", "schema = 2"),
        overlay().text().replace("next_look_before", "other"),
        "",
        None,
    ],
    ids=["stale", "off", "newer", "undated", "empty", "missing"],
)
def test_a_reader_that_does_not_know_decodes_plainly(reader: Reader, tmp_path: Path, text: str | None) -> None:
    """Stale, switched off, of a newer schema, undated, empty, missing: plain decoding."""
    path = tmp_path / "policy.live.toml"
    if text is not None:
        path.write_text(text)

    assert reader("json", path) is None


def test_a_reader_sees_the_old_overlay_or_the_new_one(tmp_path: Path) -> None:
    """While overlays are replaced a hundred times, every read finds a whole one."""
    path = tmp_path / "policy.live.toml"
    texts = {overlay(speculation=on).text() for on in (True, False)}
    write(path, overlay())
    writer = multiprocessing.get_context("fork").Process(target=_write_often, args=(path,))
    writer.start()
    texts_read = {path.read_text() for _ in range(100)}
    writer.join()

    assert texts_read <= texts
    assert 0 == writer.exitcode


def _write_often(path: Path) -> None:
    for number in range(100):
        assert write(path, overlay(speculation=number % 2 == 0)) is None


def hold(path: Path) -> AbstractContextManager[None]:
    return hold_lock(path, owner=OWNER, option="--overlay")


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    """Two watches cannot keep one overlay; the second reads who has it, and may have it afterwards."""
    path = tmp_path / "policy.live.toml"
    with hold(path):
        with pytest.raises(HostLacksError, match=rf"process {os.getpid()}, since 2026-01-01") as refused:
            hold(path).__enter__()
        with hold(tmp_path / "other.toml"):
            pass

    assert 3 == refused.value.exit_code
    with hold(path):
        assert os.getpid() == json.loads((tmp_path / ".policy.live.toml.lock").read_text())["pid"]


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    """A watch that was killed leaves no lock behind."""
    path = tmp_path / "policy.live.toml"
    holder_script = "import sys; from gatekeeper.live.overlay import hold_lock; from pathlib import Path\n"
    holder_script += (
        "with hold_lock(Path(sys.argv[1]), owner={}, option=''):\n print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holder_script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "held\n" == process.stdout.readline()
    with pytest.raises(HostLacksError):
        hold(path).__enter__()

    process.kill()
    process.communicate()

    with hold(path):
        pass


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    """An overlay that cannot be written ends the command before any request, with what to do."""
    with pytest.raises(GatekeeperError, match="cannot write") as refused:
        hold(tmp_path / "nowhere" / "policy.live.toml").__enter__()

    assert (4, True) == (refused.value.exit_code, "--overlay" in refused.value.hint)


def test_a_log_is_kept_by_one_watch_too(tmp_path: Path) -> None:
    """A watch with an overlay of its own, but the log of another, would be restored from what the other wrote."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    with deployed.session(output), pytest.raises(HostLacksError, match=r"watch\.jsonl") as refused:
        deployed.session(output, overlay=tmp_path / "other.toml").__enter__()

    assert "--log" in refused.value.hint
    with deployed.session(output, overlay=tmp_path / "other.toml"):
        pass


def test_what_a_killed_watch_left_is_written_over(tmp_path: Path) -> None:
    """A part of an overlay that was never put in place does not pile up, however often a watch is killed."""
    path = tmp_path / "policy.live.toml"
    (tmp_path / ".policy.live.toml.fresh").write_text("half an over")
    write(path, overlay())

    assert {"policy.live.toml"} == {path.name for path in tmp_path.iterdir()}
