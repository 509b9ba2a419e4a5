"""What a scripted system shows of the answer it planned: its pieces, its counts and its claims."""

from dataclasses import dataclass, replace
from zlib import crc32

from gatekeeper.backends.scripted.planned_answer import AnswerContext, PlannedAnswer
from gatekeeper.backends.workers.rounds import round_shapes
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Claims, Rounds
from gatekeeper.core.records.arrivals import Arrival

REJECTED = 1
"""The number of every drafted token that was rejected."""


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """A planned answer, seen by a backend that does not show everything."""

    context: AnswerContext
    planned: PlannedAnswer
    sight: Sight
    times: list[int]
    """When each of its tokens came; fewer than planned where it broke off."""
    at_once: bool
    """It came in one piece."""

    def answer(self, begun: int, ended: int, fault: str | None) -> Answer:
        """Return it as an answer from *begun* to *ended*."""
        memory, sight, planned = self.context.script.memory, self.sight, self.planned
        complete = len(self.times) == len(planned.tokens)
        counted = Sight.TOKEN_COUNT in sight
        active = round(memory.active + memory.growth * self.context.number) if Sight.MEMORY in sight else None
        return Answer(
            begun,
            ended,
            arrivals=self._arrivals(),
            text=planned.text if complete else "".join(planned.tokens[: len(self.times)]),
            tool_calls=planned.calls if complete else (),
            finish=planned.finish if complete else None,
            prompt_tokens=self.context.known.prompt_tokens if counted else None,
            output_tokens=len(self.times) if counted and complete else None,
            rounds=self._counted() if complete else None,
            claims=self._claimed(),
            memory_active=active,
            memory_peak=active,
            fault=fault,
        )

    def _arrivals(self) -> tuple[Arrival, ...]:
        planned, times, sight, arrivals, first = self.planned, self.times, self.sight, [], 0
        if self.at_once:
            return (Arrival(times[-1], len(times) if Sight.TOKEN_COUNT in sight else None),)
        by_token = self.context.script.arrivals == "token"
        counted, flagged, identified = (part in sight for part in (Sight.TOKEN_COUNT, Sight.ROUNDS, Sight.TOKEN_IDS))
        for size in (1,) * len(times) if by_token else (tokens for _, tokens in planned.bursts):
            last = first + size - 1
            if last >= len(times):
                break
            arrival = Arrival(
                times[last],
                size if counted else None,
                planned.drafted[first] if by_token and flagged else None,
                token_id(planned.tokens[first]) if by_token and identified else None,
            )
            arrivals.append(arrival)
            first += size
        return tuple(arrivals)

    def _counted(self) -> Rounds | None:
        rounds, counters = self.planned.rounds, self.context.script.counters
        if rounds is None or Sight.ROUNDS not in self.sight or counters == "silent":
            return None
        if counters != "honest":
            return Rounds(len(self.planned.tokens), 0, 0)
        return replace(rounds, proposals=self._proposals()) if Sight.REPLAY in self.sight else rounds

    def _proposals(self) -> str:
        """Return the drafted tokens of each round; those that were rejected are no tokens of the answer."""
        planned, request, rounds, begun = self.planned, self.context.request, [], 0
        shapes = round_shapes(planned.drafted, draft_tokens=self.context.draft_tokens, max_tokens=request.max_tokens)
        for width, length in shapes:
            written = [token_id(token) for token in planned.tokens[begun : begun + length]]
            kept = [token for token, drafted in zip(written, planned.drafted[begun:], strict=False) if drafted]
            rounds.append([*kept, *([REJECTED] * (width - len(kept)))])
            begun += length
        return ";".join(" ".join(map(str, proposal)) for proposal in rounds)

    def _claimed(self) -> Claims:
        rounds, claims, sight = self.planned.rounds, self.context.script.claims, self.sight
        read_s = self.planned.prefill if Sight.PROMPT_TIME in sight else None
        if rounds is None or (claims is None and Sight.CLAIMED_ROUNDS not in sight):
            return Claims(prompt_seconds=read_s)
        drafted, accepted = (claims.drafted, claims.accepted) if claims else (1.0, 1.0)
        numbers = round(rounds.drafted * drafted), round(rounds.accepted * accepted), rounds.rounds
        return Claims(*numbers, prompt_seconds=read_s)


def token_id(token: str) -> int:
    """Return the id of a token."""
    return crc32(token.encode())
