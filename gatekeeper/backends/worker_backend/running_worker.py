"""A running worker: requests sent to it one at a time, and what its lines answer."""

import threading
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from gatekeeper.backends.answer_limits import AnswerLimits
from gatekeeper.backends.http.chat_request import PLAIN, resolve
from gatekeeper.backends.worker_backend.worker_process import WorkerProcess
from gatekeeper.backends.worker_backend.worker_protocol import (
    WorkerFault,
    answer_from,
    forced_from,
    gap_from,
    is_number,
    read_line,
    replayed_from,
    request_line,
    widths_from,
)
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.interfaces import DecodeRequest, ForcedPass, ReplayedRounds, RoundPasses, RunningSystem, TwoWidths
from gatekeeper.core.records import Answer
from gatekeeper.core.text import quote


class Worker(RunningSystem):
    """One worker, which answers one request at a time."""

    def __init__(
        self, process: WorkerProcess, draft: str | None, timeout: float, limits: AnswerLimits, *, shares_process: bool
    ) -> None:
        self._process, self._draft, self._timeout, self._limits = process, draft, timeout, limits
        self._drafts = {draft, None} if shares_process else {draft}
        self._numbers = count(1)
        self._lock = threading.Lock()

    def answer(self, request: DecodeRequest) -> Answer:
        """Answer one request; an error, the death and the silence of the worker are the answer's fault."""
        if request.draft not in self._drafts:
            message_text = (
                f"the worker started for '{self._draft or PLAIN}' got a request for '{request.draft or PLAIN}'"
            )
            raise GatekeeperError(message_text, hint="this is a bug; please report it")
        with self._lock:
            sent = time.monotonic_ns()
            message, fault = self._exchange(request)
            received = time.monotonic_ns()
        if message is None:
            return Answer(sent, received, fault=fault)
        try:
            answer = answer_from(message, sent_ns=sent, received_ns=received, drafting=request.draft is not None)
        except WorkerFault as wrong:
            # The line was complete and of this request: the worker can take the next one.
            return Answer(sent, received, fault=quote(str(wrong)))
        self._limits.note(answer)
        return answer

    def logit_gap(self, request: DecodeRequest, tokens: tuple[int, ...]) -> float | None:
        """Return how far the target's best logit lies above its second after the prompt and *tokens*.

        An untimed pass that explains near-ties; None where the worker has no logits.
        """
        message = self._read(request, gap_after=tokens)
        return None if message is None else gap_from(message)

    def force(self, request: DecodeRequest, tokens: tuple[int, ...], width: int) -> ForcedPass | None:
        """Let the target read the prompt and *tokens*, *width* at once; None where the worker could not."""
        message = self._read(request, forced=tokens, width=width)
        return None if message is None else forced_from(message, tokens)

    def replay(
        self, request: DecodeRequest, tokens: tuple[int, ...], rounds: RoundPasses, *, twice: bool = False
    ) -> ReplayedRounds | None:
        """Let the target read *tokens* after the prompt in *rounds*; None where the worker could not."""
        message = self._read(request, replay=tokens, rounds=rounds, twice=twice)
        return None if message is None else replayed_from(message, tokens, greedy=resolve(request).greedy)

    def read_widths(self, request: DecodeRequest, tokens: tuple[int, ...], width: int) -> TwoWidths | None:
        """Let the target read *tokens* one by one, and again *width* at once; None where the worker could not."""
        message = self._read(request, widths=tokens, width=width)
        return None if message is None else widths_from(message, tokens)

    def _read(self, request: DecodeRequest, **reading: Any) -> dict[str, Any] | None:
        with self._lock:
            return self._exchange(request, **reading)[0]

    def pids(self) -> tuple[int, ...]:
        """Return the worker's process."""
        return (self._process.pid,)

    def alive(self) -> bool:
        """Tell whether the worker still runs."""
        return self._process.alive()

    def heartbeat(self) -> bytes:
        """Return the worker's latest heartbeat."""
        return self._process.heartbeat()

    def close(self) -> None:
        """End the worker and wait for it."""
        self._process.close()

    def _exchange(self, request: DecodeRequest, **reading: Any) -> tuple[dict[str, Any] | None, str]:
        """Return the worker's answer, or None and its fault; a worker out of step is ended."""
        number, begun, resolved = next(self._numbers), False, resolve(request)
        until = time.monotonic() + self._limits.seconds(resolved.max_tokens)
        try:
            self._process.send(request_line(number, resolved, request.setting, **reading), self._timeout, until)
            while True:
                message = read_line(self._process.receive(self._timeout, until))
                if is_number(message.get("answer"), number):
                    return message, ""
                _check_in_step(message, number, begun=begun)
                begun = True
        except WorkerFault as fault:
            self._process.close()
            reason = quote(str(fault))
            return None, reason if begun else f"{reason} (it had not begun)"


def _check_in_step(message: Mapping[str, Any], number: int, *, begun: bool) -> None:
    """Raise WorkerFault unless *message* is the one line that begins request *number*."""
    if is_number(message.get("begin"), number) and not begun:
        return
    for word in ("answer", "begin"):
        if word in message:
            raise WorkerFault(f"out of step: {word} {quote(repr(message[word]))} during request {number}")
    keys = ", ".join(sorted(message)[:4]) or "nothing"
    raise WorkerFault(f"out of step: a line that is neither begin nor answer, with {quote(keys)}")
