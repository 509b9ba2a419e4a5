"""How many requests of a log a certificate would cover: as the proxy decides, once there is one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gatekeeper.core import policy as policies
from gatekeeper.live.request_routes import RequestRoutes
from tests.builders.live_server import live_request, published
from tests.builders.project_folder import ProjectFolder

Scripted = Callable[..., ProjectFolder]

MODEL = "t"
CANARY = {"messages": [{"role": "user", "content": "Say line 3 of easy."}], "temperature": 0.0, "model": MODEL}
REQUESTS: dict[str, dict[str, Any]] = {
    "as a canary": {},
    "another prompt of its length": {"messages": [{"role": "user", "content": "Say mine."}]},
    "a field without effect": {"user": "me", "stream": True},
    "a limit of its own": {"max_tokens": 4000},
    "a temperature": {"temperature": 0.7},
    "no temperature": {"temperature": None},
    "a format": {"response_format": {"type": "json_object"}},
    "a tool": {"tools": [{"type": "function", "function": {"name": "f"}}]},
    "an unknown field": {"reasoning_effort": "low"},
    "an image": {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    "a long prompt": {"messages": [{"role": "user", "content": "word " * 2000}]},
}
AS_CERTIFIED = 4
"""The first so many are."""


def write_log(folder: Path, *lines: dict[str, Any] | str) -> None:
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_log_is_covered_as_the_proxy_decides(finished: Scripted) -> None:
    """A request counts as covered before the run if, and only if, the proxy would draft it after the run."""
    project = finished()
    routes = RequestRoutes(lambda: 1.0)
    policy = policies.parse((project.path / "run" / "policy.toml").read_text(), "policy.toml")
    # The scripted server counts words; every prompt is as long as this limit at most, but for the long one.
    route = policy.route[0].model_copy(update={"longest_prompt": 100})
    sorted_policy = policy.model_copy(update={"proxy": policies.Proxy(default="easy"), "route": (route,)})
    published(routes, of=sorted_policy)
    drafted = {}
    covered = {}
    for name, fields in REQUESTS.items():
        drafted[name] = routes.decide(live_request(CANARY | fields)).may_speculate
        write_log(project.path, CANARY | fields)
        done = project.run("canaries", "check", "easy.jsonl", "--slo", "slo.toml", "--log", "log.jsonl", "--json")
        covered[name] = bool(done.document["coverage"]["covered"])

    assert drafted == covered
    assert [True] * AS_CERTIFIED + [False] * (len(REQUESTS) - AS_CERTIFIED) == [*covered.values()]


def test_the_plan_says_what_share_of_a_log_is_covered(scripted: Scripted) -> None:
    """In one sentence, with the model that clients must name; then the reasons. What cannot be read is not covered."""
    project = scripted()
    named = CANARY | {"model": "gpt-4o"}
    write_log(project.path, CANARY, {"request": named}, "no request", CANARY | {"temperature": 0.7})

    planned = project.run("plan", "slo.toml", "--log", "log.jsonl", code=0)

    sentence = "a certificate would cover 2 of 4 requests in log.jsonl (50 %), at most 1 at once; 1 of these must name"
    assert f"{sentence} the model '{MODEL}'\n" in planned.out
    assert "  1 decoded plainly: 'temperature' of the request is 0.7, certified with 0\n" in planned.out
    assert "  1 decoded plainly: a line that is no JSON object\n" in planned.out
