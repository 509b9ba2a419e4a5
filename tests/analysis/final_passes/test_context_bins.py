"""The bins of conversations: what a server counts and what a prompt holds may be anything."""

from dataclasses import replace

from bench.conversations import World, simulated
from gatekeeper.analysis.final_passes.context_bins import context_bins
from gatekeeper.analysis.metrics.paired_answers import Pair
from gatekeeper.analysis.plan.conversations import conversation_blocks
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import setting

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
