"""The bins of conversations: what a server counts and what a prompt holds may be anything."""

from dataclasses import replace

from bench.conversations import World, simulated
from gatekeeper.analysis.conversations import context_bins, footprints_of
from gatekeeper.analysis.metrics.lost_pairs import Pair
from gatekeeper.analysis.plan.planned_conversations import conversation_blocks
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import HostSample, Reading, setting

WORLD = World(ends=12_000, conversations=6)


def test_an_absurd_count_is_a_bin_like_any_other() -> None:
    """
    A server that counts more tokens than any model reads has its turn in a last bin, too few to prove anything.
    """
    paired = simulated(WORLD, 1)

    def counted(pair: Pair) -> Pair:
        drafting, plain = pair
        return replace(drafting, answer=replace(drafting.answer, prompt_tokens=2**53 - 1)), plain

    bins = context_bins(replace(paired, pairs=(counted(paired.pairs[0]), *paired.pairs[1:])), 1.0, 0.95)

    assert (2**53 - 1, "unproven") == (bins[-1].most, bins[-1].outcome.word)


def test_a_bin_has_the_most_memory_that_was_held_during_its_turns() -> None:
    """
    A reading between two answers, of another process or that is no number counts for none of them; a bin whose turns
    no sample saw says nothing of memory.
    """
    paired = simulated(WORLD, 1)
    drafting = paired.pairs[0][0]
    begun, middle = drafting.answer.sent_ns, (drafting.answer.sent_ns + drafting.answer.ended_ns) // 2
    readings = [
        (middle, 0, Reading(3e9, "B", "ps", "ok", 0.0)),
        (middle, 2, Reading(9e9, "B", "ps", "ok", 0.0)),
        (middle, 1, Reading(None, "B", "ps", "denied", 0.0)),
        (begun, 0, Reading(2e9, "B", "ps", "ok", 0.0)),
        (begun - 1, 1, Reading(8e9, "B", "ps", "ok", 0.0)),
    ]
    samples = [
        HostSample("t", at_ns, {"subject_footprint": reading}, segment=segment) for at_ns, segment, reading in readings
    ]

    footprints = footprints_of(samples, (drafting,))
    bins = context_bins(paired, 1.0, 0.95, footprints)

    assert {drafting.key: 3e9} == footprints
    assert [3e9, *([None] * (len(bins) - 1))] == [context.footprint for context in bins]


def test_a_session_is_numbered_in_any_content() -> None:
    """
    A first message may be a list of parts: each arm's is one longer, with another number, and stays a list.
    """
    parts = [{"type": "text", "text": "hi"}]
    fields = {"id": "a", "conversation": "c", "turn": 1, "messages": [{"role": "user", "content": parts}]}
    canary = Canary.model_validate(fields)

    (block,) = conversation_blocks("w", setting(draft="d"), [canary], seed=1, shares_process=True, resumed=True)

    first, second = (request.canary.messages[0]["content"] for request in block)
    assert parts == first[1:] == second[1:]
    assert first[0]["text"] != second[0]["text"]
