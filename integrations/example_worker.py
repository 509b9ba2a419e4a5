"""A worker that repeats the prompt, word by word, or in rounds with a draft that is always right."""

import json
import sys
import time
import zlib
from typing import Any


def send(**line: Any) -> None:
    """Write a line to gatekeeper."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


SEES = ["arrivals", "token_count", "text", "token_ids", "rounds", "plain", "cold"]
send(gatekeeper=1, name="echo", sees=SEES, knobs=["draft", "num_draft_tokens"], shares_process=True, versions={})
# A real worker loads its models here; if that fails, it sends {"failed": why, "hint": what to do}.
send(ready=True)
for line in sys.stdin:  # when stdin ends, gatekeeper has ended
    request = json.loads(line)
    send(begin=request["ask"])
    words = request["messages"][-1]["content"].split()[: request["max_tokens"]]
    width = request["setting"].get("num_draft_tokens", 4) if request["setting"]["draft"] else 0
    arrivals: list[list[Any]] = []
    passes = 0
    while len(arrivals) < len(words):
        time.sleep(0.010 + 0.001 * width)  # the target's pass, and the draft's
        now, passes = time.monotonic_ns(), passes + 1
        for place, word in enumerate(words[len(arrivals) :][: width + 1]):
            arrivals.append([now, 1, place < width, zlib.crc32(word.encode())])
    accepted = sum(drafted for _, _, drafted, _ in arrivals)
    rounds = {"rounds": passes, "drafted": passes * width, "accepted": accepted} if width else None
    send(answer=request["ask"], arrivals=arrivals, text=" ".join(words), finish="stop", rounds=rounds)
