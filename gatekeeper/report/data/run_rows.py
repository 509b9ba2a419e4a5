"""A run as rows of two tables: an answer and a host sample, with what is unknown as None and never as 0."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.analysis.metrics.answer_table import Read, burst_gap, tabulate
from gatekeeper.analysis.metrics.timing import answer_rate, prefill_rate, ttft
from gatekeeper.core.records import Generation, HostSample, Reading

OF_GENERATION = ("key", "trial", "workload", "canary", "arm", "repeat", "segment", "concurrency")
OF_ANSWER = ("sent_ns", "ended_ns", "prompt_tokens", "output_tokens", "finish", "fault")
OF_SETTING = (
    "draft", "num_draft_tokens", "block_size", "window", "draft_n_min", "draft_p_min", "temperature", "max_tokens",
    "thinking",
)  # fmt: skip
"""Columns that are a field or a knob of the same name."""
SUFFIXES = {"B": "bytes", "s": "s", "W": "w", "Hz": "hz", "rpm": "rpm"}
"""How the name of a column ends, by the unit of its readings; counts, levels, shares and words have no unit."""


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One answer, with its units in the names of its fields; None is unknown, never 0."""

    run: str
    """The name of the run's folder."""
    file: str
    """The record file that holds the answer."""
    key: str
    """Unique in that file."""
    phase: str
    """`sweep`, `soak` or the follow-up: `warm_cache`, ..."""
    trial: str
    """The trial, or the soak that it belongs to: `baseline`, `num_draft_tokens-4`, `soak-1`."""
    workload: str
    """As the SLO file names it."""
    canary: str
    """The id of its prompt."""
    arm: str
    """`plain` or `candidate`."""
    role: str
    """Why it was requested: `warmup` answers are left out of every metric, `baseline` and `block` are plain ones."""
    repeat: int
    """Which repeat of the sweep; in a soak, which unbroken stretch of its segment."""
    segment: int
    """Which uninterrupted part of the run."""
    pair: str | None
    """Answers of both arms with the same pair and canary are compared with each other."""
    concurrency: int
    """Requests in flight at once."""
    draft: str | None
    """The draft model; None: plain decoding."""
    num_draft_tokens: int | None
    """Tokens that are drafted a round."""
    block_size: int | None
    """Tokens that a block-diffusion draft proposes a round."""
    window: int | None
    """Tokens of context that the draft reads."""
    draft_n_min: int | None
    """The fewest tokens worth drafting in a round."""
    draft_p_min: float | None
    """The least probability at which drafting goes on."""
    temperature: float | None
    """Where the sweep names it; otherwise it is the SLO file's."""
    max_tokens: int | None
    """Where the sweep names it; otherwise it is the SLO file's or the canary's."""
    thinking: bool | None
    """Where the sweep names it; otherwise it is the SLO file's."""
    ended_at: str | None
    """Wall time of the end."""
    sent_ns: int
    """Monotonic nanoseconds at which the request was sent; host samples have the same clock."""
    ended_ns: int
    """Monotonic nanoseconds at which the answer ended."""
    prompt_tokens: int | None
    """Tokens of the prompt."""
    output_tokens: int | None
    """Tokens of the answer."""
    ttft_ms: float | None
    """From the request to the first token."""
    answer_ms: float
    """From the request to the end."""
    decode_tok_per_s: float | None
    """After the first burst; None: it came in one burst."""
    answer_tok_per_s: float | None
    """Output tokens over `answer_ms`."""
    prefill_tok_per_s: float | None
    """Prompt tokens over the server's time to read them."""
    rounds: int | None
    """Verify passes, as we counted."""
    drafted_tokens: int | None
    """As we counted."""
    accepted_tokens: int | None
    """As we counted."""
    claimed_rounds: int | None
    """As the server claims."""
    claimed_drafted_tokens: int | None
    """As the server claims."""
    claimed_accepted_tokens: int | None
    """As the server claims."""
    cached_prompt_tokens: int | None
    """Prompt tokens from the cache, as the server claims."""
    finish: str | None
    """`stop`, `length` or `tool_calls`; None when it never finished."""
    memory_active_bytes: int | None
    """What the allocator held at its end."""
    memory_peak_bytes: int | None
    """The most that it held until then."""
    fault: str | None
    """What went wrong; such an answer counts as an error and in no figure of speed."""


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """A record file of answers as it was read."""

    name: str
    phase: str
    records: Sequence[Generation]

    @property
    def soak(self) -> str | None:
        """Return the name of the soak that it is a part of; None for another phase."""
        return self.name.partition(".")[0] if self.phase == "soak" else None


def answer_rows(run: str, files: Iterable[AnswerFile]) -> Iterator[AnswerRow]:
    """Yield a row an answer, file by file; plain answers of a soak tell its bursts, those of the sweep all others."""
    files = list(files)
    plain: dict[tuple[str | None, str], list[Generation]] = defaultdict(list)
    for file in files:
        for generation in file.records:
            if generation.arm == "plain" and file.phase in {"sweep", "soak"}:
                plain[file.soak, generation.workload].append(generation)
    gaps = {stage: burst_gap(answers) for stage, answers in plain.items()}
    for file in files:
        of_sweep = {workload: gap for (soak, workload), gap in gaps.items() if soak is None}
        of_file = of_sweep | {workload: gap for (soak, workload), gap in gaps.items() if soak == file.soak}
        table = tabulate(*(([generation], of_file.get(generation.workload, 0.0)) for generation in file.records))
        decode_rate = table.read("decode_rate")
        for generation in file.records:
            yield _row(run, file, generation, decode_rate)


def _row(run: str, file: AnswerFile, generation: Generation, decode_rate: Read) -> AnswerRow:
    answer, knobs = generation.answer, dict(generation.setting)
    knobs_named: dict[str, Any] = {name: knobs.get(name) for name in OF_SETTING}
    rounds, claims, until_first_s = answer.rounds, answer.claims, ttft(answer)
    return AnswerRow(
        run=run,
        file=file.name,
        phase=file.phase,
        role=generation.role.value,
        pair=generation.pair or None,
        ended_at=generation.at or None,
        ttft_ms=None if until_first_s is None else until_first_s * 1e3,
        answer_ms=answer.seconds * 1e3,
        decode_tok_per_s=decode_rate(answer),
        answer_tok_per_s=answer_rate(answer),
        prefill_tok_per_s=prefill_rate(answer),
        rounds=rounds.rounds if rounds else None,
        drafted_tokens=rounds.drafted if rounds else None,
        accepted_tokens=rounds.accepted if rounds else None,
        claimed_rounds=claims.rounds,
        claimed_drafted_tokens=claims.drafted,
        claimed_accepted_tokens=claims.accepted,
        cached_prompt_tokens=claims.cached_tokens,
        memory_active_bytes=answer.memory_active,
        memory_peak_bytes=answer.memory_peak,
        **{name: getattr(generation, name) for name in OF_GENERATION},
        **{name: getattr(answer, name) for name in OF_ANSWER},
        **knobs_named,
    )


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One sample of the host; None is a value that could not be read, never 0."""

    run: str
    """The name of the run's folder."""
    at: str
    """Wall time."""
    at_ns: int
    """Answers have the same clock."""
    phase: str | None
    """The soak, which is the `trial` of its answers; None outside of one."""
    segment: int
    """Which uninterrupted part of the run."""
    took_ms: float
    """How long taking it took."""
    late_ms: float
    """How long after its deadline."""
    values: Mapping[str, float | str | None]
    """Readings by [name](#names-of-readings) and unit: `memory_headroom_bytes`, `gpu_power_w`; columns in a table."""
    missing: str | None
    """`gpu_power denied, fan_speed absent`."""


def column_of(name: str, unit: str) -> str:
    """Return the name of a reading's column, which ends in its unit."""
    suffix = SUFFIXES.get(unit, "")
    return name if not suffix or name.endswith(f"_{suffix}") else f"{name}_{suffix}"


def sample_rows(run: str, samples: Iterable[HostSample]) -> Iterator[SampleRow]:
    """Yield a row a sample."""
    for sample in samples:
        missing = (
            f"{name} {reading.status}" for name, reading in sample.values.items() if _read_value(reading) is None
        )
        yield SampleRow(
            run=run,
            at=sample.at,
            at_ns=sample.at_ns,
            phase=sample.phase or None,
            segment=sample.segment,
            took_ms=sample.took_ns / 1e6,
            late_ms=sample.late_ns / 1e6,
            values={column_of(name, reading.unit): _read_value(reading) for name, reading in sample.values.items()},
            missing=", ".join(missing) or None,
        )


def _read_value(reading: Reading) -> float | str | None:
    return reading.value if reading.status == "ok" else None
