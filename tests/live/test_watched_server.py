"""A watched server: real sockets, real processes, real signals."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.live.session import Session
from tests.builders.deployment import Answering, Deployed, WatchOutput
from tests.builders.descriptors import few_descriptors
from tests.builders.project_folder import ROOT
from tests.builders.servers import DRAFTED, PROTOCOLS, RecordedServer, llama_server
from tests.builders.waiting import until

AT_ONCE = {"interval": 0.1, "duty": 0.5, "canaries": 12, "window": 3600.0, "missing_for": 3600.0}
"""Rounds follow each other at once; a machine that stalls for minutes loses answers and no evidence."""
ERRORS = {"metric": "error_rate", "at_most": 0.2, "for": 0.0}


@pytest.fixture
def server() -> Iterator[Answering]:
    with Answering() as answering:
        yield answering


def deployed(
    path: Path, server: Answering, *guards: dict[str, Any], backend: str = "openai", **subject: Any
) -> Deployed:
    deployment = Deployed.served(path, server.url, backend, **subject)
    deployment.policy(guards=guards or [ERRORS], watch=AT_ONCE)
    return deployment


def drafted_tokens(session: Session, since_ns: int) -> int:
    return sum(gain.drafted for gain in session._host.counter_gains(since_ns, 3600.0))


def test_the_server_that_speculates_is_compared_and_not_the_plain_one(tmp_path: Path) -> None:
    """With two servers of llama.cpp, slots and counters are those of the one that drafts."""
    conditions = {"backend": "llama-server", "target": "big", "prompt_cache": "off", "concurrency": 1, "max_tokens": 64}
    guards = [{"metric": "throughput_ratio", "at_least": 0.01, "for": 3600.0}, ERRORS]
    with (
        RecordedServer(llama_server(drafting=True), drafting=True) as speculative,
        RecordedServer(llama_server(drafting=False), drafting=False) as plain,
    ):
        deployment = Deployed.served(tmp_path, speculative.url, "llama-server", served_model_name="big")
        deployment.policy(guards=guards, watch=AT_ONCE, conditions=conditions)
        output = WatchOutput()
        with deployment.session(output, url=speculative.url, plain_url=plain.url) as session:
            code, since_ns = session.run(2), session.routes.states["easy"].since_ns
            # On a busy machine a round may have no time left for a canary: only the sum over rounds must rise.
            until(lambda: not session.run(1) and drafted_tokens(session, since_ns) >= DRAFTED)

    parts = {part["part"]: part["outcome"] for part in output.of("conditions")[0]["parts"]}
    assert (0, []) == (code, output.changes)
    assert ("as certified", "as certified") == (parts["drafting"], parts["context"])
    assert plain.requests


def test_a_plain_server_that_is_named_gets_the_plain_requests(tmp_path: Path) -> None:
    """MTPLX switches with each request, but where --plain-url names a server, plain canaries go there alone."""
    guards = [{"metric": "throughput_ratio", "at_least": 0.01, "for": 3600.0}, ERRORS]
    servers = [RecordedServer(PROTOCOLS["mtplx"], drafting=False) for _ in range(2)]
    with servers[0] as speculative, servers[1] as plain:
        deployment = Deployed.served(tmp_path, speculative.url, "mtplx", served_model_name="big")
        deployment.policy(guards=guards, watch=AT_ONCE)
        code, output = deployment.watch(2, url=speculative.url, plain_url=plain.url)

    modes = [{body["generation_mode"] for _, _, body in server.requests} for server in (speculative, plain)]
    assert (0, []) == (code, output.changes)
    assert [{"mtp"}, {"ar"}] == modes


def test_a_server_that_is_gone_is_turned_off(tmp_path: Path, server: Answering) -> None:
    """A refused connection is a failed answer; when the server comes back the watch sees that."""
    deployment, output = deployed(tmp_path, server), WatchOutput()
    with deployment.session(output) as session:
        session.run(5)
        server.shutdown()
        server.server_close()
        until(lambda: session.run(1) == 1 and len(output.changes) == 2)
        changes_while_gone = list(output.changes)
        with Answering(int(server.url.rpartition(":")[2])):
            until(lambda: session.run(1) == 1 and bool(output.of("answering")))

    assert ["down 0>1", "down 1>2"] == changes_while_gone
    assert "error_rate" in output.of("change")[0]["because"]
    assert "no connection" in output.of("fault")[0]["because"]


@pytest.mark.parametrize("name", ["org/another", "org/\ud800half", "org/\x00\x1b[31mred\nlines", "x" * 100_000])
def test_another_model_is_turned_off_for_good(tmp_path: Path, server: Answering, name: str) -> None:
    """It is off, and off after a restart; a name that no file or terminal can hold breaks nothing."""
    deployment, output = deployed(tmp_path, server), WatchOutput()
    with deployment.session(output, commands=(("true",),)) as session:
        session.run(1)
        server.model = name
        until(lambda: session.run(1) == 1)
    server.model = "org/target"
    code, again = deployment.watch(1)

    assert (["barred 0>2"], [None]) == (output.changes, [entry["fault"] for entry in output.of("command")])
    assert all(line.isprintable() for line in output.messages)
    assert (1, [], False) == (code, again.changes, tomllib.loads(deployment.overlay)["route"][0]["speculation"])


def test_the_listed_model_is_compared_with_the_certified_one(tmp_path: Path, server: Answering) -> None:
    """Where the certified answers gave a name, a server that lists another model is found before the first answer."""
    deployment = deployed(tmp_path, server)
    answer = {"answer": {"claims": {"model": "org/certified"}}}
    (tmp_path / "run" / "soak-1.jsonl").write_text(json.dumps(answer) + "\n")

    code, output = deployment.watch(1)

    assert (1, ["barred 0>2"]) == (code, output.changes)
    assert "certified: certified" in output.of("change")[0]["because"]


def test_a_host_guard_needs_the_servers_host(tmp_path: Path, server: Answering) -> None:
    """A policy that guards the host is not watched from another machine, unless --no-host skips that guard."""
    headroom = {"metric": "memory_headroom", "at_least": 1.0, "for": 10.0}
    deployment = deployed(tmp_path, server, ERRORS, headroom)

    with pytest.raises(Exception, match="is another machine") as refused:
        deployment.watch(1, url="http://192.0.2.1:8080")

    assert "--no-host" in getattr(refused.value, "hint", "")
    _, output = deployment.watch(2, host=False)
    assert ["error_rate at_most 0.2"] == list(output.of("look")[-1]["routes"]["easy"]["guards"])


def start(deployment: Deployed, *words: str) -> subprocess.Popen[str]:
    """Start the command as a service manager would."""
    argv = [sys.executable, "-m", "gatekeeper", "watch", "policy.toml", "--run", "run", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        argv, cwd=deployment.path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_a_signal_ends_it_cleanly(tmp_path: Path, server: Answering, number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C end in 130; the overlay holds the time of its last round, and the next watch can take it."""
    deployment = deployed(tmp_path, server)
    process = start(deployment, "--json")
    until((tmp_path / "policy.live.toml").exists)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)

    assert (130, True) == (process.returncode, "watch.jsonl" in err), err
    assert "interrupted" == tomllib.loads(deployment.overlay)["ended"]
    kinds = [json.loads(line).get("kind") for line in out.splitlines()]
    assert ("begun", "ended", None) == (kinds[0], *kinds[-2:])  # the last line is the error
    assert deployment.watch(1)[0] == 0


def test_a_watch_that_was_killed_goes_on(tmp_path: Path, server: Answering) -> None:
    """After kill -9 in the middle of a round the next watch continues from the log."""
    deployment = deployed(tmp_path, server)
    server.status = 500
    process = start(deployment)
    journal = tmp_path / "watch.jsonl"
    until(lambda: journal.exists() and journal.read_text().count('"change"') > 1)
    process.kill()
    process.communicate()
    server.status = 200

    code, output = deployment.watch(1)

    assert (1, True) == (code, output.of("begun")[0]["routes"][0]["standing"]["step"] > 0)


def test_a_server_that_contradicts_the_conditions_is_off_while_it_does(tmp_path: Path, server: Answering) -> None:
    """A prompt cache that was certified off and is on turns speculation off; nothing is barred for it."""
    deployment = deployed(tmp_path, server)
    conditions = {
        "backend": "openai",
        "target": "org/target",
        "prompt_cache": "off",
        "concurrency": 1,
        "max_tokens": 256,
    }
    deployment.policy(guards=[ERRORS], watch={**AT_ONCE, "quiet_for": 0.1, "quiet_most": 0.1}, conditions=conditions)
    output = WatchOutput()
    with deployment.session(output) as session:
        session.run(2)
        before = list(output.changes)
        server.cached = 4
        until(lambda: session.run(1) == 1)
        during = list(output.changes)
        server.cached = 0
        until(lambda: session.run(1) == 0)

    assert [] == before
    assert ["off 0>2"] == during
    assert "4 of 5 prompt tokens" in output.of("change")[0]["because"]
    assert "try 2>1" in output.changes
    assert any("not checked: " in message and "launch line" in message for message in output.messages)


def test_our_own_limits_are_no_fault_of_the_server(tmp_path: Path, server: Answering) -> None:
    """Without a free descriptor nothing is requested: that is said as ours, and no answer counts as failed."""
    deployment, output = deployed(tmp_path, server), WatchOutput()
    with deployment.session(output) as session:
        session.run(1)
        with few_descriptors(0):
            session.run(1)
        code = session.run(1)

    assert 0 == code
    assert "may not open more files" in output.of("own_limit")[0]["because"]
    assert [] == output.of("fault")
    assert [] == output.changes
