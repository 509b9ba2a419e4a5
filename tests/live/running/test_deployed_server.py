"""The post: what a client adds to its requests, by the server that they go to."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.builders.deployment import SETTING, Deployed, WatchOutput

OLLAMA = {"options": {"draft_num_predict": 4}}, {"options": {"draft_num_predict": 0}}
MTPLX = {"generation_mode": "mtp", "depth": 4}, {"generation_mode": "ar"}


@pytest.mark.parametrize(
    ("backend", "on", "off"),
    [
        ("ollama", *OLLAMA),
        ("mtplx", *MTPLX),
        ("lmstudio", {"draft_model": "heavy"}, {}),
        ("mlx-server", {"num_draft_tokens": 4}, {}),
        ("llama-server", {}, {}),
        ("openai", {}, {}),
    ],
)
def test_the_overlay_says_what_a_request_says(
    tmp_path: Path, backend: str, on: dict[str, Any], off: dict[str, Any]
) -> None:
    """Where a server takes its setting with each request, the overlay carries the fields that do it; elsewhere none."""
    deployed, output = Deployed.served(tmp_path, "http://127.0.0.1:9", backend), WatchOutput()
    request_fields = []
    for speculation in (True, False):
        deployed.policy(route={"speculation": speculation, "setting": SETTING})
        with deployed.session(output) as session:
            session._publish()
        request_fields.append(tomllib.loads(deployed.overlay)["route"][0].get("request", {}))

    assert [on, off] == request_fields
