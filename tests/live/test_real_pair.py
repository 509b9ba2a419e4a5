"""The proxy as a process before two real mlx_lm.servers with the little pair."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.builders.proxy_process import ProxiedPair, Relay, proxied, proxied_pair, served_pair
from tests.builders.real_pair import LITTLE_SETTING, promoted_run
from tests.builders.waiting import until

pytestmark = [pytest.mark.mlx, pytest.mark.timeout(600)]
GUARDS = [{"metric": "error_rate", "at_most": 0.5, "for": 600.0}]
ONCE = {"interval": 3600.0, "missing_for": 36000.0, "canaries": 1}
DRAIN_S = 30.0
CONDITIONS: dict[str, Any] = {
    "backend": "mlx-server",
    "target": "../models/little-target",
    "prompt_cache": "off",
    "concurrency": 1,
    "max_tokens": 40,
}
"""Under which the pair is said to be certified: at temperature 0."""
MOST_UNTIL_OFF = 1000
"""Requests until the loss is proven; other work on the machine makes their speeds differ more than those simulated."""
COUNTED = {"stream": True, "stream_options": {"include_usage": True}}
"""Then the tap of the server that drafts adds its counts to the usage."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[ProxiedPair]:
    policy: dict[str, Any] = {"watch": ONCE, "proxy": {"default": "json", "holdout": 0.01}, "conditions": CONDITIONS}
    with proxied_pair(promoted_run(tmp_path / "run", guards=GUARDS, **policy)) as started:
        yield started


def speculating(pair: ProxiedPair) -> httpx2.Response:
    """Open streams until one speculates: one in a hundred is in the holdout."""
    while (answer := pair.stream(4000)).headers["x-gatekeeper-route"] != "speculative":
        answer.close()
    return answer


@pytest.mark.nightly
def test_a_real_server_stops_for_a_client_that_hangs_up(pair: ProxiedPair) -> None:
    """Nothing is in flight any more, the record says that the client left, and the next request is answered whole."""
    answer = speculating(pair)
    next(answer.iter_raw())
    answer.close()
    (*_, record) = pair.wait_for(1)
    after = pair.ask({"max_tokens": 8})

    assert "client left" == record["fault"]
    assert 8 == after.json()["usage"]["completion_tokens"]
    assert "gatekeeper_proxy_in_flight 0.0" in httpx2.get(f"{pair.url}/metrics", timeout=60).text


@pytest.mark.nightly
def test_a_real_server_killed_in_mid_stream_breaks_that_answer_and_no_other(pair: ProxiedPair) -> None:
    """The client sees a broken answer, which is not repeated; the next requests are answered by the plain server."""
    answer = speculating(pair)
    pieces = answer.iter_raw()
    next(pieces)
    os.kill(pair.pids["speculative"], signal.SIGKILL)
    with pytest.raises(httpx2.HTTPError):
        list(pieces)
    later = [pair.ask({"max_tokens": 4}) for _ in range(3)]
    records = pair.wait_for(4)

    assert "broke off" in records[-4]["fault"]
    assert [(200, "plain")] * 3 == [
        (response.status_code, response.headers["x-gatekeeper-route"]) for response in later
    ]
    assert any("speculative server" in record["because"] for record in records[-3:])


@pytest.mark.nightly
def test_a_real_server_killed_before_its_first_byte_is_replaced(pair: ProxiedPair) -> None:
    """A request that the speculative server took and never answered is answered whole by the plain one."""
    os.kill(pair.pids["speculative"], signal.SIGSTOP)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(pair.ask, {"max_tokens": 4}) for _ in range(3)]
        until(lambda: "gatekeeper_proxy_in_flight 0.0" not in metrics(pair), "requests are in flight")
        time.sleep(1.0)
        os.kill(pair.pids["speculative"], signal.SIGKILL)
        answers = [future.result() for future in waiting]
    records = pair.wait_for(3)

    assert [200] * 3 == [answer.status_code for answer in answers]
    assert {4} == {answer.json()["usage"]["completion_tokens"] for answer in answers}
    assert {"plain"} == {record["route"] for record in records}
    assert any("speculative server" in record["because"] for record in records)


def metrics(pair: ProxiedPair) -> str:
    return httpx2.get(f"{pair.url}/metrics", timeout=60).text


@pytest.mark.nightly
def test_a_shutdown_waits_no_longer_than_it_is_given(tmp_path: Path) -> None:
    """A server that stopped in mid-answer holds the proxy for `--drain` and not twice as long."""
    policy: dict[str, Any] = {"watch": ONCE, "proxy": {"default": "json", "holdout": 0.01}, "conditions": CONDITIONS}
    run = promoted_run(tmp_path / "run", guards=GUARDS, **policy)
    with proxied_pair(run, "--drain", f"{DRAIN_S}s") as pair:
        assert pair.process is not None
        pieces = pair.stream(4000).iter_raw()
        next(pieces)
        for pid in pair.pids.values():
            os.kill(pid, signal.SIGSTOP)
        pair.process.send_signal(signal.SIGTERM)

        assert 0 == pair.process.wait(1.5 * DRAIN_S)
        (record,) = pair.records
        with pytest.raises(httpx2.HTTPError):
            list(pieces)

    assert record["fault"]
    assert DRAIN_S <= record["duration_s"]


@pytest.mark.nightly
def test_a_swapped_draft_is_turned_off_in_the_next_round(tmp_path: Path) -> None:
    """The watch finds another draft behind its port in its next round, or the one after, and every request is plain."""
    policy: dict[str, Any] = {
        "watch": {"interval": 2.0, "duty": 0.5, "missing_for": 240.0},
        "proxy": {"default": "json"},
        "conditions": CONDITIONS,
    }
    with proxied_pair(promoted_run(tmp_path / "run", guards=GUARDS, **policy)) as pair:
        assert pair.overlay["route"][0]["speculation"]
        pair.serve("speculative", "little-draft-bad")
        before = sum(entry["kind"] == "look" for entry in pair.log)
        until(lambda: not pair.overlay["route"][0]["speculation"], "speculation is off")
        after = sum(entry["kind"] == "look" for entry in pair.log)
        answer = pair.ask({"max_tokens": 4})
        (*_, record) = pair.wait_for(1)

    assert 2 >= after - before
    assert "plain" == answer.headers["x-gatekeeper-route"]
    assert "little-draft-bad, " in record["because"]


@pytest.mark.nightly
def test_a_real_plain_server_that_begins_to_draft_turns_every_route_off(pair: ProxiedPair) -> None:
    """Restarted with a draft behind its port: the first plain answer with counts shows it."""
    pair.serve("plain", "little-draft")
    counted = pair.ask({**COUNTED, "max_tokens": 40}, x_gatekeeper_workload="other")
    (record,) = pair.wait_for(1)
    later = pair.ask({"max_tokens": 4})
    (*_, last) = pair.wait_for(2)

    assert ["plain", "plain"] == [answer.headers["x-gatekeeper-route"] for answer in (counted, later)]
    assert record["drafted"] > 0
    assert "plain decoding is not plain" in last["because"]
    assert 'gatekeeper_proxy_not_plain_total{workload="unknown"} 1.0' in metrics(pair)


@pytest.mark.nightly
def test_a_draft_that_is_swapped_behind_a_relay_is_turned_off_by_the_holdout(tmp_path: Path) -> None:
    """Neither process nor model is seen, and canaries are too few: live answers prove the loss."""
    policy: dict[str, Any] = {
        "watch": {"interval": 2.0, "duty": 0.02, "missing_for": 36000.0, "canaries": 1},
        "proxy": {"default": "json", "holdout": 0.05},
        "conditions": CONDITIONS,
        "setting": LITTLE_SETTING | {"num_draft_tokens": 8},
    }
    run = promoted_run(tmp_path / "run", guards=GUARDS, **policy)
    with served_pair(run) as pair, Relay(pair.ports["speculative"]) as relay:
        pair.ports["speculative"] = relay.port
        with proxied(pair):
            pair.serve("swapped", "little-draft-bad")
            relay.to = pair.ports["swapped"]
            pair.servers["speculative"].close()
            for number in range(MOST_UNTIL_OFF):  # of as many clients
                pair.ask({"max_tokens": 24, "stream": True}, x_gatekeeper_conversation=str(number))
                if not pair.overlay["route"][0]["speculation"]:
                    break
            answer = pair.ask({"max_tokens": 4})
        requests_sent = len(pair.records)

    assert "plain" == answer.headers["x-gatekeeper-route"]
    assert "live requests" in pair.overlay["route"][0]["because"]
    assert 100 < requests_sent <= MOST_UNTIL_OFF
