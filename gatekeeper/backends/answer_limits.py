"""Limits of one answer, which hold whatever the system under test does: seconds in all, and bytes."""

import threading

from gatekeeper.backends.http.stream import MOST_BYTES
from gatekeeper.core.records import Answer
from gatekeeper.core.slo.subject_table import Subject

_SLOWER = 10.0
"""An answer may decode this many times slower than the slowest one so far: long prompts, a busy machine, swapping."""
_LONGER = 2.0
"""Its time per token in all, prefill included, may be this many times that of the slowest so far."""
_SHARED = 5
"""Streams from which each may be slower still: a server that takes turns is slower by their number."""
_UNSEEN_S = 10.0
"""Seconds per token before any answer was complete: a system slower than this needs `deadline` in [subject]."""
_TOKEN_BYTES = 1 << 12
"""Bytes for each token: the largest chunks that servers send, with timings in each, have a fifth of this."""
_OTHER_BYTES = 1 << 20


class AnswerLimits:
    """The limits for the answers of one backend; its slowest complete answer sets the time."""

    def __init__(self, subject: Subject) -> None:
        self._timeout, self._deadline = subject.timeout, subject.deadline
        self._token_s: float | None = None
        self._first_s = _UNSEEN_S
        self._lock = threading.Lock()

    def seconds(self, max_tokens: int, streams: int = 1) -> float:
        """Return the seconds for an answer of *max_tokens*, while *streams* requests run at once.

        `deadline` of the SLO, else its `timeout` and a multiple of the slowest answer's time for so many tokens.
        """
        if self._deadline is not None:
            return self._deadline
        token_s = self._first_s if self._token_s is None else self._token_s
        return self._timeout + max_tokens * token_s * max(1.0, streams / _SHARED)

    def note(self, answer: Answer) -> None:
        """Let the time of a complete *answer* count for those that follow."""
        tokens = answer.generated_tokens or len(answer.arrivals)
        if answer.fault is not None or not tokens:
            return
        whole_s = answer.seconds / tokens
        with self._lock:
            if tokens == 1 or not answer.arrivals:
                # One token comes with the prompt, and says little: it only stands in until a longer answer came.
                self._first_s = min(_UNSEEN_S, _SLOWER * whole_s)
                return
            decode_s = (answer.ended_ns - answer.arrivals[0].at_ns) / 1e9 / (tokens - 1)
            self._token_s = max(self._token_s or 0.0, _SLOWER * decode_s, _LONGER * whole_s)


def most_bytes(max_tokens: int, request_bytes: int) -> int:
    """Return how many bytes of an answer of *max_tokens* are read; a server may repeat the request in it."""
    return min(MOST_BYTES, _OTHER_BYTES + max_tokens * _TOKEN_BYTES + 2 * request_bytes)
