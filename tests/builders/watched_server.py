"""The little pair on the real mlx_lm.server under a watch, and what spoils it: another draft, a slow process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tomli_w

from gatekeeper.backends.listening_process import find_process, free_port
from tests.builders.project_folder import ROOT
from tests.builders.waiting import until

MODELS = ROOT / "models"
SLO = ROOT / "tests" / "watched.toml"
WATCH = {"interval": 0.5, "duty": 0.5, "missing_for": 240.0, "false_alarms": 0.2}
RESTART_S = 240.0
"""A server that starts again refuses connections, on a busy machine for long, which is not what is shown here."""
STILL_S, MOVING_S = 0.08, 0.02
"""On a busy machine a process that was held still is let run first afterwards, and catches up some of it."""
SLOW = 0.6
"""Share of the speed seen before, below which the server counts as slow."""
LIFE = timedelta(minutes=15)
"""A short policy has few looks, so that each needs less evidence for the same chance of a false alarm."""


@contextlib.contextmanager
def served(
    draft: str | None, port: int, options: Sequence[str] = ("--prompt-cache-size", "0"), *, tapped: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    """Serve the little target with a draft of models/, or without one, until leaving, from the moment it listens."""
    argv = [
        sys.executable,
        "-P",
        "-m",
        *(("gatekeeper.backends.workers.mlx_tap",) if tapped else ("mlx_lm", "server")),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    argv += ["--model", str(MODELS / "little-target"), *options]
    argv += [] if draft is None else ["--draft-model", str(MODELS / draft)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: find_process(f"http://127.0.0.1:{port}") is not None, "the server listens")
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@contextlib.contextmanager
def slowed(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Hold a process still for four fifths of the time."""
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            process.send_signal(signal.SIGSTOP)
            time.sleep(STILL_S)
            process.send_signal(signal.SIGCONT)
            over.wait(MOVING_S)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def watched(folder: Path, run: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """Watch the run's policy, with short times, until leaving."""
    policy = tomllib.loads((run / "policy.toml").read_text())
    policy["watch"] = WATCH
    policy["expires"] = (datetime.now(UTC) + LIFE).isoformat()
    for guard in policy["guard"]:
        guard["for"] = RESTART_S if guard["metric"] == "error_rate" else 2.0
    (folder / "policy.toml").write_text(tomli_w.dumps(policy))
    argv = [sys.executable, "-m", "gatekeeper", "watch", str(folder / "policy.toml"), "--run", str(run)]
    argv += ["--slo", str(SLO)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*argv, "--url", f"http://127.0.0.1:{port}"], env=environment, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def tighten(folder: Path, speed: float) -> None:
    """Edit the watched policy: slow is below SLOW times *speed*."""
    policy = tomllib.loads((folder / "policy.toml").read_text())
    for guard in policy["guard"]:
        if guard["metric"] == "decode_throughput":
            guard["at_least"] = SLOW * speed
    fresh = folder / "policy.fresh"
    fresh.write_text(tomli_w.dumps(policy))
    fresh.replace(folder / "policy.toml")


def entries(folder: Path) -> list[dict[str, Any]]:
    """Return what the journal holds."""
    path = folder / "watch.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def spoil(case: str, folder: Path, run: Path) -> str:
    """Spoil a watched server, by its `draft` or by being `slow`; return why the log says that speculation is off."""
    port = free_port()

    def centers() -> dict[str, float | None]:
        """Return what the last look saw of each guard's metric."""
        looks = [entry for entry in entries(folder) if entry["kind"] == "look"]
        routes = looks[-1]["routes"].values() if looks else ()
        return {name.split()[0]: seen[1] for route in routes for name, seen in route["guards"].items()}

    def off() -> bool:
        live = tomllib.loads((folder / "policy.live.toml").read_text())
        return not any(route["speculation"] for route in live["route"])

    with contextlib.ExitStack() as stack:
        good = stack.enter_context(contextlib.ExitStack())
        server = good.enter_context(served("little-draft", port))
        watch = stack.enter_context(watched(folder, run, port))

        def judged() -> bool:
            if watch.poll() is not None:
                raise RuntimeError(f"the watch ended with code {watch.returncode}")
            return bool(seen := centers()) and None not in seen.values()

        until(judged, "every guard is judged")
        if off():
            raise RuntimeError("speculation was off before anything was spoiled: is the machine too busy?")
        if case == "draft":
            good.close()
            stack.enter_context(served("little-draft-bad", port))
        else:
            tighten(folder, centers()["decode_throughput"] or 0.0)
            until(lambda: any(entry["kind"] == "policy" for entry in entries(folder)), "the edit is taken up")
            stack.enter_context(slowed(server))
        until(off, "speculation is off")
    return str([entry for entry in entries(folder) if entry["kind"] == "change"][-1]["because"])
