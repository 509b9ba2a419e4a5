"""How often the end of a route holds the length of a prompt at which a planted gain ends (simulated)."""

import argparse
from collections import Counter
from dataclasses import dataclass

import numpy as np

from bench.simulated_answers import both_arms, simulated_answer
from gatekeeper.analysis.conversations import context_bins
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.verdict.grown_conversations import GrownConversations
from gatekeeper.core.canary import Canary

TOKENS, TOKEN_S, TURNS = 120, 0.025, 10
FIRST, LAST = 400, 30_000
"""Tokens of the prompts of the first and the last turn."""


@dataclass(frozen=True)
class World:
    """How a draft does as a prompt grows: a round costs more, and fewer of its tokens are accepted."""

    ends: float
    """The tokens of a prompt at which its gain ends."""
    spread: float = 0.10
    """Of the gain from conversation to conversation, as a standard deviation of its log."""
    noise: float = 0.05
    """The same of each answer."""
    conversations: int = 12


WORLDS = {
    "a gain that ends at 3,000 tokens": World(3000),
    "at 12,000": World(12_000),
    "at 30,000, the longest prompt": World(30_000),
    "at 12,000, conversations differ by 25 %": World(12_000, spread=0.25),
    "at 12,000, answers scatter by 20 %": World(12_000, noise=0.20),
    "at 12,000, six conversations": World(12_000, conversations=6),
}


def gain(world: World, tokens: float) -> float:
    """Return the ratio of speeds at a prompt's length: it falls with the log of it, and is 1 where the gain ends."""
    return float(np.exp(0.25 * np.log(world.ends / tokens)))


def simulated(world: World, seed: int) -> PairedAnswers:
    """Return the answers of growing conversations in both arms."""
    rng = np.random.default_rng(seed)
    lengths = np.geomspace(FIRST, LAST, TURNS)
    answers, canaries, at = [], {}, 0.0
    for number in range(world.conversations):
        own = rng.normal(0, world.spread)
        for turn, length in enumerate(lengths * rng.lognormal(0, 0.05, TURNS), start=1):
            name, messages = f"c{number}-{turn}", [{"role": "user", "content": "x"}]
            fields = {"id": name, "conversation": f"c{number}", "turn": turn, "messages": messages}
            canaries[name] = Canary.model_validate(fields)
            for arm in ("plain", "candidate"):
                ratio = gain(world, length) * np.exp(own) if arm == "candidate" else 1.0
                seconds = TOKENS * TOKEN_S / ratio * rng.lognormal(0, world.noise)
                answers.append(simulated_answer(arm, name, name, at, float(seconds), TOKENS, round(length)))
                at += float(seconds) + 1
    return both_arms(answers, canaries, 0.95, seed)


def main() -> None:
    """Print, for each world, how often the true end lies where the route and the bins say, and how wide that is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="runs of each world")
    runs = parser.parse_args().runs
    print(f"| world | held, of {runs} | route ends at (tokens: runs) | no end proven |")
    print("|---|---|---|---|")
    for name, world in WORLDS.items():
        held, ends, opened = 0, Counter[int](), 0
        for seed in range(runs):
            grown = GrownConversations(context_bins(simulated(world, seed), 1.0, 0.95))
            held += grown.ends_from <= world.ends <= (grown.ends_by or np.inf)
            ends[round(grown.reach, -3)] += 1
            opened += grown.ends_by is None
        listed = ", ".join(f"{tokens}: {count}" for tokens, count in sorted(ends.items()))
        print(f"| {name} | {held} | {listed} | {opened} |")


if __name__ == "__main__":
    main()
