"""A brake for a scripted run: it stands still where a test wants to act, however busy the machine is.

Python imports this module by itself where its folder is on PYTHONPATH. Whoever waits on a run's clock waits on while
files that match HOLD_FILE hold HOLD_WORD more than HOLD_COUNT times, until HOLD_UNTIL exists.
"""

import os
import time
from pathlib import Path

from gatekeeper.core.clock import SystemClock, VirtualClock


def _held() -> bool:
    words_written = sum(
        path.read_text().count(os.environ["HOLD_WORD"]) for path in Path().glob(os.environ["HOLD_FILE"])
    )
    return words_written > int(os.environ["HOLD_COUNT"]) and not Path(os.environ["HOLD_UNTIL"]).exists()


def _brake(clock: type[SystemClock] | type[VirtualClock]) -> None:
    move = clock.sleep

    def sleep(self: SystemClock | VirtualClock, seconds: float) -> None:
        while _held():
            time.sleep(0.01)
        move(self, seconds)  # type: ignore[arg-type]

    clock.sleep = sleep  # type: ignore[method-assign]


_brake(SystemClock)
_brake(VirtualClock)
