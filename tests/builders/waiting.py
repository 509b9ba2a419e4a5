"""`until`: waits for something outside the test's process; minutes without it are a failure, not a measurement."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE_S = 240.0
"""However busy the machine: what has not happened by then never will."""
_PAUSE_S = 0.02

Answer = TypeVar("Answer")


def until(condition: Callable[[], Answer], description: str | Callable[[], object] = "the condition holds") -> Answer:
    """Wait until *condition* returns something true, and return that; a test that gives up shows the *description*."""
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not in time: {description() if callable(description) else description}"
        time.sleep(_PAUSE_S)
    return answer


async def until_in_loop(condition: Callable[[], object]) -> None:
    """Wait as `until` does, while the tasks of an event loop go on; *condition* may be a coroutine function."""
    async with asyncio.timeout(PATIENCE_S):
        while not await _answer(condition):  # noqa: ASYNC110 (the world sets no event)
            await asyncio.sleep(_PAUSE_S)


async def _answer(condition: Callable[[], object]) -> object:
    answer = condition()
    return await answer if isinstance(answer, Awaitable) else answer
