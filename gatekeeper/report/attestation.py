"""The in-toto documents of a run, which other tools can read and sign: its certificate and its chain.

The certificate is the verdict as a Statement v1 with the predicate Test Result v0.1 (github.com/in-toto/attestation,
spec/v1 and spec/predicates/test-result.md). The chain has each step as a Link v0.3 (spec/predicates/link.md), with what
it took, what it made, who made it and on which host. The certificate names the digest of the chain, so one signature
covers both.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.core.clock import stamp
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.manifest import Manifest, Model
from gatekeeper.core.policy import Policy
from gatekeeper.core.records import Event, EventKind
from gatekeeper.core.system import environment_variables as variables
from gatekeeper.report import phrases

CERTIFICATE = "certificate.intoto.json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
CHAIN = "chain.intoto.json"
LINK_TYPE = "https://in-toto.io/attestation/link/v0.3"
RECORDS = ".jsonl"


def certificate_statement(
    manifest: Manifest,
    verdict: Verdict,
    policy: Policy,
    *,
    files: Mapping[str, str],
    inputs: Mapping[str, str],
    url: str | None,
    tries: Mapping[str, int | bool] | None,
) -> dict[str, Any]:
    """Return the statement that the models and *files* (name to sha256) were tested with *inputs*, and how it ended.

    *url* is the page of the CI job that ran it, *tries* counts the runs of the same before it.
    """
    models = [model for model in (manifest.target, *manifest.drafts) if model is not None]
    passed, warned, failed = _tests(verdict)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [*subjects(models), *describe_files(files)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": result(verdict),
            "configuration": describe_files(inputs),
            **({"url": url} if url is not None else {}),
            "passedTests": passed,
            "warnedTests": warned,
            "failedTests": failed,
            # An extension field; a consumer that ignores it still has the whole `result`.
            "gatekeeper": {
                "schema": 1,
                "slo": verdict.slo,
                "grade": verdict.grade,
                "outcome": verdict.outcome,
                "exit_code": verdict.exit_code,
                "issued": stamp(policy.issued),
                "expires": stamp(policy.expires),
                "unproven": list_unproven_tests(verdict),
                "host": host_of(manifest),
                "versions": manifest.versions,
                **({"tries_before": dict(tries)} if tries is not None else {}),
            },
        },
    }


def tries_before(events: Sequence[Event]) -> dict[str, int | bool] | None:
    """Return how many runs of the same ended on its host before a run; None where its events do not say it."""
    details = [event.detail for event in events if event.kind == EventKind.TRIES]
    if not details:
        return None
    counts = {name: details[-1].get(name) for name in ("finished", "not_passed")}
    valid_counts = {name: number for name, number in counts.items() if type(number) is int and number >= 0}
    if len(valid_counts) < len(counts):
        return None
    return valid_counts | {"at_least": details[-1].get("at_least") is not False}


def result(verdict: Verdict) -> str:
    """Return the predicate's result: WARNED for a demo, or where a workload was graded back to plain decoding.

    Both are safe to deploy, but prove less than PASSED.
    """
    if verdict.exit_code != ExitCode.OK:
        return "FAILED"
    is_whole = verdict.grade == "certification" and all(
        workload.outcome is WorkloadOutcome.PROMOTED for workload in verdict.workloads
    )
    return "PASSED" if is_whole else "WARNED"


def _tests(verdict: Verdict) -> tuple[list[str], list[str], list[str]]:
    """Sort every check and every workload into passed, warned and failed; unproven is never passed."""
    passed, warned, failed = [], [], []
    for test, check in _checks_by_test(verdict):
        if check.outcome is Outcome.PASS:
            passed.append(test)
        else:
            failed.append(test)  # unproven ones too; the extension field says which
    for workload in verdict.workloads:
        test = f"{workload.name}: outcome"
        if workload.outcome is WorkloadOutcome.PROMOTED:
            passed.append(test)
        elif workload.outcome is WorkloadOutcome.GRADED_BACK and not workload.required:
            warned.append(test)
        else:
            failed.append(test)
    if verdict.grade != "certification":
        warned.append("grade")
    return passed, warned, failed


def list_unproven_tests(verdict: Verdict) -> list[str]:
    """Return the tests that the evidence does not decide."""
    open_ones = [test for test, check in _checks_by_test(verdict) if check.outcome is Outcome.UNPROVEN]
    return open_ones + [
        f"{workload.name}: outcome" for workload in verdict.workloads if workload.outcome is WorkloadOutcome.UNPROVEN
    ]


def _checks_by_test(verdict: Verdict) -> list[tuple[str, Check]]:
    """Return every check with the name of its test."""
    checks = [(workload.name, check) for workload in verdict.workloads for check in workload.checks]
    checks += [("host", check) for check in verdict.host_checks]
    return [(test_name(about, check), check) for about, check in checks]


def test_name(about: str, check: Check) -> str:
    """Return the name of the test that a check of a workload, or of the host, is; no result changes it."""
    return f"{about}: {check.metric} {check.bound} {check.threshold:g}{phrases.against(check)}"


def host_of(manifest: Manifest) -> dict[str, object]:
    """Return what is said of the host."""
    return {key: manifest.host.get(key) for key in ("chip", "memory_bytes", "os", "power_source")}


def subjects(models: Sequence[Model]) -> list[dict[str, object]]:
    """Name each model by its digest, a `dirHash`; a model of one file also by the sha256 of that file."""
    return [
        {
            "name": model.name,
            "digest": {"dirHash": model.digest}
            | ({"sha256": next(iter(model.files.values()))} if len(model.files) == 1 else {}),
        }
        for model in models
    ]


def describe_files(digests: Mapping[str, str]) -> list[dict[str, object]]:
    """Name each file by its digest."""
    return [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())]


def build_url() -> str | None:
    """Return the page of the CI job that runs this, where there is one: GitHub, GitLab or Buildkite."""
    env = os.environ
    if env.get(variables.GITHUB_ACTIONS) == "true" and variables.GITHUB_RUN_ID in env:
        server, repository = env.get(variables.GITHUB_SERVER_URL), env.get(variables.GITHUB_REPOSITORY)
        return f"{server}/{repository}/actions/runs/{env[variables.GITHUB_RUN_ID]}"
    return env.get(variables.CI_JOB_URL) or env.get(variables.BUILDKITE_BUILD_URL)


def build_of(events: Iterable[Event]) -> str | None:
    """Return the page of the CI job that ended the run; None: there was none."""
    urls = [event.detail.get("build") for event in events if event.kind == EventKind.BEGIN]
    return str(urls[-1]) if urls and urls[-1] else None


def chain_document(manifest: Manifest, events: Sequence[Event], digests: Mapping[str, str]) -> dict[str, object]:
    """Return the chain of a run with these files: freeze, measure, judge, promote."""
    begun = [event for event in events if event.kind == EventKind.BEGIN]
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
            "subject": describe_files({file: digests[file] for file in products}),
            "predicateType": LINK_TYPE,
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

    def list_files(*names: str) -> list[dict[str, object]]:
        return describe_files({name: digests[name] for name in names})

    plan = [name for name in ("manifest.json", "plan.json") if name in digests]
    links = [
        link("freeze", plan, [*subjects(models), *describe_files(frozen)], manifest.frozen_at, first),
        link("measure", records, list_files(*plan), ended, begun),
        link("judge", ["verdict.json"], list_files(*plan, *records), ended, last),
        link("promote", ["policy.toml"], list_files("verdict.json"), ended, last),
    ]
    return {"schema": 1, "links": links}


def chain_steps(chain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return who made each step, when and on which host."""
    predicates = [link["predicate"] for link in chain["links"]]
    return [
        {"step": predicate["name"], **{key: predicate["environment"][key] for key in ("by", "at", "host")}}
        for predicate in predicates
    ]
