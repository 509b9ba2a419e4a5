"""The chain of a run: each step as an in-toto link, with what it took, what it made, who made it and on which host.

Format: in-toto Statement v1 with the predicate Link v0.3 (github.com/in-toto/attestation, spec/predicates/link.md).
The certificate names the digest of the chain, so one signature covers both.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gatekeeper.core.manifest import Manifest
from gatekeeper.core.records import Event
from gatekeeper.core.system import environment_variables as variables
from gatekeeper.report.attestation.certificate import STATEMENT_TYPE, described, host_of, subjects

CHAIN = "chain.intoto.json"
PREDICATE_TYPE = "https://in-toto.io/attestation/link/v0.3"
RECORDS = ".jsonl"


def build_url() -> str | None:
    """Return the page of the CI job that runs this, where there is one: GitHub, GitLab or Buildkite."""
    env = os.environ
    if env.get(variables.GITHUB_ACTIONS) == "true" and variables.GITHUB_RUN_ID in env:
        server, repository = env.get(variables.GITHUB_SERVER_URL), env.get(variables.GITHUB_REPOSITORY)
        return f"{server}/{repository}/actions/runs/{env[variables.GITHUB_RUN_ID]}"
    return env.get(variables.CI_JOB_URL) or env.get(variables.BUILDKITE_BUILD_URL)


def build_of(events: Iterable[Event]) -> str | None:
    """Return the page of the CI job that ended the run; None: there was none."""
    urls = [event.detail.get("build") for event in events if event.kind == "begin"]
    return str(urls[-1]) if urls and urls[-1] else None


def document(manifest: Manifest, events: Sequence[Event], digests: Mapping[str, str]) -> dict[str, object]:
    """Return the chain of a run with these files: freeze, measure, judge, promote."""
    begun = [event for event in events if event.kind == "begin"]
    records = [name for name in digests if name.endswith(RECORDS)]
    models = [model for model in (manifest.target, *manifest.drafts) if model is not None]
    inputs = {"slo": manifest.slo, "profile": manifest.profile, **manifest.canaries}
    frozen = {name: file.sha256 for name, file in inputs.items()}
    ended = events[-1].at if events else manifest.frozen_at
    first, last = begun[:1], begun[-1:]

    def link(
        name: str, products: Sequence[str], materials: list[dict[str, object]], at: str, makers: Sequence[Event]
    ) -> dict[str, object]:
        return {
            "_type": STATEMENT_TYPE,
            "subject": described({file: digests[file] for file in products}),
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "name": name,
                "materials": materials,
                "environment": {
                    "by": list(dict.fromkeys(str(event.detail["by"]) for event in makers if "by" in event.detail)),
                    "at": at,
                    "host": host_of(manifest),
                    "gatekeeper": manifest.versions.get("gatekeeper"),
                    **({"build": built} if (built := build_of(makers)) else {}),
                },
            },
        }

    def taken(*names: str) -> list[dict[str, object]]:
        return described({name: digests[name] for name in names})

    plan = [name for name in ("manifest.json", "plan.json") if name in digests]
    links = [
        link("freeze", plan, [*subjects(models), *described(frozen)], manifest.frozen_at, first),
        link("measure", records, taken(*plan), ended, begun),
        link("judge", ["verdict.json"], taken(*plan, *records), ended, last),
        link("promote", ["policy.toml"], taken("verdict.json"), ended, last),
    ]
    return {"schema": 1, "links": links}


def steps(chain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return who made each step, when and on which host."""
    predicates = [link["predicate"] for link in chain["links"]]
    return [
        {"step": predicate["name"], **{key: predicate["environment"][key] for key in ("by", "at", "host")}}
        for predicate in predicates
    ]
