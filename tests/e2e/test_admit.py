"""The deploy gate on real runs: finished, unfinished and changed ones."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.backends.http import control_requests
from gatekeeper.backends.listening_process import free_port
from gatekeeper.core.manifest import sha256
from gatekeeper.core.system.run_directory import CHECKSUMS, RunDirectory
from gatekeeper.core.text import json_text
from gatekeeper.deploy.signing.sign import BUNDLE
from gatekeeper.run.stored import verify
from tests.builders.golden_words import lines_with, says
from tests.builders.project_folder import ProjectFolder, project_folder
from tests.builders.scripted_slo import BOTH, SLOW, write_scripted
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]
CERTIFIED = {
    "soak": {"duration": "600 s"},
    # A scripted subject lives in its own time, the first of January 2026; the gate lives in ours.
    "promote": {"valid_for": "3650 d"},
}
KEPT_INPUTS = ("slo.toml", "profile.toml", "canaries-easy.jsonl")
needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


@pytest.fixture(scope="module")
def certified_once(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """One certified run, made once; tests work on copies of it."""
    project = project_folder(tmp_path_factory.mktemp("admit"))
    write_scripted(project, SLOW, workload=BOTH, **CERTIFIED)
    project.run("certify", "slo.toml", "--out", "runs/run-1", "--quiet", code=0)
    return project


@pytest.fixture
def certified(certified_once: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    return certified_once.copied_to(tmp_path / "b project")


def rewrite_checksums(run: Path) -> None:
    """Write SHA256SUMS again, as an attacker would."""
    RunDirectory(run).write_checksums()


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def admit(project: ProjectFolder, *words: str, run: str = "runs/run-1") -> tuple[int, str, dict[str, Any]]:
    done = project.run("admit", "slo.toml", "--run", run, "--json", *words)
    return done.code, done.document["reason"], done.document


def key_pair(folder: Path, name: str, identity: str = "deploy@example.com") -> tuple[Path, Path]:
    """Make a real key without a passphrase, and the file that allows its owner to sign."""
    key, allowed = folder / name, folder / f"{name}.allowed"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
    allowed.write_text(f'{identity} namespaces="gatekeeper" {key.with_suffix(".pub").read_text()}')
    return key, allowed


def test_a_passing_run_is_admitted(certified: ProjectFolder) -> None:
    """A finished run of this SLO is admitted, with the policy to deploy and every check that passed."""
    code, reason, document = admit(certified)

    policy = certified.path / "runs" / "run-1" / "policy.toml"
    assert (0, "admitted", True) == (code, reason, document["admitted"])
    assert str(policy.relative_to(certified.path)) == document["policy"]
    names = ["artifacts", "slo", "checksums", "verdict", "certificate", "time", "grade"]
    assert names == [check["check"] for check in document["checks"]]


def test_the_newest_run_decides(certified: ProjectFolder) -> None:
    """A newer run that is unfinished, or that a newer gatekeeper wrote, hides the older one; --run still chooses it."""
    runs, words = certified.path / "runs", ("admit", "slo.toml", "--runs", "runs", "--json")
    shutil.copytree(runs / "run-1", runs / "run-2")
    (runs / "run-2" / CHECKSUMS).unlink()
    unfinished = certified.run(*words, code=3).document
    edit(runs / "run-2" / "manifest.json", '"schema": 1', '"schema": 99')
    rewrite_checksums(runs / "run-2")

    unreadable = certified.run(*words, code=3).document

    assert ("unfinished", "runs/run-2") == (unfinished["reason"], unfinished["run"])
    assert ["--resume", "--output", "runs/run-2"] == unfinished["next"].split()[-3:]
    assert ("unreadable", "runs/run-2") == (unreadable["reason"], unreadable["run"])
    assert all(words in unreadable["next"] for words in ("update gatekeeper", "choose a run with --run"))
    assert 0 == admit(certified)[0]


def test_runs_of_another_slo_are_passed_over(certified: ProjectFolder) -> None:
    """In a folder of runs only those of this SLO are considered; other folders are ignored."""
    (certified.path / "runs" / "notes").mkdir()
    edit(certified.path / "slo.toml", "1.16", "1.17")
    certified.run("certify", "slo.toml", "--out", "runs/run-2", code=0)

    document = certified.run("admit", "slo.toml", "--runs", "runs", "--json", code=0).document

    assert ("runs/run-2", ["runs/run-1"]) == (document["run"], [entry["run"] for entry in document["passed_over"]])


def test_another_slo_is_refused_and_a_comment_is_not(certified: ProjectFolder) -> None:
    """The SLO must be the one that was certified; a comment or the layout of the file does not matter."""
    slo = certified.path / "slo.toml"
    slo.write_text("# a remark\n" + slo.read_text())
    remarked = admit(certified)[:2]
    edit(slo, "1.16", "1.01")

    assert ((0, "admitted"), (3, "other_slo")) == (remarked, admit(certified)[:2])

    edit(slo, 'name = "scripted"', 'name = "another"')

    says("commands", "another slo is refused and a comment is not", admit(certified)[2]["because"])


def test_other_inputs_are_refused(certified: ProjectFolder) -> None:
    """Other canaries, or another system behind the same name, are refused."""
    with (certified.path / "easy.jsonl").open("a") as file:
        file.write(json.dumps({"id": "easy-new", "messages": [{"role": "user", "content": "more"}]}) + "\n")
    canaries = admit(certified)[:2]
    shutil.copy(certified.path / "runs" / "run-1" / "inputs" / "canaries-easy.jsonl", certified.path / "easy.jsonl")
    edit(certified.path / "truth.json", '"seed": ', '"seed": 1')

    assert ((3, "other_inputs"), (3, "other_artifacts")) == (canaries, admit(certified)[:2])


WEEKS = {"duration": "600 s"}
"""Of a run that is valid for 30 days of a January that is over."""
NOT_PROVEN = {
    "objective": [{"metric": "throughput_ratio", "at_least": 2.7, "why": "inside the interval"}],
    # At 95 % one run in twenty would decide about a bound inside the interval.
    "confidence": 0.9999,
    "sweep": {"repeats": 1, "num_draft_tokens": [4]},
    "soak": {"duration": "60 s", "max_duration": "60 s"},
}
HARD = [{"name": "hard", "canaries": "hard.jsonl"}]
ENDS: dict[str, tuple[dict[str, Any], int, tuple[str, ...], tuple[int, str], str]] = {
    "a failed objective": ({"workload": HARD, **CERTIFIED}, 1, (), (1, "failed_objective"), "hard: graded back"),
    "an unproven one": (NOT_PROVEN, 3, (), (3, "unproven"), "easy: throughput_ratio"),
    "expired": ({"soak": WEEKS}, 0, (), (3, "expired"), ""),
    "expired by the SLO": ({"soak": WEEKS}, 0, ("--max-age", "3650d"), (3, "expired"), ""),
    "a demo": ({"promote": CERTIFIED["promote"]}, 0, (), (3, "demo"), ""),
    "a demo that may be one": ({"promote": CERTIFIED["promote"]}, 0, ("--grade", "demo"), (0, "admitted"), ""),
}
"""The SLO, how the run ends, options of `admit`, its answer and reason."""


@pytest.mark.parametrize("name", ENDS)
def test_only_a_certified_promotion_is_admitted(finished: Scripted, name: str) -> None:
    """What failed, is unproven, has expired or is a demo is refused with what was missing; a demo is so on request."""
    changes, code, words, answer, because = ENDS[name]
    project = finished(SLOW, code=code, **changes)

    *reason, document = admit(project, *words, run="run")

    assert [*answer] == reason
    assert document["because"].startswith(because)
    if name.startswith("a demo"):
        certificate = json.loads((project.path / "run" / "certificate.intoto.json").read_text())
        assert "WARNED" == certificate["predicate"]["result"]


def test_another_host_is_refused(finished: Scripted) -> None:
    """The run's host must match the SLO's [host], even if the doubts were removed from the manifest."""
    project = finished(host={"chip": "Apple M9"}, code=3)
    honest, run = admit(project, run="run"), project.path / "run"
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "doubts": []}))
    for _ in range(2):  # the first verdict still says that its checksums are wrong
        (run / "verdict.json").write_text(project.run("judge", "run", "--json").out)
        rewrite_checksums(run)

    edited = admit(project, run="run")

    assert [(3, "other_host")] * 2 == [honest[:2], edited[:2]]
    assert "the SLO is for" in edited[2]["because"]


def test_one_byte_of_any_file_is_noticed(certified: ProjectFolder) -> None:
    """One changed byte in any file that SHA256SUMS lists is refused."""
    run = certified.path / "runs" / "run-1"
    files = [line.partition("  ")[2] for line in (run / CHECKSUMS).read_text().splitlines()]
    answers = {}
    for name in files:
        content = (run / name).read_bytes()
        if content:
            at = len(content) // 2
            (run / name).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            code, reason, _ = admit(certified)
            answers[name] = (code, reason in {"tampered", "unreadable"})
            (run / name).write_bytes(content)

    assert {"verdict.json", "policy.toml", "certificate.intoto.json", "soak-1.jsonl", "host.jsonl"} <= answers.keys()
    assert {(3, True)} == set(answers.values())
    assert 0 == admit(certified)[0]


@pytest.mark.parametrize(
    ("file", "before", "after", "because"),
    [
        ("verdict.json", '"center": 2.', '"center": 9.', "verdict.json does not match the records"),
        ("soak-1.jsonl", '"sent_ns":', '"sent_ns":1', "verdict.json"),
        ("policy.toml", "speculation = false\nbecause", "speculation = true\nbecause", "policy.toml does not match"),
        ("policy.toml", 'expires = "20', 'expires = "21', "policy.toml does not match"),
        ("certificate.intoto.json", '"WARNED"', '"PASSED"', "certificate.intoto.json does not match"),
        ("certificate.intoto.json", '"easy: outcome"', '"easy: outcome twice"', "certificate.intoto.json does not"),
    ],
    ids=["figure", "record", "route", "expiry", "result", "workload"],
)
def test_new_checksums_do_not_hide_a_change(
    certified: ProjectFolder, file: str, before: str, after: str, because: str
) -> None:
    """Verdict, policy and certificate are derived again; one that differs is refused although its checksum matches."""
    run = certified.path / "runs" / "run-1"
    edit(run / file, before, after)
    rewrite_checksums(run)

    code, reason, document = admit(certified)

    assert (3, "tampered") == (code, reason)
    assert because in document["because"]


def test_a_run_is_not_made_younger_by_its_policy(finished: Scripted) -> None:
    """A later `issued`, with all that depends on it rewritten, extends nothing: the time is that of the records."""
    project = finished(SLOW, soak={"duration": "600 s"})
    run = project.path / "run"
    policy = tomllib.loads((run / "policy.toml").read_text())
    before = (policy["issued"], policy["expires"])
    after = ("2100-01-01T00:00:00.000000Z", "2100-01-31T00:00:00.000000Z")
    for name in ("policy.toml", "certificate.intoto.json"):
        for old, new in zip(before, after, strict=True):
            edit(run / name, old, new)
    certificate = json.loads((run / "certificate.intoto.json").read_text())
    chain = json.loads((run / "chain.intoto.json").read_text())
    chain["links"][3]["subject"][0]["digest"]["sha256"] = sha256((run / "policy.toml").read_bytes())
    (run / "chain.intoto.json").write_text(json_text(chain))
    entries = {entry["name"]: entry["digest"] for entry in certificate["subject"]}
    for name in ("policy.toml", "chain.intoto.json"):
        entries[name]["sha256"] = sha256((run / name).read_bytes())
    (run / "certificate.intoto.json").write_text(json.dumps(certificate, indent=1, ensure_ascii=False) + "\n")
    rewrite_checksums(run)

    assert (3, "not_yet_valid") == admit(project, run="run")[:2]


def test_an_edited_policy_of_another_version_is_noticed(
    certified: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards of another version are not derived again, but its certificate holds the policy's digest."""
    run = certified.path / "runs" / "run-1"
    monkeypatch.setattr(verify, "__version__", "0.0.1")
    untouched = admit(certified)
    edit(run / "policy.toml", "at_least = 1.16", "at_least = 0.16")
    edited = admit(certified)
    rewrite_checksums(run)
    with_checksums = admit(certified)

    assert [(0, "admitted"), (3, "tampered"), (3, "tampered")] == [
        answer[:2] for answer in (untouched, edited, with_checksums)
    ]
    assert with_checksums[2]["because"].startswith("certificate.intoto.json")


def test_a_route_of_another_version_is_derived_again(certified: ProjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of another version that routes otherwise is refused, although its certificate holds its digest."""
    run = certified.path / "runs" / "run-1"
    monkeypatch.setattr(verify, "__version__", "0.0.1")
    before = sha256((run / "policy.toml").read_bytes())
    edit(run / "policy.toml", "speculation = true", "speculation = false")
    edit(run / "certificate.intoto.json", before, sha256((run / "policy.toml").read_bytes()))
    rewrite_checksums(run)

    code, reason, document = admit(certified)

    assert (3, "tampered") == (code, reason)
    assert "policy.toml does not match the verdict" in document["because"]


def test_a_copied_certificate_is_refused(certified: ProjectFolder) -> None:
    """The certificate of another run, even a signed one, is refused."""
    certified.run("certify", "slo.toml", "--out", "runs/run-2", code=0)
    runs = certified.path / "runs"
    shutil.copy(runs / "run-1" / "certificate.intoto.json", runs / "run-2" / "certificate.intoto.json")
    old_checksums = admit(certified, run="runs/run-2")
    rewrite_checksums(runs / "run-2")

    code, reason, document = admit(certified, run="runs/run-2")

    assert [(3, "tampered")] * 2 == [old_checksums[:2], (code, reason)]
    assert "describes another run" in document["because"]


@pytest.mark.parametrize(
    "lost", ["manifest.json", "verdict.json", "policy.toml", "certificate.intoto.json", "soak-1.jsonl"]
)
def test_a_lost_file_is_no_proof(certified: ProjectFolder, lost: str) -> None:
    """A run that lost a file is never admitted, with old or new checksums."""
    run = certified.path / "runs" / "run-1"
    (run / lost).unlink()
    first = admit(certified)[0]
    rewrite_checksums(run)

    assert [3, 3] == [first, admit(certified)[0]]


@pytest.mark.parametrize("name", ["manifest.json", *(f"inputs/{kept_input}" for kept_input in KEPT_INPUTS)])
def test_a_file_that_is_no_text_is_damage(certified: ProjectFolder, name: str) -> None:
    """A byte that is not UTF-8 in a run's file is no proof and no bug, for every command that reads it."""
    run = certified.path / "runs" / "run-1"
    with (run / name).open("ab") as file:
        file.write(b"\xff")
    rewrite_checksums(run)

    commands = (("judge",), ("report",), ("admit", "slo.toml", "--run"))
    refusals = [certified.run(*words, "runs/run-1") for words in commands]

    assert [3, 3, 3] == [refusal.code for refusal in refusals]
    assert ["damaged" in refusal.err + refusal.out for refusal in refusals] == [True, True, True]


def test_a_record_file_added_later_is_noticed(certified: ProjectFolder) -> None:
    """An added soak is refused; added notes, or the Finder's own files, are not."""
    run = certified.path / "runs" / "run-1"
    (run / ".DS_Store").write_bytes(b"\0")
    (run / "notes.txt").write_text("looks fine")
    noted = admit(certified)[:2]
    shutil.copy(run / "soak-1.jsonl", run / "soak-2.jsonl")

    assert ((0, "admitted"), (3, "tampered")) == (noted, admit(certified)[:2])


def test_a_soak_alone_promotes_nothing(certified: ProjectFolder) -> None:
    """A soak of a setting that no sweep chose is not admitted."""
    certified.run("certify", "slo.toml", "--only", "soak", "--out", "alone", code=0)

    code, reason, document = admit(certified, run="alone")

    assert (3, "unproven") == (code, reason)
    assert document["because"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--run RUN_DIR or --runs DIR"),
        (("--run", "runs/run-1", "--runs", "runs"), "--run RUN_DIR or --runs DIR"),
        (("--run", "nowhere"), "there is no run nowhere"),
        (("--runs", "nowhere"), "there is no folder nowhere"),
        (("--run", "runs/run-1", "--max-age", "7 fortnights"), "--max-age"),
        (("--run", "runs/run-1", "--max-age", "0 s"), "--max-age"),
        (("--run", "runs/run-1", "--signed-by", "nowhere"), "no allowed-signers file nowhere"),
        (("--run", "runs/run-1", "--signed-by", "key.pub"), "key.pub is a public key, not a list of allowed signers"),
        (("--run", "runs/run-1", "--issuer", "https://ci.example.org"), "--signed-by IDENTITY --issuer URL"),
    ],
)
def test_a_wrong_command_line_is_code_2(certified: ProjectFolder, words: tuple[str, ...], message: str) -> None:
    """A wrong option is code 2, not code 3."""
    (certified.path / "key.pub").write_text("ssh-ed25519 AAAA anna@mini")

    assert message in certified.run("admit", "slo.toml", *words, code=2).err


@needs_ssh
def test_a_signed_run_is_admitted_by_its_signer(certified: ProjectFolder) -> None:
    """`sign` signs the certificate with a real key, and `--signed-by` names the signer."""
    key, allowed = key_pair(certified.path, "key")
    unsigned = admit(certified, "--signed-by", str(allowed))[:2]
    certified.run("sign", "runs/run-1", "--key", str(key), code=0)

    code, reason, document = admit(certified, "--signed-by", str(allowed))

    assert ((3, "unsigned"), (0, "admitted")) == (unsigned, (code, reason))
    assert "deploy@example.com" == document["signed_by"]
    run = certified.path / "runs" / "run-1"
    verify_words = ("-I", "deploy@example.com", "-n", "gatekeeper", "-s", str(run / "certificate.intoto.json.sig"))
    checked = subprocess.run(
        ["ssh-keygen", "-Y", "verify", "-f", str(allowed), *verify_words],
        input=(run / "certificate.intoto.json").read_bytes(),
        capture_output=True,
        check=False,
    )
    assert 0 == checked.returncode


@needs_ssh
def test_another_signer_or_signature_is_refused(certified: ProjectFolder) -> None:
    """A key that is not allowed, a signature for another purpose or content, and a damaged one count as unsigned."""
    key, allowed = key_pair(certified.path, "key")
    stranger, _ = key_pair(certified.path, "stranger")
    run = certified.path / "runs" / "run-1"
    answers = []
    certified.run("sign", "runs/run-1", "--key", str(stranger), code=0)
    answers.append(admit(certified, "--signed-by", str(allowed))[:2])
    for namespace, content in (("file", (run / "certificate.intoto.json").read_bytes()), ("gatekeeper", b"else")):
        argv = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", namespace]
        signature = subprocess.run(argv, input=content, capture_output=True, check=True).stdout
        (run / "certificate.intoto.json.sig").write_bytes(signature)
        rewrite_checksums(run)
        answers.append(admit(certified, "--signed-by", str(allowed))[:2])
    (run / "certificate.intoto.json.sig").write_bytes(b"no signature")
    rewrite_checksums(run)
    answers.append(admit(certified, "--signed-by", str(allowed))[:2])

    assert [(3, "unsigned")] * 4 == answers


def pem_keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Make an ed25519 key pair as PEM: the private file, the public file."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    pytest.importorskip("securesystemslib")
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_a_key_file_signs_a_bundle_that_others_verify(certified: ProjectFolder) -> None:
    """A PEM key signs a DSSE envelope as specified, which admit accepts by the public key alone."""
    private, public = pem_keys(certified.path, "key")
    _, stranger = pem_keys(certified.path, "other")
    run = certified.path / "runs" / "run-1"
    unsigned = admit(certified, "--signed-by", str(public))[:2]
    certified.run("sign", "runs/run-1", "--key", str(private), code=0)
    accepted, refused = (admit(certified, "--signed-by", str(key_file)) for key_file in (public, stranger))
    bundle = json.loads((run / BUNDLE).read_text())
    envelope = bundle["dsseEnvelope"]

    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"]
    encoded = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    loaded = serialization.load_pem_public_key(public.read_bytes())
    loaded.verify(base64.b64decode(envelope["signatures"][0]["sig"]), encoded)  # raises where it does not fit
    assert (run / "certificate.intoto.json").read_bytes() == payload
    assert "application/vnd.in-toto+json" == kind
    assert [(3, "unsigned"), (0, "admitted"), (3, "unsigned")] == [unsigned, accepted[:2], refused[:2]]
    assert accepted[2]["signed_by"].startswith("key.pub.pem: key ")


def test_the_identity_of_a_job_signs(certified: ProjectFolder) -> None:
    """`sign --keyless` signs by a job's identity, which admit verifies offline, of this issuer alone."""
    pytest.importorskip("sigstore")
    from tests.builders.local_sigstore import local_sigstore, token  # noqa: PLC0415 (an extra)

    identity, issuer = "https://ci.example.org/team/repo//certify.yml@refs/heads/main", "https://ci.example.org"
    run = certified.path / "runs" / "run-1"
    in_job = {**certified.environment, "GITLAB_CI": "true", "SIGSTORE_ID_TOKEN": token(identity, issuer)}
    with local_sigstore(certified.path) as sigstore:
        words = ("sign", "runs/run-1", "--keyless", "--trust-config", str(sigstore.trust_config))
        ProjectFolder(certified.path, in_job).run(*words, code=0)
    sigstore_options = ("--trusted-root", str(sigstore.trusted_root), "--issuer", issuer, "--signed-by")

    accepted, refused = (admit(certified, *sigstore_options, name) for name in (identity, f"{identity}-2"))
    shutil.move(run / BUNDLE, certified.path / "kept.json")
    rewrite_checksums(run)
    certified.run("sign", "runs/run-1", "--bundle", "kept.json", code=0)
    signed = json.loads((run / BUNDLE).read_text())
    statement = json.loads(base64.b64decode(signed["dsseEnvelope"]["payload"]))
    statement["subject"] = [entry for entry in statement["subject"] if entry["name"] != "policy.toml"]
    signed["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    (certified.path / "other.json").write_text(json.dumps(signed))
    attached = certified.run("sign", "runs/run-1", "--bundle", "other.json", code=2)

    assert [(0, "admitted"), (3, "unsigned")] == [accepted[:2], refused[:2]]
    assert f"{identity} ({issuer})" == accepted[2]["signed_by"]
    says("commands", "the identity of a job signs", lines_with("other.json", attached.err))


def test_admit_shows_who_made_each_step(certified: ProjectFolder) -> None:
    """Four in-toto links, each takes what the one before made, say who made them; a changed one is tampering."""
    run = certified.path / "runs" / "run-1"
    links = json.loads((run / "chain.intoto.json").read_text())["links"]

    code, _, document = admit(certified)
    names = [{product["name"] for product in link["subject"]} for link in links]
    materials = [{material["name"] for material in link["predicate"]["materials"]} for link in links]
    edit(run / "chain.intoto.json", '"by": [', '"by": ["somebody@else", ')
    rewrite_checksums(run)
    changed = admit(certified)

    assert (0, ["freeze", "measure", "judge", "promote"]) == (code, [step["step"] for step in document["chain"]])
    assert all("@" in step["by"][0] and step["host"]["os"] for step in document["chain"])
    assert names[0] <= materials[1]
    assert names[1] <= materials[2]
    assert names[2] == materials[3] == {"verdict.json"}
    assert (3, "tampered") == changed[:2]


@needs_ssh
def test_a_tampered_run_is_not_signed(certified: ProjectFolder) -> None:
    """A run whose verdict does not match its records is not signed."""
    key, _ = key_pair(certified.path, "key")
    run = certified.path / "runs" / "run-1"
    edit(run / "verdict.json", '"center": 2.', '"center": 9.')
    rewrite_checksums(run)

    refused = certified.run("sign", "runs/run-1", "--key", str(key), code=3)

    assert "verdict.json" in refused.err
    assert not (run / "certificate.intoto.json.sig").exists()


@needs_ssh
def test_a_key_that_cannot_sign_is_an_error(certified: ProjectFolder) -> None:
    """A missing key, and a file that is not a key, are code 2 and leave the run unchanged."""
    missing = certified.run("sign", "runs/run-1", "--key", "nowhere", code=2)
    wrong = certified.run("sign", "runs/run-1", "--key", "slo.toml", code=2)

    assert "no key file nowhere" in missing.err
    assert all(word in wrong.err for word in ("ssh-keygen", "slo.toml"))
    assert 0 == admit(certified)[0]


def test_a_missing_ssh_keygen_is_an_error(certified: ProjectFolder) -> None:
    """Without ssh-keygen a signature is neither made nor trusted: code 2, with the command that installs it."""
    (certified.path / "allowed").write_text("x\n")
    run = certified.path / "runs" / "run-1"
    (run / "certificate.intoto.json.sig").write_text("x")
    rewrite_checksums(run)
    bare = certified.with_environment(PATH=os.devnull)

    signing = bare.run("sign", "runs/run-1", "--key", "slo.toml", code=2)
    asking = bare.run("admit", "slo.toml", "--run", "runs/run-1", "--signed-by", "allowed", code=2)

    assert ["openssh-client" in refusal.err for refusal in (signing, asking)] == [True, True]


@contextmanager
def listening(folder: Path) -> Iterator[str]:
    """Start a real process that listens, with *folder* on its command line."""
    port = free_port()
    argv = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder), str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: control_requests.status(f"http://127.0.0.1:{port}/", {}) is not None)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_a_running_server_is_compared_with_the_certificate(certified: ProjectFolder, tmp_path: Path) -> None:
    """The gate is open for a server that contradicts nothing, and closes for one that does."""
    other_model = tmp_path / "other"
    other_model.mkdir()
    (other_model / "config.json").write_text("{}")
    (other_model / "model.safetensors").write_bytes(b"not the certified one")
    arguments = ("admit", "slo.toml", "--run", "runs/run-1", "--json", "--url")
    with listening(certified.path / "runs") as url:
        open_gate = json.loads(certified.run(*arguments, url, code=0).out)
    with listening(other_model) as url:
        closed = json.loads(certified.run(*arguments, url, code=3).out)
        text = certified.run(*arguments[:-2], "--url", url, code=3).out

    parts = {part["part"]: part["outcome"] for part in open_gate["server"]}
    assert "not checked" == parts["launch line"]
    assert ("other_server", 3) == (closed["reason"], closed["exit_code"])
    assert f"{other_model}, " in closed["because"]
    assert "not checked: launch line" in text


def test_public_keys_that_are_no_text_are_code_2(certified: ProjectFolder) -> None:
    """A file of PEM keys with a name in Latin-1 in it is told as that."""
    private, public = pem_keys(certified.path, "latin")
    certified.run("sign", "runs/run-1", "--key", str(private), code=0)
    public.write_bytes(public.read_bytes() + "# Müller\n".encode("latin-1"))

    done = certified.run("admit", "slo.toml", "--run", "runs/run-1", "--signed-by", str(public), code=2)

    assert "is not UTF-8" in done.err
