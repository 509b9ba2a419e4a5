"""Short runs of the little pair for `gatekeeper selftest`: a certification, times of tokens, and flips by width."""

import json
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import tomli_w

from gatekeeper import host
from gatekeeper.analysis.plan.settings import sampling_for
from gatekeeper.backends import open_backend
from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.interfaces import DecodeRequest, ReplaysRounds, RunningSystem
from gatekeeper.core.judgement import FindingKind
from gatekeeper.core.records import Answer, HostSample, setting
from gatekeeper.core.system import inputs
from gatekeeper.host.tool_commands import run_for
from gatekeeper.run.certify import certify
from gatekeeper.run.open_run import RunRequest
from gatekeeper.run.prepare import hold_host

SOAK = "4 s"
BLOCKS = (False, True, True, False, False, True, True, False)
"""Whether the host is sampled, block by block: a drift of the machine meets both alike."""
BLOCK_S = 3.0
"""Seconds of one block: three samples at 1 Hz."""
FIRST_SAMPLE_S = 5.0
PAUSES, PAUSE_S = 5, 2.0
"""How many pauses are made, and the seconds of each."""
WIDTHS = (1, 2, 4, 8)
WIDTHS_S, WIDTH_CANARIES = 15.0, 40
"""Seconds after which no further answer is read, and the most answers: about 2,000 tokens."""
CONVERT_S = 30.0
QUANTISED = ("-q", "--q-bits", "4", "--dtype", "bfloat16")
"""What most models on a Mac are: 4-bit weights, and activations whose units in the last place are coarse."""

Sending = tuple[RunningSystem, list[DecodeRequest]]


def certify_little(backend: str, folder: Path) -> dict[str, Any]:
    """Certify the shipped smoke SLO with one workload and one draft length; return the verdict in short.

    Findings that name the user's programs are left out: the file is for others to read.
    """
    finished = certify(RunRequest(_slo_file(backend, folder), folder / "run"))
    verdict = json.loads(finished.text)
    workload = verdict["workloads"][0]
    return {
        "exit_code": verdict["exit_code"],
        "outcome": workload["outcome"],
        "because": workload["because"],
        "checks": [*workload["checks"], *verdict["host_checks"]],
        "findings": [finding for finding in verdict["findings"] if finding["kind"] != FindingKind.BUSY_MACHINE],
    }


def time_tokens(backend: str, folder: Path) -> dict[str, Any]:
    """Return the times between tokens in seconds, without and with the host being sampled, and what a sample cost."""
    blocks: dict[bool, list[list[float]]] = {False: [], True: []}
    samples: list[HostSample] = []
    with _sending(backend, folder) as (system, requests):
        for sampled in BLOCKS:
            sampler = host.Sampler(None, clock=SystemClock(), pids=system.pids, record=samples.append)
            with sampler if sampled else nullcontext():
                if sampled:
                    _await_sample(samples)
                blocks[sampled].append(_gaps(system, requests))
    return {
        "without": _tail(blocks[False]),
        "with": _tail(blocks[True]),
        "sample_s": median(sample.took_ns / 1e9 for sample in samples) if samples else None,
        "samples": len(samples),
    }


def _await_sample(samples: Sequence[HostSample]) -> None:
    """Wait for one more sample: what starting to sample costs is not what a sample costs."""
    count, end = len(samples), time.monotonic() + FIRST_SAMPLE_S
    while len(samples) == count and time.monotonic() < end:
        time.sleep(0.02)


def time_after_pause(backend: str, folder: Path) -> dict[str, Any]:
    """Return the median time to the first token in seconds, right after another answer and after a pause."""
    times: dict[str, list[float]] = {"following": [], "after_pause": []}
    clock = SystemClock()
    with _sending(backend, folder) as (system, requests):
        _answer(system, requests[0])
        for _ in range(PAUSES):
            times["following"].append(_first_token(_answer(system, requests[0])))
            clock.sleep(PAUSE_S)
            times["after_pause"].append(_first_token(_answer(system, requests[0])))
    return {name: median(values) for name, values in times.items()} | {"pause_s": PAUSE_S, "each": times}


def flips_by_width(backend: str, folder: Path) -> dict[str, Any]:
    """Return how many tokens of plain answers change where a quantised target reads several at once, by width."""
    target = folder / "quantised"
    _quantise(inputs.shipped_folder("models") / "little-target", target)
    flips, moved, tokens = dict.fromkeys(WIDTHS, 0), dict.fromkeys(WIDTHS, 0), 0
    end = time.monotonic() + WIDTHS_S
    with _sending(backend, folder, target=target) as (system, requests):
        if not isinstance(system, ReplaysRounds):
            raise GatekeeperError("the worker cannot read tokens", hint="this is a bug; please report it")
        for request in requests[:WIDTH_CANARIES]:
            if time.monotonic() > end:
                break
            arrivals = _answer(system, request).arrivals
            ids = tuple(arrival.token_id for arrival in arrivals if arrival.token_id is not None)
            tokens += len(ids)
            for width in WIDTHS:
                read = system.read_widths(request, ids, width)
                if read is None:
                    raise GatekeeperError(f"it could not read {width} tokens at once", hint="see the log of the worker")
                pairs = list(zip(read.gaps, read.wide_gaps, strict=True))
                flips[width] += sum(wide is None or wide < 0 for _, wide in pairs)
                moved[width] += sum(wide != gap for gap, wide in pairs)
    return {"tokens": tokens, "flips": flips, "moved": moved, "weights": " ".join(QUANTISED)}


def _quantise(source: Path, target: Path) -> None:
    argv = [sys.executable, "-m", "mlx_lm", "convert", "--hf-path", str(source), "--mlx-path", str(target), *QUANTISED]
    output = run_for(argv, CONVERT_S)
    if output.code != 0:
        raise GatekeeperError(f"mlx_lm convert: exit {output.code}: {output.messages[-500:]}", hint="install mlx-lm")


def _slo_file(backend: str, folder: Path, *, canaries: int | None = 8) -> Path:
    """Write the smoke SLO for *backend*, shortened, into *folder*; with its first *canaries*, or with all."""
    models = inputs.shipped_folder("models")
    slo = tomllib.loads((inputs.shipped_folder("slos") / "smoke.toml").read_text("utf-8"))
    slo["subject"] |= {"backend": backend, "target": str(models / "little-target")}
    slo["subject"]["drafts"] = [str(models / "little-draft")]
    slo["workload"] = [{"name": "json", "canaries": "little/json"} | ({} if canaries is None else {"first": canaries})]
    slo["sweep"]["num_draft_tokens"] = [4]
    slo["soak"]["duration"] = SOAK
    path = folder / "selftest.toml"
    path.write_text(tomli_w.dumps(slo), encoding="utf-8")
    return path


@contextmanager
def _sending(backend: str, folder: Path, *, target: Path | None = None) -> Iterator[Sending]:
    """Start plain decoding of the little target, or of *target*, and yield it with requests."""
    files = inputs.read(_slo_file(backend, folder, canaries=None))
    slo, place = files.slo, target or Path(files.slo.subject.target)
    subject = slo.subject.model_copy(update={"target": str(place), "drafts": ()})
    plain = setting(draft=None)
    little_backend = open_backend(subject, models={str(place): place}, base=folder, logs=folder)
    canaries = files.canaries[slo.workload[0].name]
    requests = [DecodeRequest(canary, plain, sampling_for(slo, canary, plain, 1)) for canary in canaries]
    with hold_host(files, folder, "selftest"), little_backend.start(plain) as system:
        yield system, requests


def _answer(system: RunningSystem, request: DecodeRequest) -> Answer:
    answer = system.answer(request)
    if answer.fault is not None:
        raise GatekeeperError(answer.fault, hint="see: gatekeeper explain servers")
    return answer


def _gaps(system: RunningSystem, requests: Sequence[DecodeRequest]) -> list[float]:
    """Return the seconds between arrivals of a block of answers."""
    clock, gaps, number = SystemClock(), list[float](), 0
    end = clock.now_ns() + BLOCK_S * 1e9
    while clock.now_ns() < end:
        times = [arrival.at_ns for arrival in _answer(system, requests[number % len(requests)]).arrivals]
        gaps += [(later - earlier) / 1e9 for earlier, later in pairwise(times)]
        number += 1
    return gaps


def _tail(blocks: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return quantiles of all gaps, and the 99 % quantile of each block, which shows how much these scatter."""
    gaps = list(chain.from_iterable(blocks))
    cuts = quantiles(gaps, n=1000, method="inclusive")
    each = [quantiles(block, n=100, method="inclusive")[98] for block in blocks]
    tail = {"p50": cuts[499], "p95": cuts[949], "p99": cuts[989], "p999": cuts[998], "most": max(gaps)}
    return {"n": len(gaps), **tail, "p99_of_blocks": each}


def _first_token(answer: Answer) -> float:
    return (answer.arrivals[0].at_ns - answer.sent_ns) / 1e9
