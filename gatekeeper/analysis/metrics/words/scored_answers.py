"""Answers with log-probabilities: what the target preferred where both arms part, and in the pass that verified."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.core.records import Answer, Likely, Parting, Scored, token_number

Place = tuple[str, str]
"""A workload and a canary of it."""


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
WINDOW = 8
"""Tokens of a piece that plain decoding writes before it is decided which answers that differ it writes whole."""
WHOLE = 8
"""Answers with such pieces that are read whole, for each workload; they may all be of one."""
DOUBT = 1.0
"""Nats by which plain decoding prefers another token, e to one, so that all are read whole: numerics seldom do it."""
UNREADABLE = 12
"""Beginnings of an answer that are tried although the server could not read them."""
TOLD = 0.9
"""The least share of places that tell their likeliest tokens."""


def own_answers(paired: PairedAnswers) -> tuple[Scored, ...]:
    """Return the whole answers of this workload, of both arms."""
    return tuple(
        record for record in paired.readings(Scored) if record.workload == paired.workload and not record.after
    )


def continuations(paired: PairedAnswers) -> tuple[Scored, ...]:
    """Return what plain decoding wrote after beginnings of this workload's drafted answers."""
    return tuple(record for record in paired.readings(Scored) if record.workload == paired.workload and record.after)


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
    shared = _count_shared_tokens(plain, drafting)
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
    plainly = sorted((record for record in records if record.arm == "plain"), key=lambda record: record.after)
    continued = [record for record in plainly if record.after]
    unread = sum(record.fault is not None for record in continued)
    if drafting is None or drafting.fault is not None or unread > UNREADABLE:
        return None
    if not plainly or plainly[0].after or plainly[0].fault is not None:
        return None
    last, read = plainly[0], 0
    for record in plainly:
        if record.after <= read:
            last, read = record, max(read, _compared_to(record, drafting))
    spent = sum(READING + len(record.tokens) for record in continued)
    differences = sum(
        _count_shared_tokens(record, drafting) < len(record.tokens) for record in plainly if record.after < read
    )
    end = next((record.after for record in plainly if record.after > read), len(drafting.tokens))
    piece = min(end - read, _piece(read, differences))
    if last.fault is None and _count_shared_tokens(last, drafting) == len(last.tokens):
        begun = last.after
        is_window = any(window.after == begun for window in windows(drafting))
        requested = min(end - begun, WINDOW if is_window else _piece(begun, differences))
        if not begun or len(last.tokens) < requested:
            return None  # plain decoding ended, or writes the rest of the answer too
    if piece <= 0 or spent >= ANSWERS * len(drafting.tokens):
        return None
    return Continuation(drafting, read, piece)


def windows(drafting: Scored) -> tuple[Continuation, ...]:
    """Return the pieces of a drafted answer that plain decoding writes first: in its middle, and behind three quarters.

    A wrong row of the cache, or a wrong position, also moves the leads of the passes that follow it. None where those
    are not told, and in an answer that is hardly longer.
    """
    length = len(drafting.tokens)
    if not tells_its_passes(drafting) or length < 2 * WINDOW:
        return ()
    begins = (length // 2, 3 * length // 4) if length >= 8 * WINDOW else (length // 2,)
    return tuple(Continuation(drafting, after, WINDOW) for after in begins)


def read_whole(records: Mapping[Place, Sequence[Scored]], least: Mapping[str, int]) -> tuple[Place, ...]:
    """Return the answers that plain decoding is to write, and to go on from: all without a window, and some of those.

    They are the ones whose leads moved most in their windows, WHOLE for each workload, and of each at least so many.
    Where plain decoding preferred another token than the written one by more than DOUBT they are all, because one such
    place alone decides nothing.
    """
    moved = {
        place: max(_moved_lead(record, drafting) for record in others)
        for place, (drafting, *others) in records.items()
        if {window.after for window in windows(drafting)} & {record.after for record in others}
    }
    if any(map(_is_in_doubt, records.values())):
        return tuple(records)
    chosen = [place for place in records if place not in moved]
    order = sorted(moved, key=lambda place: -moved[place])
    for workload, number in least.items():
        own = [place for place in order if place[0] == workload]
        chosen += own[: max(0, number - sum(place[0] == workload for place in chosen))]
    more = WHOLE * len(least) - sum(place in moved for place in chosen)
    chosen += [place for place in order if place not in chosen][: max(0, more)]
    return tuple(place for place in records if place in chosen)


def _is_in_doubt(records: Sequence[Scored]) -> bool:
    drafting, *others = records
    return any((plain_lead(record, drafting)[0] or 0.0) > DOUBT for record in others)


def _moved_lead(plain: Scored, drafting: Scored) -> float:
    """Return by how much the lead of a token differs most between plain decoding and the pass that verified it.

    It decides no check: numerics move some leads far, too. A window that could not be read shows nothing.
    """
    passes = zip(drafting.tokens[plain.after :], drafting.likeliest[plain.after :], plain.likeliest, strict=False)
    compared = islice(passes, _count_shared_tokens(plain, drafting) + 1)
    leads = (tuple(_lead_of(token, likely) for likely in likely_in_both) for token, *likely_in_both in compared)
    known = ((passed, plainly) for passed, plainly in leads if passed is not None and plainly is not None)
    return max((abs(passed - plainly) for passed, plainly in known), default=0.0)


def _lead_of(token: str, told: Sequence[Likely]) -> float | None:
    """Return by how much a token leads the likeliest other one; None where that is unknown."""
    others = [likely.logprob for likely in told if likely.name != token]
    return dict(told).get(token, min(others)) - max(others) if others else None


def _compared_to(record: Scored, drafting: Scored) -> int:
    """Return up to which token of a drafted answer it is compared behind a plain record."""
    shared = _count_shared_tokens(record, drafting)
    return record.after + shared + (record.fault is not None or shared < len(record.tokens))


def _piece(read: int, differences: int) -> int:
    """Return how many tokens to write at once where so many of those *read* differ."""
    return min(AT_ONCE, max(FEWEST, 2 * read // max(1, differences)))


def leads_of(scored: tuple[Scored, ...], continued: tuple[Scored, ...]) -> Mapping[str, tuple[float, ...]]:
    """Return by canary plain decoding's leads at each place that both arms' answers can be compared at, in nats."""
    read = by_canary_and_arm(scored)
    drafted = {name: record for (name, arm), record in read.items() if arm == "candidate"}
    leads = dict[str, tuple[float, ...]]()
    for record in (*(record for (_, arm), record in read.items() if arm == "plain"), *continued):
        if record.canary in drafted and record.fault is None:
            leads[record.canary] = leads.get(record.canary, ()) + _compared_leads(record, drafted[record.canary])
    return leads


def _compared_leads(plain: Scored, drafting: Scored) -> tuple[float, ...]:
    places = zip(plain.tokens, plain.logprobs, plain.likeliest, strict=True)
    leads = []
    for token, logprob, likeliest in islice(places, _count_shared_tokens(plain, drafting) + 1):
        others = [likely.logprob for likely in likeliest if likely.name != token]
        leads += [logprob - max(others)] if others else []
    return tuple(leads)


def _count_shared_tokens(plain: Scored, drafting: Scored) -> int:
    """Return how many tokens of a plain answer are the drafted one's at the same places."""
    pairs = zip(plain.tokens, drafting.tokens[plain.after :], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def find_partings(drafting: Scored) -> tuple[Parting, ...]:
    """Return where another token than the written one is the likeliest, by what the server tells of its own pass.

    Equal log-probabilities are no difference, because a server rounds them; a place that tells nothing is left out.
    """
    places = zip(drafting.tokens, drafting.logprobs, drafting.likeliest, strict=True)
    return tuple(
        Parting(position, -1 if (number := token_number(likely[0].name)) is None else number, lead)
        for position, (token, logprob, likely) in enumerate(places)
        if likely and likely[0].name != token and (lead := likely[0].logprob - logprob) > 0
    )
