"""Whether the proxy keeps to the faster arm at every load: `python -m bench.proxy.concurrency [ROUNDS]`.

The little pair on two real mlx_lm.servers. One, two, four and eight clients send requests of 64 tokens to the server
that drafts, to the plain one, and through the proxy; a round has each arm once, so that other work disturbs all alike.
The first round finds the turning point: the most clients up to which drafting is faster. The proxy then has it as its
route's max_concurrency. Speeds are tokens per second of all clients together.
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from tests.builders.proxy_process import ASKED, CHAT, END_OF_ANSWER, ProxiedPair, proxied, served_pair
from tests.builders.real_pair import promoted_run

CLIENTS = (1, 2, 4, 8)
TOKENS, EACH = 64, 4
BODY = {**ASKED, "max_tokens": TOKENS, "logit_bias": {END_OF_ANSWER: -100.0}}
MOST_LOST = 0.05
"""Share of the faster arm's speed that the proxy may lose."""
ONCE = {"interval": 3600.0, "missing_for": 36000.0, "canaries": 1}
GUARDS = [{"metric": "error_rate", "at_most": 0.5, "for": 600.0}]


def speed(url: str, clients: int) -> float:
    """Return the tokens per second of *clients* that each send requests one after another."""

    def client(_: int) -> int:
        with httpx2.Client(timeout=600) as session:
            answers = [session.post(url + CHAT, json=BODY).json() for _ in range(EACH)]
        return sum(one["usage"]["completion_tokens"] for one in answers)

    begun = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        tokens = sum(pool.map(client, range(clients)))
    return tokens / (time.monotonic() - begun)


def turning_point(pair: ProxiedPair) -> int:
    """Return the most clients up to which drafting is faster, at least 1: as the sweep of `certify` derives it."""
    faster = takewhile(lambda n: speed(pair.server("speculative"), n) > speed(pair.server("plain"), n), CLIENTS)
    return max([1, *faster])


def main(rounds: int) -> None:
    """Print the speeds at each load, and whether the proxy is within MOST_LOST of the faster arm."""
    with tempfile.TemporaryDirectory() as folder, served_pair(Path(folder) / "run") as pair:
        most = turning_point(pair)
        conditions: dict[str, Any] = {"backend": "mlx-server", "target": "../models/little-target"}
        conditions |= {"prompt_cache": "off", "concurrency": most, "max_tokens": TOKENS}
        policy: dict[str, Any] = {"watch": ONCE, "proxy": {"default": "json"}, "conditions": conditions}
        promoted_run(pair.run, guards=GUARDS, **policy)
        with proxied(pair):
            urls = {arm: pair.server(arm) for arm in ("speculative", "plain")} | {"proxy": pair.url}
            print(f"max_concurrency: {most}; tokens/s of all clients, the median of {rounds} rounds (least to most)")
            print("| clients", *urls, "proxy over the faster arm", sep=" | ", end=" |\n")
            print("|---" * (2 + len(urls)) + "|")
            for clients in CLIENTS:
                seen = [{arm: speed(url, clients) for arm, url in urls.items()} for _ in range(rounds)]
                columns = [sorted(one[arm] for one in seen) for arm in urls]
                ratio = median(one["proxy"] / max(one["speculative"], one["plain"]) for one in seen)
                cells = [f"{median(one):.0f} ({one[0]:.0f} to {one[-1]:.0f})" for one in columns]
                word = "met" if ratio >= 1 - MOST_LOST else "MISSED"
                print(f"| {clients}", *cells, f"{ratio:.2f}, {word}", sep=" | ", end=" |\n", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
