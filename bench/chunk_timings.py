"""What `timings_per_token` costs: answer speed of one llama-server with it against without, paired and interleaved.

    LLAMA_SERVER=... python bench/chunk_timings.py [--pairs 60]

The llama-server dialect requests it, because a chunk may hold several tokens and nothing else shows how many. The
little target is the hardest case: it decodes a token in well under a millisecond, so the cost per chunk matters most.
"""

import argparse
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it runs as a script, from anywhere

from gatekeeper.backends.dialect import ServerRequest  # noqa: E402
from gatekeeper.backends.dialects import llama_server  # noqa: E402
from gatekeeper.backends.server_backend import ServerBackend  # noqa: E402
from gatekeeper.backends.server_requests import Server  # noqa: E402
from gatekeeper.core.canary import parse  # noqa: E402
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters  # noqa: E402
from gatekeeper.core.records import setting  # noqa: E402
from gatekeeper.core.slo.subject_table import Subject  # noqa: E402
from tools import write_gguf  # noqa: E402

PLAIN = setting(draft=None)
RESAMPLES = 2000


class Asking:
    """The dialect's request, with and without what is measured."""

    told = True

    def __call__(self, wanted: ServerRequest) -> dict[str, Any]:
        """Return the request."""
        return {**llama_server.body(wanted), "timings_per_token": self.told}


def speed(server: Server, ask: DecodeRequest) -> float:
    """Return tokens a second of the whole answer: one this fast may arrive in a single read."""
    answer = server.answer(ask)
    if answer.fault is not None or not answer.output_tokens:
        raise SystemExit(f"no answer to measure: {answer.fault}")
    return answer.output_tokens / ((answer.ended_ns - answer.sent_ns) / 1e9)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[round(0.025 * RESAMPLES)], medians[round(0.975 * RESAMPLES)]


def main() -> None:
    """Print the ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=60)
    pairs = parser.parse_args().pairs
    program = shutil.which(os.environ.get("LLAMA_SERVER") or "llama-server")
    if program is None:
        raise SystemExit("no llama-server: set LLAMA_SERVER, e.g. to what tools/build_llama_server prints")
    canaries = parse((ROOT / "canaries" / "little" / "prose.jsonl").read_text(), "prose")
    asking, draw = Asking(), random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "little-target.gguf")
        write_gguf.write(ROOT / "models" / "little-target", target)
        args = ("--threads", "1", "--ctx-size", "2048", "--parallel", "1")
        subject = Subject(backend="llama-server", target="little-target", program=(program,), args=args)
        dialect = replace(llama_server.DIALECT, body=asking)
        backend = ServerBackend(subject, {"little-target": target}, Path(folder), dialect)
        ratios, speeds = [], []
        with backend.start(PLAIN) as server:
            for number in range(-3, pairs):
                ask = DecodeRequest(canaries[number % len(canaries)], PLAIN, SamplingParameters())
                seen = {}
                for told in draw.sample((True, False), 2):
                    asking.told = told
                    seen[told] = speed(server, ask)
                if number >= 0:  # the first are warm-ups
                    ratios.append(seen[True] / seen[False])
                    speeds.append(seen[False])
    low, high = interval(ratios)
    cost = statistics.median((1 / (ratio * one) - 1 / one) * 1e6 for ratio, one in zip(ratios, speeds, strict=True))
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores; {pairs} pairs of prose")
    print(f"speed with it: {statistics.median(ratios):.3f}x of that without ({low:.3f}x to {high:.3f}x)")
    print(f"without it: {statistics.median(speeds):.0f} tok/s; each chunk takes {cost:.0f} µs longer with it")


if __name__ == "__main__":
    main()
