"""The run that certified a policy: what it does not allow is refused, at the start and in an edited file."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.errors import InputError
from tests.builders.deployment import LADDER, SETTING, Deployed, WatchOutput
from tests.builders.golden_words import says

MEASURED = {"throughput_ratio": {"center": 1.5, "lo": 1.4, "hi": 1.6, "n": 24}}
LOWER = {"throughput_ratio": {**MEASURED["throughput_ratio"], "lo": 1.0}}
THREE, ONE = ({"step": "shrink-draft", "draft": "heavy", "num_draft_tokens": length} for length in (3, 1))
ROUTE: dict[str, Any] = {
    "ladder": [THREE, *LADDER], "measured": MEASURED, "warm_up": True, "warm_up_after": 60.0,
    "longest_prompt": 900, "longest_format": 80, "models": ["t"],
}  # fmt: skip
"""The route as it was certified, for prompts and formats up to a length."""
CONDITIONS = {"backend": "scripted", "target": "t", "prompt_cache": "off", "concurrency": 1, "max_tokens": 256}
NONE_CERTIFIED = "is none of the certified ones"


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"route": {"setting": {**SETTING, "num_draft_tokens": 8}}}, "its setting differs from the certified one"),
        ({"route": {"ladder": [{**LADDER[0], "draft": "other"}]}}, NONE_CERTIFIED),
        ({"route": {"ladder": [ONE]}}, NONE_CERTIFIED),
        ({"route": {"ladder": [LADDER[0], THREE]}}, NONE_CERTIFIED),
        ({"route": {"ladder": [THREE, LADDER[0], LADDER[0]]}}, NONE_CERTIFIED),
        ({"route": {"measured": LOWER}}, "its measured"),
        ({"route": {"measured": {}}}, "its measured figures differ"),
        ({"route": {"warm_up": False}}, "its warm_up differs"),
        ({"route": {"workload": "other"}}, "the run has no such workload"),
        ({"conditions": {**CONDITIONS, "concurrency": 8}}, "conditions"),
        ({"grade": "certification"}, "its grade is not 'demo'"),
        ({"slo": "another"}, "its slo is not 'deployed'"),
        ({"verdict_sha256": "0" * 64}, "its verdict_sha256 does not match"),
        ({"manifest_sha256": "0" * 64}, "its manifest_sha256 does not match"),
        ({"expires": "2027-01-01T00:00:00Z"}, "the SLO allows 30 d"),
        ({"issued": "2026-01-20T00:00:00Z", "expires": "2026-02-18T00:00:00Z"}, "it was issued at 2026-01-20"),
        ({"guards": [{"metric": "acceptance_rat", "at_least": 0.5, "for": 1}]}, "guards cannot watch the metric"),
        ({"watch": {"intervall": 1}}, "watch.intervall: unknown key"),
    ],
)
def test_what_was_never_measured_is_refused(tmp_path: Path, changes: dict[str, Any], because: str) -> None:
    """A copy may have fewer steps; what the run did not certify is refused, at the start and edited in place."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    deployed.policy(route=ROUTE, conditions=CONDITIONS)
    fewer = {"route": {**ROUTE, "ladder": list(LADDER)}, "conditions": CONDITIONS}
    edited = {**fewer, **changes, "route": {**ROUTE, **changes.get("route", {})}}

    with deployed.session(output) as session:
        session.run(1)
        for policy, rounds in ((fewer, 1), (edited, 2), (fewer, 1)):
            deployed.edited(**policy)
            session.run(rounds)

    (refused,) = output.of("policy_refused")
    assert because in refused["because"]
    assert ([], 1) == (output.changes, len(output.of("policy_back")))
    deployed.edited(**edited)
    with pytest.raises(InputError, match=because):
        deployed.watch(1)


def test_a_policy_that_is_gone_keeps_the_old_one(tmp_path: Path) -> None:
    """A policy that was deleted, or is half written, is reported once; what was read before stays in force."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    with deployed.session(output) as session:
        session.run(1)
        (tmp_path / "policy.toml").unlink()
        session.run(2)
        (tmp_path / "policy.toml").write_text("schema = 1\nslo = ")
        session.run(2)

    gone, torn = output.of("policy_refused")
    assert "No such file" in gone["because"]
    assert "not TOML" in torn["because"]
    assert tomllib.loads(deployed.overlay)["route"][0]["speculation"] is True


def test_a_route_that_was_not_promoted_cannot_be_watched_on(tmp_path: Path) -> None:
    """A policy with a route on that the run certified off is refused before any request."""
    deployed = Deployed.scripted(tmp_path)
    deployed.policy(route={"speculation": False, "setting": {}, "ladder": []})
    deployed.edited()

    with pytest.raises(InputError) as refused:
        deployed.watch(1)

    says("deployed_servers", "a route that was not promoted: message", refused.value.message)
    says("deployed_servers", "a route that was not promoted: hint", refused.value.hint)


CALLED = {"tools": True, "tool_choice": "auto"}
LIMITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "shorter prompts": (
        {"longest_prompt": 900, "longest_format": 80, "models": ["t", "u"], "request": [CALLED, {}]},
        {"longest_prompt": 500, "models": ["t"], "request": [{}]},
        "",
    ),
    "longer prompts": ({"longest_prompt": 900}, {"longest_prompt": 901}, "longest_prompt is above 900"),
    "any prompts": ({"longest_prompt": 900}, {}, "longest_prompt is above 900"),
    "prompts that were not counted": ({}, {"longest_prompt": 9}, "names a longest_prompt"),
    "longer formats": ({"longest_format": 80}, {"longest_format": 81}, "longest_format is above 80"),
    "another model": ({"models": ["t"]}, {"models": ["t", "u"]}, "the model 'u' is none of the certified ones"),
    "a request with tools": ({"request": [{}]}, {"request": [{}, CALLED]}, "its request 2 was not certified"),
    "a request without its choice": ({"request": [CALLED]}, {"request": [{"tools": True}]}, "its request 1 was not"),
    "a request that does not think": ({"request": [{}]}, {"request": [{"thinking": False}]}, "its request 1 was not"),
}
"""Which requests a route takes: by the run's own policy, by an edited copy, and what is said against it."""


@pytest.mark.parametrize("name", LIMITS)
def test_an_edited_route_takes_no_other_requests(tmp_path: Path, name: str) -> None:
    """A copy may shorten prompts and leave out models and requests; one that adds to them is refused."""
    certified, edited, objection = LIMITS[name]
    deployed = Deployed.scripted(tmp_path)
    deployed.policy(route=certified)
    deployed.edited(route=edited)

    if not objection:
        with deployed.session(WatchOutput()):
            return
    with pytest.raises(InputError, match=objection), deployed.session(WatchOutput()):
        pass
