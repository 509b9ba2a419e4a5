"""Whether the proxy keeps to the faster arm at every load: `python -m bench.proxy.concurrency [SECONDS]`.

The little pair on two real mlx_lm.servers. One, two, four and eight clients stream answers of 32 tokens from the server
that drafts, from the plain one, and through the proxy: at each load in turns, whose order changes from round to round,
for SECONDS (40). Each client waits a random moment before each request, the same ones in all arms of a round. Without
it clients stay in step or out of step by chance, and mlx_lm.server answers two requests that arrive at once together,
but one that arrives 0.1 s after another only when that has ended.

Speeds are tokens per second of all clients together, while all of them are busy, from the end of the first request of
each. `whole turn` counts from the first request to the last answer: with the moment in which the proxy notices the
load, and the end, where clients finish one by one.

Before, the turning point is measured: the most clients up to which drafting is faster. It is the max_concurrency of the
proxy's route. Met: the 95 % interval of the ratio lies above 1 - MOST_LOST; missed: below; else not decided.
"""

import http.client
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, takewhile
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any
from urllib.parse import urlsplit

from gatekeeper.analysis.stats.intervals import geometric_mean_ratio
from gatekeeper.core.judgement import Estimate
from tests.builders.proxy_process import ASKED, CHAT, ProxiedPair, proxied, served_pair
from tests.builders.real_pair import END_OF_ANSWER, promoted_run

CLIENTS = (1, 2, 4, 8)
TOKENS, EACH, SECONDS = 32, 4, 40.0
BODY = json.dumps({**ASKED, "max_tokens": TOKENS, "stream": True, "logit_bias": {END_OF_ANSWER: -100.0}})
MOST_LOST = 0.05
"""Share of the faster arm's speed that the proxy may lose."""
MOST_WAIT_S = 0.1
"""Longest moment that a client waits; an answer takes three times as long and more."""
CALIBRATION = 3
"""Rounds at each load that find the turning point."""
RESUME_S = 1.0
ONCE = {"interval": 3600.0, "missing_for": 36000.0, "canaries": 1}
GUARDS = [{"metric": "error_rate", "at_most": 0.5, "for": 600.0}]

Span = tuple[float, float]
Turn = dict[str, tuple[float, float]]
"""By arm: the speed while all clients were busy, and that of the whole turn."""


def speeds(url: str, clients: int, seed: int) -> tuple[float, float]:
    """Return the tokens per second of *clients* with one request each at a time: while all are busy, and as a whole."""

    def client(number: int) -> list[Span]:
        moments = random.Random(1000 * seed + number)
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=600)
        spans = []
        for _ in range(EACH):
            time.sleep(moments.uniform(0.0, MOST_WAIT_S))
            begun = time.monotonic()
            connection.request("POST", CHAT, BODY, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != http.client.OK or b"[DONE]" not in answer.read():
                raise RuntimeError(f"{url}: status {answer.status}, no whole answer")
            spans.append((begun, time.monotonic()))
        connection.close()
        return spans

    with ThreadPoolExecutor(clients) as pool:
        seen = list(pool.map(client, range(clients)))
    spans = [span for one in seen for span in one]
    whole = (min(begun for begun, _ in spans), max(ended for _, ended in spans))
    busy = (max(one[0][1] for one in seen), min(one[-1][1] for one in seen))
    return _speed(spans, busy if busy[0] < busy[1] else whole), _speed(spans, whole)


def _speed(spans: Sequence[Span], within: Span) -> float:
    """Return the tokens per second within a time; those of an answer are spread evenly over it."""
    shares = ((min(ended, within[1]) - max(begun, within[0])) / (ended - begun) for begun, ended in spans)
    return TOKENS * sum(share for share in shares if share > 0) / (within[1] - within[0])


def measured(url: str, arm: str, clients: int, seed: int) -> tuple[float, float]:
    """Return the speeds of an arm; the proxy's after a pause in which it forgets the load of its turn before."""
    time.sleep(RESUME_S + 0.1 if arm == "proxy" else 0.0)
    return speeds(url, clients, seed)


def turning_point(pair: ProxiedPair) -> int:
    """Return the most clients up to which drafting is faster, at least 1: about as `certify` derives it."""

    def gain(clients: int) -> float:
        urls = pair.server("speculative"), pair.server("plain")
        pairs = [[speeds(url, clients, seed)[0] for url in urls] for seed in range(CALIBRATION)]
        return median(drafting / plain for drafting, plain in pairs)

    return max([1, *takewhile(lambda clients: gain(clients) > 1.0, CLIENTS)])


def compare(urls: dict[str, str], clients: int, seconds: float) -> list[Turn]:
    """Return the speeds of each arm in rounds, at least five."""
    until, rounds = time.monotonic() + seconds, list[Turn]()
    for number in count():
        if number >= 5 and time.monotonic() > until:
            return rounds
        first = number % len(urls)
        order = [*urls][first:] + [*urls][:first]
        rounds.append({arm: measured(urls[arm], arm, clients, number) for arm in order})
    raise AssertionError


def ratio(rounds: Sequence[Turn], which: int) -> Estimate:
    """Bound the proxy's speed over that of the arm which is faster in all rounds together."""
    better = max(("speculative", "plain"), key=lambda arm: geometric_mean([one[arm][which] for one in rounds]))
    found = geometric_mean_ratio(
        {str(number): [one["proxy"][which] / one[better][which]] for number, one in enumerate(rounds)}, 0.975
    )
    assert isinstance(found, Estimate), found
    return found


def row(clients: int, rounds: Sequence[Turn]) -> str:
    """Return one row of the table."""
    arms = ("speculative", "plain", "proxy")
    cells = [f"{median(one[arm][0] for one in rounds):.0f}" for arm in arms]
    seen, whole = ratio(rounds, 0), ratio(rounds, 1)
    word = "not decided"
    if seen.lo >= 1 - MOST_LOST or seen.hi < 1 - MOST_LOST:
        word = "met" if seen.lo >= 1 - MOST_LOST else "MISSED"
    shown = [f"{one.center:.2f} ({one.lo:.2f} to {one.hi:.2f})" for one in (seen, whole)]
    return f"| {' | '.join([str(clients), str(len(rounds)), *cells, shown[0], word, shown[1]])} |"


def main(seconds: float) -> None:
    """Print the speeds at each load, and whether the proxy is within MOST_LOST of the faster arm."""
    with tempfile.TemporaryDirectory() as folder, served_pair(Path(folder) / "run") as pair:
        most = turning_point(pair)
        conditions: dict[str, Any] = {"backend": "mlx-server", "target": "../models/little-target"}
        conditions |= {"prompt_cache": "off", "concurrency": most, "max_tokens": TOKENS}
        proxy = {"default": "json", "holdout": 0.01, "resume_after": RESUME_S}
        policy: dict[str, Any] = {"watch": ONCE, "proxy": proxy, "conditions": conditions}
        promoted_run(pair.run, guards=GUARDS, **policy)
        with proxied(pair):
            urls = {arm: pair.server(arm) for arm in ("speculative", "plain")} | {"proxy": pair.url}
            print(f"max_concurrency: {most}; median tokens/s of all clients; ratios with 95 % intervals")
            heads = ("clients", "rounds", *urls, "proxy over the faster arm", "at least 0.95", "the same, whole turn")
            print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
            for clients in CLIENTS:
                print(row(clients, compare(urls, clients, seconds)), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
