"""A worker that says the prompt again, word by word, or in rounds with a draft that is always right."""

import json
import sys
import time
import zlib
from typing import Any


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


SEES = ["arrivals", "token_count", "text", "token_ids", "rounds", "plain", "cold"]
say(gatekeeper=1, name="echo", sees=SEES, knobs=["draft", "num_draft_tokens"], shares_process=True, versions={})
# A real worker loads its models here: {"failed": why} says that it cannot, with a "hint" where it knows one.
say(ready=True)
for line in sys.stdin:  # when stdin ends, gatekeeper is gone
    ask = json.loads(line)
    say(begin=ask["ask"])
    words = ask["messages"][-1]["content"].split()[: ask["max_tokens"]]
    width = ask["setting"].get("num_draft_tokens", 4) if ask["setting"]["draft"] else 0
    arrivals: list[list[Any]] = []
    passes = 0
    while len(arrivals) < len(words):
        time.sleep(0.010 + 0.001 * width)  # the target's pass, and the draft's
        now, passes = time.monotonic_ns(), passes + 1
        for place, word in enumerate(words[len(arrivals) :][: width + 1]):
            arrivals.append([now, 1, place < width, zlib.crc32(word.encode())])
    accepted = sum(drafted for _, _, drafted, _ in arrivals)
    rounds = {"rounds": passes, "drafted": passes * width, "accepted": accepted} if width else None
    say(answer=ask["ask"], arrivals=arrivals, text=" ".join(words), finish="stop", rounds=rounds)
