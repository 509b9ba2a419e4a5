"""A program that speaks the worker protocol, tried: what it declares, what its answers hold, and what is missing."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import model_serializer

from gatekeeper.backends.server_process import quoted_log
from gatekeeper.backends.worker_backend.running_worker import Worker
from gatekeeper.backends.worker_backend.worker_backend import WorkerBackend, open_worker
from gatekeeper.backends.worker_backend.worker_protocol import SEES
from gatekeeper.core.canary import Canary
from gatekeeper.core.document import WriteFields
from gatekeeper.core.errors import StartError
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Setting, setting
from gatekeeper.core.slo import DRAFT_LENGTHS
from gatekeeper.core.slo.subject_table import Subject

PROMPT = "Write the numbers from one to twenty as words, separated by spaces."
TOKENS, FEW_TOKENS = 32, 4
"""The limits of the first two requests, and of the third, which most models reach."""
LENGTH = 4
"""The draft length of the requests that draft."""
READ_TOKENS = 8
"""Tokens of an answer, for the requests that read tokens again."""


class PartState(StrEnum):
    """What was seen of a part of the protocol; `missing` and `wrong` are to be repaired."""

    OK = "ok"
    MISSING = "missing"
    WRONG = "wrong"
    DIFFERS = "differs"
    NOT_DECLARED = "not declared"


@dataclass(frozen=True, slots=True)
class ProtocolPart:
    """One part of the protocol, and what a worker makes of it."""

    name: str
    state: PartState
    text: str
    remedy: str = ""
    """What to do; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class WorkerCheck:
    """What was tried of a worker."""

    parts: tuple[ProtocolPart, ...]
    log: str
    """The last lines of its log, where something is to be repaired."""

    @property
    def to_repair(self) -> int:
        """Return how many parts are missing or wrong."""
        return sum(part.state in {PartState.MISSING, PartState.WRONG} for part in self.parts)

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        return {"parts": self.parts, "to_repair": self.to_repair} | write(self)


LOST = {
    "arrivals": (
        "decode speed is not measured, only that of whole answers",
        '"arrivals": [[at_ns, tokens, drafted, id]]',
    ),
    "token_count": ("speeds in tokens are not measured", 'the tokens of each arrival, or "output_tokens"'),
    "text": ("answers are not graded", '"text"'),
    "token_ids": ("the words of both arms are compared as text alone", "each token's id, the fourth of its arrival"),
    "rounds": ("acceptance is not measured", '"rounds": {"rounds": n, "drafted": n, "accepted": n}'),
    "plain": ("plain decoding needs a program of its own", "plain_command in [subject]"),
    "cold": ("a prompt cache may make first tokens look fast", '"cold" in sees, where no prompt is cached'),
    "prompt_time": ("prefill_throughput is not measured", '"prompt_seconds" and "prompt_read"'),
    "logits": ("near-ties are not told from defects", '"gap", where the request has "gap_after"'),
    "forced": ("every canary is decoded plainly after a soak", '"parted" and "ended", where the request has "forced"'),
    "replay": ("replay_agreement and nll_delta are not measured", '"parted" and "nll", where the request has "replay"'),
    "widths": ("what numerics alone change is not measured", '"gaps", "wide_gaps", "unit" and "nll", for "widths"'),
}
"""What is lost without each word in `sees`, and what to write."""


@dataclass(slots=True)
class _Trial:
    """The answers of a worker so far."""

    backend: WorkerBackend
    draft: str
    parts: list[ProtocolPart] = field(default_factory=list)
    plain: list[Answer] = field(default_factory=list)
    drafted: list[Answer] = field(default_factory=list)
    read: dict[str, bool] = field(default_factory=dict)
    """Whether each word in `sees` had its request that reads tokens again answered."""

    @property
    def drafting(self) -> Setting:
        """Return the setting of a request that drafts, with the knobs that the worker takes."""
        lengths = {knob: LENGTH for knob in DRAFT_LENGTHS if knob in self.backend.knobs}
        return setting(draft=self.draft, **lengths)

    @property
    def answers(self) -> list[Answer]:
        return [*self.plain, *self.drafted]


def check_worker(
    command: Sequence[str], *, target: str, draft: str, timeout: float, start_timeout: float
) -> WorkerCheck:
    """Start *command* as certify does and send it three requests, and one for each reading of tokens that it declares.

    *target* and *draft* stand for `{target}` and `{draft}`. Raise InputError where it cannot be started, does not greet
    or does not become ready in *start_timeout* seconds; *timeout* is the most for an answer.
    """
    subject = Subject(
        backend="worker", target=target, drafts=(draft,), command=tuple(command), timeout=timeout, deadline=timeout,
        start_timeout=start_timeout,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="gatekeeper-") as folder:
        logs = Path(folder)
        models = {name: Path(name).absolute() for name in (target, draft)}
        try:
            trial = _Trial(open_worker(subject, models=models, base=Path.cwd(), logs=logs), draft)
            _send_requests(trial)
        except StartError as error:
            hint = error.hint.replace("start_timeout in [subject]", "--timeout")
            message = error.message.replace("start_timeout =", "--timeout")
            raise StartError(message, cause=error.cause, hint=hint) from error
        trial.parts += _contents(trial)
        check = WorkerCheck(tuple(trial.parts), "")
        newest = max(logs.iterdir(), key=lambda log: log.stat().st_mtime_ns, default=None)
        log = quoted_log(newest) if check.to_repair and newest is not None else ""
    return WorkerCheck(check.parts, log)


def _send_requests(trial: _Trial) -> None:
    """Send each arm a request and the first one a short one too; with one arm alone, send it both again."""
    backend, plain = trial.backend, setting(draft=None)
    arms = [("plain", plain)] if Sight.PLAIN in backend.sight else []
    arms += [("drafting", trial.drafting)] if "draft" in backend.knobs else []
    if not arms:
        text = 'it declares neither "plain" in sees nor "draft" in knobs: there is nothing that it answers'
        trial.parts.append(ProtocolPart("requests", PartState.MISSING, text, 'add "draft" to knobs in the greeting'))
        return
    (name, knobs), (other_name, other_knobs) = arms[0], arms[-1]
    in_one = backend.shares_process or knobs == other_knobs
    begun = time.monotonic()
    worker = backend.start(other_knobs if in_one else knobs)
    try:
        takes = ", ".join(sorted(backend.knobs)) or "none"
        text = f"ready after {time.monotonic() - begun:.2f} s; it takes {takes}"
        trial.parts.append(ProtocolPart("start", PartState.OK, text))
        _send_request(trial, worker, name, knobs, TOKENS)
        _send_request(trial, worker, "short", knobs, FEW_TOKENS)
        _read_tokens(trial, worker)
        if not in_one:
            worker.close()
            worker = backend.start(other_knobs)
        _send_request(trial, worker, other_name if len(arms) > 1 else "second", other_knobs, TOKENS)
    finally:
        worker.close()


def _send_request(trial: _Trial, worker: Worker, name: str, knobs: Setting, most: int) -> None:
    name = f"{name} request"
    if not worker.alive():
        text = "not sent: the worker had ended"
        trial.parts.append(ProtocolPart(name, PartState.WRONG, text, "repair what is above"))
        return
    answer = worker.answer(_request(knobs, most))
    if answer.fault is not None:
        remedy = "see the protocol and its log; every answer with a fault counts against error_rate"
        trial.parts.append(ProtocolPart(name, PartState.WRONG, answer.fault, remedy))
        return
    (trial.plain if dict(knobs)["draft"] is None else trial.drafted).append(answer)
    count = answer.output_tokens
    text = f"{'an unknown number of' if count is None else count} tokens in {answer.seconds:.2f} s"
    if count is not None and count > most:
        remedy = "end an answer at max_tokens of its request"
        trial.parts.append(ProtocolPart(name, PartState.WRONG, f"{text}, {most} were allowed", remedy))
    elif answer.finish is None:
        text = f"{text}, and no finish: it counts as cut off"
        trial.parts.append(ProtocolPart(name, PartState.MISSING, text, 'write "finish": "stop" or "length"'))
    else:
        trial.parts.append(ProtocolPart(name, PartState.OK, f"{text}, finish {answer.finish}"))


def _request(knobs: Setting, most: int) -> DecodeRequest:
    canary = Canary(id="check", messages=({"role": "user", "content": PROMPT},))
    return DecodeRequest(canary, knobs, SamplingParameters(max_tokens=most))


def _read_tokens(trial: _Trial, worker: Worker) -> None:
    """Let the worker read the first tokens of an answer again, in each way that it declares."""
    answers = [answer for answer in trial.answers if _ids(answer)]
    if not answers:
        return
    tokens = _ids(answers[0])[:READ_TOKENS]
    request = _request(setting(draft=None) if Sight.PLAIN in trial.backend.sight else trial.drafting, TOKENS)
    readings: dict[str, Callable[[], object]] = {
        "logits": lambda: worker.logit_gap(request, tokens),
        "forced": lambda: worker.force(request, tokens, 2),
        "replay": lambda: worker.replay(request, tokens, tuple((1,) for _ in tokens)),
        "widths": lambda: worker.read_widths(request, tokens, 2),
    }
    for word, read in readings.items():
        if SEES[word] in trial.backend.sight and worker.alive():
            trial.read[word] = read() is not None


def _ids(answer: Answer) -> tuple[int, ...]:
    """Return the ids of an answer's tokens; none where one is unknown."""
    ids = [arrival.token_id for arrival in answer.arrivals]
    return tuple(token for token in ids if token is not None) if None not in ids else ()


HELD: dict[str, Callable[[Answer], bool]] = {
    "arrivals": lambda answer: bool(answer.arrivals),
    "token_count": lambda answer: answer.output_tokens is not None,
    "text": lambda answer: bool(answer.text or answer.tool_calls),
    "token_ids": lambda answer: bool(_ids(answer)),
    "rounds": lambda answer: answer.rounds is not None,
    "prompt_time": lambda answer: answer.claims.prompt_seconds is not None,
}
"""Whether an answer holds what each word in `sees` says."""


def _contents(trial: _Trial) -> Iterator[ProtocolPart]:
    """Yield what the answers hold of each part that a worker may declare; nothing where no answer shows it."""
    for word, (lost, written) in LOST.items():
        declared, holds = SEES[word] in trial.backend.sight, _holds(trial, word)
        if declared and (word == "cold" or (word == "plain" and trial.plain)):
            yield ProtocolPart(word, PartState.OK, "as declared")
        elif declared and holds is not None:
            text, remedy = ("declared, and there", "") if holds else ("declared, and not there", f"write {written}")
            yield ProtocolPart(word, PartState.OK if holds else PartState.MISSING, text, remedy)
        elif holds:
            text = "in every answer, and not declared, so it is not used"
            yield ProtocolPart(word, PartState.MISSING, text, f'add "{word}" to sees in the greeting')
        elif not declared:
            yield ProtocolPart(word, PartState.NOT_DECLARED, lost, f"to have it: {written}")
    if trial.plain and trial.drafted and HELD["text"](trial.plain[0]):
        yield _same_words(trial.plain[0].text == trial.drafted[0].text)


def _holds(trial: _Trial, word: str) -> bool | None:
    """Return whether every answer holds what *word* stands for; None where no answer shows it."""
    answers = trial.drafted if word == "rounds" else trial.answers
    return all(map(HELD[word], answers)) if word in HELD and answers else trial.read.get(word)


def _same_words(same: bool) -> ProtocolPart:
    if same:
        return ProtocolPart("same words", PartState.OK, "plain decoding and drafting wrote the same text")
    text = "plain decoding and drafting wrote different texts at temperature 0"
    remedy = "fine at a near-tie of the logits; otherwise token_agreement fails"
    return ProtocolPart("same words", PartState.DIFFERS, text, remedy)
