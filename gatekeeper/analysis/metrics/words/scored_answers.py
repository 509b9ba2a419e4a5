"""Answers with log-probabilities: what the target preferred where both arms part, and in the pass that verified."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from gatekeeper.core.records import Answer, Parting, Scored, token_number


class Continuation(NamedTuple):
    """Where plain decoding is to go on from a drafted answer."""

    drafting: Scored
    after: int
    """So many of its first tokens are read as a part of the prompt."""
    tokens: int
    """To write at most."""


FEWEST, AT_ONCE = 4, 32
"""Tokens that plain decoding writes before it is compared, twice as many as lay between two differences so far.

What follows a difference is of no use: pieces of 32 tokens would read no more than the beginning of an answer that
differs at every fifth one.
"""
ANSWERS, READING = 4, 16
"""As many times the tokens of the answer are written at most, whatever differs; to read a beginning counts as 16.

So a draft that writes other words takes no longer than four answers, and one in eight other tokens is read to the end.
"""
UNREADABLE = 12
"""Beginnings of an answer that are tried although the server could not read them."""
TOLD = 0.9
"""The least share of places that tell their likeliest tokens."""


def by_canary_and_arm(scored: tuple[Scored, ...]) -> Mapping[tuple[str, str], Scored]:
    """Return those that could be read."""
    return {(record.canary, record.arm): record for record in scored if record.fault is None and record.tokens}


def is_of(record: Scored, answer: Answer) -> bool:
    """Return whether an answer with log-probabilities has the text of another answer."""
    return record.text == answer.reasoning + answer.text


def tells_its_passes(record: Scored) -> bool:
    """Return whether a drafted answer has the likeliest tokens of the passes that verified it, nearly everywhere."""
    told = sum(map(bool, record.likeliest))
    return record.arm == "candidate" and record.fault is None and told > 0 and told >= TOLD * len(record.tokens)


def plain_lead(plain: Scored, drafting: Scored) -> tuple[float | None, str]:
    """Return by how much plain decoding preferred its token where both answers part, in nats, and where that is.

    It is at least so much: a token that the server does not name is less likely than the last one that it names. None
    where neither answer has another token, or the server shows nothing of the place.
    """
    shared = _shared(plain, drafting)
    parting = plain.after + shared
    place = f"at token {parting + 1}"
    if shared >= len(plain.tokens) or parting >= len(drafting.tokens) or not plain.likeliest[shared]:
        return None, place
    others = {likely.name: likely.logprob for likely in plain.likeliest[shared] if likely.name != plain.tokens[shared]}
    if not others:
        return None, place
    return plain.logprobs[shared] - others.get(drafting.tokens[parting], min(others.values())), place


def later_leads(continued: Iterable[Scored], drafting: Scored) -> tuple[tuple[float, str], ...]:
    """Return plain decoding's leads where it parts from a drafted answer again, after each of its own tokens."""
    leads = (plain_lead(record, drafting) for record in continued if record.canary == drafting.canary)
    return tuple((lead, place) for lead, place in leads if lead is not None)


def left_to_continue(records: Sequence[Scored]) -> Continuation | None:
    """Return what of a drafted answer is to be compared next, of the *records* of its canary.

    A beginning that the server cannot read, because its text ends within a word that it splits otherwise, is made
    longer by a token. None where plain decoding was held against all tokens, has taken its share of time, or cannot.
    """
    drafting = next((record for record in records if record.arm == "candidate"), None)
    plain = max((record for record in records if record.arm == "plain"), key=lambda record: record.after, default=None)
    continued = [record for record in records if record.after]
    unread = sum(record.fault is not None for record in continued)
    if drafting is None or plain is None or drafting.fault is not None or unread > UNREADABLE:
        return None
    shared, spent = _shared(plain, drafting), sum(READING + len(record.tokens) for record in continued)
    differences = sum(_shared(record, drafting) < len(record.tokens) for record in records if record.arm == "plain")
    if plain.after and plain.fault is not None:
        read = plain.after + 1
    elif shared < len(plain.tokens):
        read = plain.after + shared + 1
    elif plain.after and shared >= _piece(plain.after, differences):
        read = plain.after + shared
    else:
        return None  # plain decoding ended, or writes the rest of the answer too
    left = len(drafting.tokens) - read
    if left <= 0 or spent >= ANSWERS * len(drafting.tokens):
        return None
    return Continuation(drafting, read, min(left, _piece(read, differences)))


def _piece(read: int, differences: int) -> int:
    """Return how many tokens to write at once where so many of those *read* differ."""
    return min(AT_ONCE, max(FEWEST, 2 * read // max(1, differences)))


def leads_of(scored: tuple[Scored, ...], continued: tuple[Scored, ...]) -> Mapping[str, tuple[float, ...]]:
    """Return by canary plain decoding's leads at each place that both arms' answers can be compared at, in nats."""
    read = by_canary_and_arm(scored)
    drafted = {name: record for (name, arm), record in read.items() if arm == "candidate"}
    leads = {
        name: _compared_leads(read[name, "plain"], record)
        for name, record in drafted.items()
        if (name, "plain") in read
    }
    for record in continued:
        if record.canary in leads and record.fault is None:
            leads[record.canary] += _compared_leads(record, drafted[record.canary])
    return leads


def _compared_leads(plain: Scored, drafting: Scored) -> tuple[float, ...]:
    places = zip(plain.tokens, plain.logprobs, plain.likeliest, strict=True)
    leads = []
    for token, logprob, likeliest in islice(places, _shared(plain, drafting) + 1):
        others = [likely.logprob for likely in likeliest if likely.name != token]
        leads += [logprob - max(others)] if others else []
    return tuple(leads)


def _shared(plain: Scored, drafting: Scored) -> int:
    """Return how many tokens of a plain answer are the drafted one's at the same places."""
    pairs = zip(plain.tokens, drafting.tokens[plain.after :], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def parted(drafting: Scored) -> tuple[Parting, ...]:
    """Return where another token than the written one is the likeliest, by what the server tells of its own pass.

    Equal log-probabilities are no difference, because a server rounds them; a place that tells nothing is left out.
    """
    places = zip(drafting.tokens, drafting.logprobs, drafting.likeliest, strict=True)
    return tuple(
        Parting(position, -1 if (number := token_number(likely[0].name)) is None else number, lead)
        for position, (token, logprob, likely) in enumerate(places)
        if likely and likely[0].name != token and (lead := likely[0].logprob - logprob) > 0
    )
