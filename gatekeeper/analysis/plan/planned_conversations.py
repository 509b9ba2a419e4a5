"""The conversations of a run: which canaries are their turns, and the order in which these are sent."""

import hashlib
import random
from collections.abc import Iterator, Sequence

from gatekeeper.analysis.plan.planned_request import PlannedRequest, shuffled
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Setting

CONVERSATIONS = "conversations.jsonl"
"""The answers to the turns, of all workloads."""
TRIAL = "conversations"
"""The trial of these answers, and the phase of the host's samples meanwhile."""
MOST_CONVERSATIONS = 24
"""A workload has no more of them: more add little to what the conversations differ by."""
Conversation = tuple[Canary, ...]
"""Its turns."""


def conversations_of(canaries: Sequence[Canary]) -> tuple[Conversation, ...]:
    """Return the conversations among *canaries*, in the order of the file."""
    turns: dict[str, list[Canary]] = {}
    for canary in canaries:
        if canary.conversation is not None:
            turns.setdefault(canary.conversation, []).append(canary)
    return tuple(tuple(conversation) for conversation in turns.values())[:MOST_CONVERSATIONS]


def conversation_blocks(
    workload: str, knobs: Setting, canaries: Sequence[Canary], *, seed: int, shares_process: bool, resumed: bool
) -> list[list[PlannedRequest]]:
    """Return the requests in blocks that one process answers, turn after turn.

    Arms that share a process take turns by conversation, in random order; else they come as plain, draft, draft,
    plain, each with half of the conversations. On a cache that both arms share, a session's number at the start of its
    first message keeps one arm from resuming what the other one has read.
    """
    shuffle = random.Random(f"{seed}/{TRIAL}/{workload}")
    order = shuffled(conversations_of(canaries), shuffle)

    def turns(conversation: Conversation, arm: str) -> Iterator[PlannedRequest]:
        knobs_of_arm = knobs if arm == "candidate" else plain_of(knobs)
        for canary in conversation:
            session = f"{seed}/{canary.conversation}/{arm}" if shares_process and resumed else None
            prompt = canary if session is None else _in_session(canary, session)
            yield PlannedRequest(workload, prompt, arm, knobs_of_arm, trial=TRIAL, prefix=arm, pair=canary.id)

    if shares_process:
        arms = [(conversation, shuffled(("plain", "candidate"), shuffle)) for conversation in order]
        return [[request for conversation, both in arms for arm in both for request in turns(conversation, arm)]]
    half = (len(order) + 1) // 2
    parts = (("plain", order[:half]), ("candidate", order[:half]), ("candidate", order[half:]), ("plain", order[half:]))
    return [[request for conversation in part for request in turns(conversation, arm)] for arm, part in parts if part]


def _in_session(canary: Canary, session: str) -> Canary:
    number = int.from_bytes(hashlib.sha256(session.encode()).digest()[:4]) % 1_000_000
    first, *others = canary.messages
    said, text = first.get("content") or "", f"Session {number:06d}. "
    # A content may be a list of parts, of which a text is one.
    begun = {**first, "content": text + said if isinstance(said, str) else [{"type": "text", "text": text}, *said]}
    return canary.model_copy(update={"messages": (begun, *others)})
