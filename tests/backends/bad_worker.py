"""A worker that fails in the way its first argument names."""

import json
import mmap
import os
import signal
import sys
import time
from typing import Any

HELLO = {"gatekeeper": 1, "name": "bad", "sees": ["arrivals", "token_count", "plain"], "shares_process": True}
HELLOS = {
    "old": {**HELLO, "gatekeeper": 2},
    "nameless": {**HELLO, "name": ""},
    "unnumbered": {"name": "bad"},
    "clairvoyant": {**HELLO, "sees": ["arrival"]},
    "unturnable": {**HELLO, "knobs": ["num_draft_token"]},
    "shares without plain": {**HELLO, "sees": ["arrivals"]},
    "sorry": {"failed": "no module named wonder", "hint": "pip install wonder"},
}
SECOND = 1_000_000_000


NUMBERS = {"401 digits": "1" * 401, "20 digits": "1" * 20, "infinite": "1e999", "64 bits": str(2**64 - 1)}


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def lines(number: int) -> dict[str, dict[str, Any]]:
    now = time.monotonic_ns()
    times = [[now, 1, False], [now, 1, False]]
    return {
        "wrong id": {"answer": number + 1, "arrivals": times},
        "true id": {"answer": True, "arrivals": times},
        "begins twice": {"begin": number},
        "no line of ours": {"progress": 0.5},
        "backwards": {"answer": number, "arrivals": [[now, 1], [now - 1000, 1]]},
        "before the request": {"answer": number, "arrivals": [[now - 3600 * SECOND, 1]]},
        "in the future": {"answer": number, "arrivals": times, "ended_ns": now + 3600 * SECOND},
        "fractions": {"answer": number, "arrivals": [[now + 0.5, 1]]},
        "nothing counted": {"answer": number, "arrivals": [[now, 0]]},
        "miscounted": {"answer": number, "arrivals": times, "output_tokens": 3},
        "more than drafted": {"answer": number, "rounds": {"rounds": 1, "drafted": 1, "accepted": 2}},
        "negative": {"answer": number, "rounds": {"rounds": 1, "drafted": -1, "accepted": 0}},
        "half a count": {"answer": number, "rounds": {"rounds": 1, "drafted": 1}},
        "drafts plainly": {"answer": number, "rounds": {"rounds": 1, "drafted": 1, "accepted": 1}},
        "odd finish": {"answer": number, "arrivals": times, "finish": "eos"},
        "odd call": {"answer": number, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
        "its own fault": {"answer": number, "arrivals": times, "fault": "out of memory"},
        "blind": {"answer": number},
    }


def texts(number: int) -> dict[str, str]:
    return {
        "nan": f'{{"answer": {number}, "arrivals": [[NaN, 1]]}}\n',
        "garbage": "Loading weights: 100%\n",
        "no object": "[1, 2]\n",
        "deep": "[" * 100_000 + "\n",
        "long": json.dumps({"answer": number, "text": "x" * (10 << 20)}) + "\n",
        "half": f'{{"answer": {number}, "arri',
        "half a character": f'{{"answer": {number}, "text": "\\ud800"}}\n',
        "half a line": "x" * 100,
    } | {
        f"{name} {where}": f'{{"answer": {number}, {text % value}}}\n'
        for name, value in NUMBERS.items()
        for where, text in {
            "tokens": '"output_tokens": %s',
            "ids": f'"arrivals": [[{time.monotonic_ns()}, 1, null, %s]]',
        }.items()
    }


def answer(mode: str, number: int) -> None:
    valid, raw = lines(number), texts(number)
    write(json.dumps(valid[mode]) + "\n" if mode in valid else raw.get(mode, ""))
    if mode == "half":
        sys.exit(0)
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "exits":
        sys.stderr.write("some progress\nRuntimeError: out of pages\n")
        sys.exit(3)
    if mode == "closes stdout":
        os.close(1)
    if mode in {"closes stdout", "hangs"}:
        time.sleep(3600)
    if mode == "shouts":
        sys.stderr.write("\x1b[31m::set-output name=x::y\x07##[command]rm\n")
        sys.exit(3)
    live_on(mode)


def live_on(mode: str) -> None:
    """Live without an answer, where *mode* says how."""
    if mode == "drips":
        while True:
            write("x")
            time.sleep(0.02)
    if mode == "beats":
        page = mmap.mmap(int(os.environ["GATEKEEPER_BEAT"]), mmap.PAGESIZE)
        while True:
            page[0] = (page[0] + 1) % 256
            time.sleep(0.02)


def main() -> None:
    mode = sys.argv[1]
    if mode == "dies at once":
        sys.stderr.write("no weights here\n")
        sys.exit(3)
    if mode == "mute":
        time.sleep(3600)
    while mode == "greets for ever":
        write("{")
        time.sleep(0.02)
    write("hello\n" if mode == "babbles" else json.dumps(HELLOS.get(mode, HELLO)) + "\n")
    if mode == "cannot load":
        write(json.dumps({"failed": "ValueError: torn", "loading": sys.argv[2]}) + "\n")
    write(json.dumps({"ready": mode != "never ready"}) + "\n")
    if mode == "deaf":
        time.sleep(3600)
    for line in sys.stdin:
        number = json.loads(line)["ask"]
        if mode == "killed unbegun":
            os.kill(os.getpid(), signal.SIGKILL)
        write(json.dumps({"begin": number}) + "\n")
        answer(mode, number)


if __name__ == "__main__":
    main()
