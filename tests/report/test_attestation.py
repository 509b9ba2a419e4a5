"""The certificate, as other tools read it."""

import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.analysis.verdict.policy.certified_policy import issue_policy
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.manifest import digest_of, sha256
from gatekeeper.report import attestation
from tests.builders.manifest import FILES, manifest
from tests.builders.slo import slo

SLO = slo()


def check(outcome: Outcome) -> Check:
    return Check("throughput_ratio", "at_least", 1.16, outcome, unit="1", because="", why="")


def workload(outcome: str, *checks: Outcome, required: bool = True) -> WorkloadVerdict:
    knobs = {"draft": "little" if outcome == "promoted" else None}
    return WorkloadVerdict(outcome, WorkloadOutcome(outcome), knobs, required, "", tuple(map(check, checks)))


def stated(*workloads: WorkloadVerdict, grade: str = "certification", host: tuple[Check, ...] = ()) -> dict[str, Any]:
    verdict = Verdict("made", grade, "abc", workloads, host)
    allowed = issue_policy(SLO, verdict, manifest(), (), verdict_sha256="ab", issued=datetime(2026, 1, 1, tzinfo=UTC))
    return attestation.certificate_statement(
        manifest(), verdict, allowed, files={"verdict.json": "ab"}, inputs={"slo": "cd"}, url=None, tries=None
    )


def test_the_statement_names_what_was_tested() -> None:
    """Type, predicate and subjects are those of in-toto: folders by dirHash, a model of one file by its own digest
    too.
    """
    statement = stated(workload("promoted", Outcome.PASS))

    assert "https://in-toto.io/Statement/v1" == statement["_type"]
    assert "https://in-toto.io/attestation/test-result/v0.1" == statement["predicateType"]
    assert [
        {"name": "org/big", "digest": {"dirHash": digest_of(FILES)}},
        {
            "name": "little.gguf",
            "digest": {"dirHash": digest_of({"little.gguf": sha256("gguf")}), "sha256": sha256("gguf")},
        },
        {"name": "verdict.json", "digest": {"sha256": "ab"}},
    ] == statement["subject"]
    assert [{"name": "slo", "digest": {"sha256": "cd"}}] == statement["predicate"]["configuration"]


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="the shell has no sha256sum")
def test_the_digest_of_a_folder_is_what_dirhash_is(tmp_path: Path) -> None:
    """The command by which in-toto defines dirHash gives the digest of a model's folder."""
    (tmp_path / "sub").mkdir()
    contents = {"b.json": "{}", "a.bin": "weights", "sub/c": "deep"}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    command = "find . -type f | cut -c3- | LC_ALL=C sort | xargs -r sha256sum | sha256sum | cut -f1 -d' '"

    ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == digest_of({name: sha256(content) for name, content in contents.items()})


@pytest.mark.parametrize(
    ("workloads", "grade", "expected"),
    [
        ((workload("promoted", Outcome.PASS),), "certification", "PASSED"),
        ((workload("promoted", Outcome.PASS),), "demo", "WARNED"),
        ((workload("promoted"), workload("graded_back", required=False)), "certification", "WARNED"),
        ((workload("promoted"), workload("graded_back")), "certification", "FAILED"),
        ((workload("failed", Outcome.FAIL),), "demo", "FAILED"),
        ((workload("promoted"), workload("unproven")), "certification", "FAILED"),
    ],
)
def test_only_a_certification_of_every_workload_is_passed(
    workloads: tuple[WorkloadVerdict, ...], grade: str, expected: str
) -> None:
    """PASSED needs a certification that promotes every workload; a demo, or a workload that decodes plainly, is
    WARNED.
    """
    assert expected == stated(*workloads, grade=grade)["predicate"]["result"]


def test_unproven_is_never_among_the_passed() -> None:
    """Every check and every workload is in one list, and only what passed is among the passed."""
    predicate = stated(
        workload("promoted", Outcome.PASS),
        workload("failed", Outcome.FAIL, Outcome.UNPROVEN),
        workload("graded_back", required=False),
        host=(check(Outcome.UNPROVEN),),
    )["predicate"]

    assert ["promoted: throughput_ratio at_least 1.16", "promoted: outcome"] == predicate["passedTests"]
    assert ["graded_back: outcome"] == predicate["warnedTests"]
    assert [
        "failed: throughput_ratio at_least 1.16",
        "failed: throughput_ratio at_least 1.16",
        "host: throughput_ratio at_least 1.16",
        "failed: outcome",
    ] == predicate["failedTests"]


def test_a_test_has_one_name_whatever_it_ends_in_or_is_held_against() -> None:
    """What passes today and is unproven tomorrow keeps its name; the unproven ones have it among the failed, too."""
    passed, unproven = (
        stated(workload("promoted", outcome))["predicate"] for outcome in (Outcome.PASS, Outcome.UNPROVEN)
    )
    compared = replace(check(Outcome.UNPROVEN), against="certified")
    predicate = stated(workload("promoted"), host=(compared,))["predicate"]

    assert [passed["passedTests"][0]] == unproven["failedTests"] == unproven["gatekeeper"]["unproven"]
    assert [] == passed["gatekeeper"]["unproven"]
    verdict = Verdict("made", "certification", "abc", (), (compared,))
    assert attestation.list_unproven_tests(verdict) == predicate["failedTests"]
