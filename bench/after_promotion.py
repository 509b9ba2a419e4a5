"""A fault after the promotion: how soon `gatekeeper watch` turns speculation off, and what it logs.

    python bench/after_promotion.py draft [--run RUN_DIR] [--limit 120]
    python bench/after_promotion.py slow

Certifies bench/watched.toml unless a run of it is named, serves the little pair with the real mlx_lm.server (through
our tap, which counts what it accepts), watches it at short intervals, and then causes a fault: `draft` restarts the
server on the same port with models/little-draft-bad, `slow` pauses its process for four fifths of the time, after the
guard on decode_throughput was set to three fifths of the measured speed. Exits 3 if speculation is still on after
--limit seconds.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tomli_w

from gatekeeper.backends.listening_process import find_process, free_port

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "models"
WATCH = {"interval": 0.5, "duty": 0.5, "missing_for": 240.0, "false_alarms": 0.2}
PATIENCE_S = 120.0
RESTART_S = 240.0
"""A server that starts again refuses connections, on a busy machine for long, which is not what is shown here."""
STILL_S, MOVING_S = 0.08, 0.02
"""On a busy machine a process that was held still is let run first afterwards, and catches up some of it."""
SLOW = 0.6
"""Share of the speed seen before, below which the server counts as slow."""
LIFE = timedelta(minutes=15)
"""A short policy has few looks, so that each needs less evidence for the same chance of a false alarm: an old run,
named by --run, takes longer."""
GATEKEEPER = (sys.executable, "-m", "gatekeeper")


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
    argv = [
        *GATEKEEPER,
        "watch",
        str(folder / "policy.toml"),
        "--run",
        str(run),
        "--slo",
        str(ROOT / "bench/watched.toml"),
    ]
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


def until(condition: Callable[[], bool], what: str, limit: float = PATIENCE_S) -> float:
    """Wait for a condition and return how long that took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > limit:
            raise TimeoutError(f"not within {limit:g} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - begun


def spoil(case: str, folder: Path, run: Path, limit: float) -> tuple[float, str]:
    """Spoil a watched server; return the seconds until its speculation was off, and the reason in the log."""
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
        seconds = until(off, "speculation is off", limit)
    return seconds, str([entry for entry in entries(folder) if entry["kind"] == "change"][-1]["because"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["draft", "slow"])
    parser.add_argument("--run", type=Path)
    parser.add_argument("--limit", type=float, default=120.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = options.run or folder / "run"
        if options.run is None:
            argv = [*GATEKEEPER, "certify", str(ROOT / "bench/watched.toml"), "--out", str(run), "--quiet"]
            if subprocess.run(argv, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode != 0:
                print(
                    "the pair was not promoted, so there is nothing to watch: is the machine too busy?", file=sys.stderr
                )
                print("try again on a quieter machine, or name a promoted run with --run", file=sys.stderr)
                return 3
        try:
            seconds, because = spoil(options.case, folder, run, options.limit)
        except (TimeoutError, RuntimeError) as error:
            print(error, file=sys.stderr)
            return 3
    print(f"{options.case}: speculation was off after {seconds:.1f} s: {because}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
