"""Which requests belong to one conversation: its arm is drawn once, because servers keep what they have read of it.

A request continues an earlier one if its first messages are all of the earlier one's. What is kept are hashes with a
random key of this process, in memory alone.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

CONVERSATION_HEADER = "x-gatekeeper-conversation"
"""The header by which a client may name the conversation of a request."""
MOST_KEPT = 1 << 14
"""Requests that may be continued; the one that came longest ago is forgotten first."""
MOST_BACK = 64
"""Messages by which a request may be longer than the one that it continues."""
MOST_REPEATS = 8
"""So often the same request comes again within a conversation; more often it is a job's, and drawn anew."""
_BYTES = 16


@dataclass(frozen=True, slots=True)
class LiveConversation:
    """One conversation; `id` is random, and says nothing of what is in it."""

    id: str
    draw: float
    """From 0 to 1, drawn once: below the holdout's share, its requests are decoded plainly."""


def session_of(headers: Mapping[str, str], key_digest: str) -> str | None:
    """Return the conversation that a request names, one of its client's own; None where it names none."""
    name = headers.get(CONVERSATION_HEADER)
    return f"{key_digest} {name}" if name else None


def prefix_digests(beginning: str, messages: Iterable[tuple[str, str]]) -> tuple[bytes, ...]:
    """Return a digest after each message (role and text): of it, all before it, and *beginning*."""
    digests, hashed = [], hashlib.blake2b(beginning.encode("utf-8", "surrogatepass"), digest_size=_BYTES)
    for role, text in messages:
        parts = role.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")
        hashed.update(b" %d %d %b" % (len(parts[0]), len(parts[1]), parts[0]))
        hashed.update(parts[1])
        digests.append(hashed.digest())
    return tuple(digests)


class Conversations:
    """Remembers the newest requests, each with its conversation."""

    def __init__(self, draw: Callable[[], float]) -> None:
        """Draw each new conversation with *draw*."""
        self._draw, self._key = draw, secrets.token_bytes(32)
        self._kept: OrderedDict[bytes, tuple[LiveConversation, int]] = OrderedDict()

    def conversation_of(self, prefixes: Sequence[bytes], session: str | None = None) -> LiveConversation:
        """Return the conversation of a request: that of its *session*, of the request that it continues, or a new one.

        Without a session and without messages it is a conversation of its own.
        """
        if session is not None:
            key = self._hash_with_key(b"session" + session.encode("utf-8", "surrogatepass"))
            return self._keep(key, self._kept[key][0] if key in self._kept else self._new(), 0)
        if not prefixes:
            return self._new()
        key = self._hash_with_key(prefixes[-1])
        conversation, repeats = self._kept.get(key, (None, 0))
        if conversation is not None and repeats < MOST_REPEATS:
            return self._keep(key, conversation, repeats + 1)
        for prefix in prefixes[-2 : -MOST_BACK - 1 : -1]:  # mostly the second is it: the others are never hashed
            if (kept := self._kept.get(self._hash_with_key(prefix))) is not None:
                return self._keep(key, kept[0], 0)
        return self._keep(key, self._new(), 0)

    def _new(self) -> LiveConversation:
        return LiveConversation(secrets.token_hex(8), self._draw())

    def _hash_with_key(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, digest_size=_BYTES, key=self._key).digest()

    def _keep(self, key: bytes, conversation: LiveConversation, repeats: int) -> LiveConversation:
        self._kept[key] = conversation, repeats
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return conversation
