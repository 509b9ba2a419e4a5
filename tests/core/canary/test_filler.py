"""Long prompts from a seed: as long as asked, the same everywhere, and still the same question."""

import hashlib

import pytest

from gatekeeper.core.canary import Canary, parse
from gatekeeper.core.canary.filler import CHARACTERS, with_context
from gatekeeper.core.system.inputs import shipped_folder


def some(name: str, count: int) -> tuple[Canary, ...]:
    return parse((shipped_folder("canaries") / f"{name}.jsonl").read_text("utf-8"), name)[:count]


@pytest.mark.parametrize("tokens", [1000, 20_000])
@pytest.mark.parametrize("name", ["prose", "tools"])
def test_a_prompt_is_as_long_as_asked(name: str, tokens: int) -> None:
    """Messages and tools together have about that many tokens; the question is the file's."""
    for short, long in zip(some(name, 4), with_context(some(name, 4), tokens), strict=True):
        size = sum(len(message["content"]) for message in long.messages) + len(str(long.tools or ""))
        assert pytest.approx(tokens * CHARACTERS, rel=0.08) == size
        assert long.messages[-1]["content"].endswith(short.messages[-1]["content"])
        assert (short.id, short.tools, short.expect) == (long.id, long.tools, long.expect)


def test_the_text_is_the_same_on_every_machine() -> None:
    """It is drawn from a hash, so its digest never changes: a stored run's prompts can be made again."""
    content = with_context(some("prose", 1), 1000)[0].messages[-1]["content"]

    assert "37aaebd884927886" == hashlib.sha256(content.encode()).hexdigest()[:16]


def test_a_prompt_that_is_long_enough_stays() -> None:
    """Without a context, or where the prompt is longer already, nothing changes."""
    long = some("long", 2)

    assert long == with_context(long, None) == with_context(long, 500)
