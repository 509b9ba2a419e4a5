"""Keyless signatures, made and verified by the real library at a Sigstore of our own."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError
from gatekeeper.core.reasons import Reason
from gatekeeper.deploy.signing import keyless
from gatekeeper.deploy.signing.keyless import KeylessSigner
from tests.builders.golden_words import says

pytest.importorskip("sigstore")

from tests.builders.local_sigstore import Sigstore, local_sigstore, token

IDENTITY, ISSUER = "https://ci.example.org/team/repo//certify.yml@refs/heads/main", "https://ci.example.org"
STATEMENT = json.dumps(
    {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "policy.toml", "digest": {"sha256": "ab" * 32}}],
        "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
        "predicate": {"result": "PASSED"},
    }
).encode()
NOBODY = {"GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI", "GOOGLE_SERVICE_ACCOUNT_NAME"}
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sigstore, bytes]:
    """Sign the statement once in a CI job; the Sigstore is gone when it is verified."""
    with pytest.MonkeyPatch.context() as patch, local_sigstore(tmp_path_factory.mktemp("sigstore")) as sigstore:
        patch.setenv("GITLAB_CI", "true")
        patch.setenv("SIGSTORE_ID_TOKEN", token(IDENTITY, ISSUER))
        patch.delenv("GITHUB_ACTIONS", raising=False)
        return sigstore, keyless.make_bundle(STATEMENT, sigstore.trust_config)


def test_a_bundle_is_verified_offline(signed: tuple[Sigstore, bytes]) -> None:
    """Identity, issuer and trusted root suffice: the content and its type come back."""
    sigstore, bundle = signed

    kind, payload = keyless.verify_bundle(bundle, KeylessSigner(IDENTITY, ISSUER, sigstore.trusted_root))

    assert ("application/vnd.in-toto+json", STATEMENT) == (kind, payload)


@pytest.mark.parametrize(
    ("identity", "issuer"), [(IDENTITY + "2", ISSUER), (IDENTITY, "https://other.example.org"), ("", ISSUER)]
)
def test_another_signer_is_refused(signed: tuple[Sigstore, bytes], identity: str, issuer: str) -> None:
    """The right identity of another issuer, and another identity of the right one, count as unsigned."""
    sigstore, bundle = signed

    with pytest.raises(NoProofError) as refused:
        keyless.verify_bundle(bundle, KeylessSigner(identity, issuer, sigstore.trusted_root))

    assert Reason.UNSIGNED == refused.value.reason


def test_the_public_instance_did_not_sign_it(
    signed: tuple[Sigstore, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --trusted-root that of the public Sigstore decides, offline: a bundle of another instance is refused."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(NoProofError, match="not signed by"):
        keyless.verify_bundle(signed[1], KeylessSigner(IDENTITY, ISSUER))


def entry(bundle: dict[str, Any]) -> Any:
    return bundle["verificationMaterial"]["tlogEntries"][0]


def other_payload(bundle: dict[str, Any]) -> None:
    content = base64.b64decode(bundle["dsseEnvelope"]["payload"]).replace(b"PASSED", b"FAILED")
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(content).decode()


@pytest.mark.parametrize(
    "change",
    [
        other_payload,
        lambda bundle: bundle["verificationMaterial"].pop("tlogEntries"),
        lambda bundle: bundle["verificationMaterial"].pop("certificate"),
        lambda bundle: bundle.pop("dsseEnvelope"),
        lambda bundle: entry(bundle).pop("inclusionProof"),
        lambda bundle: entry(bundle).update(integratedTime=str(int(entry(bundle)["integratedTime"]) + 1)),
        lambda bundle: entry(bundle)["inclusionProof"]["hashes"].reverse() or entry(bundle).update(logIndex="0"),
        dict.clear,
    ],
    ids=["payload", "log", "certificate", "envelope", "proof", "time", "index", "empty"],
)
def test_a_changed_bundle_is_refused(signed: tuple[Sigstore, bytes], change: Change) -> None:
    """Other content, and a bundle that lost a part of its evidence, count as unsigned, never as an error of ours."""
    sigstore, bundle = signed
    changed = json.loads(bundle)
    change(changed)

    with pytest.raises(NoProofError) as refused:
        keyless.verify_bundle(json.dumps(changed).encode(), KeylessSigner(IDENTITY, ISSUER, sigstore.trusted_root))

    assert Reason.UNSIGNED == refused.value.reason


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"null", b'{"mediaType": 3}'])
def test_what_is_no_bundle_is_refused(signed: tuple[Sigstore, bytes], content: bytes) -> None:
    """Bytes that are no bundle count as unsigned."""
    with pytest.raises(NoProofError):
        keyless.verify_bundle(content, KeylessSigner(IDENTITY, ISSUER, signed[0].trusted_root))


def test_a_trusted_root_that_is_none_is_an_error(tmp_path: Path) -> None:
    """A missing or unreadable trusted root is code 2 and says how to write one."""
    (tmp_path / "empty.json").write_text("{}")

    for name in ("nowhere.json", "empty.json"):
        with pytest.raises(InputError, match="--trusted-root") as refused:
            keyless.load_verifier(KeylessSigner(IDENTITY, ISSUER, tmp_path / name))
        says("deploy", "a trusted root that is none is an error", refused.value.hint)


def test_only_a_job_with_an_identity_signs(signed: tuple[Sigstore, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of CI there is no identity; a Sigstore that does not answer is an error of ours, with a way out."""
    for name in NOBODY:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="no identity found"):
        keyless.make_bundle(STATEMENT, signed[0].trust_config)

    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", token(IDENTITY, ISSUER))
    with pytest.raises(GatekeeperError, match="Sigstore did not sign") as refused:
        keyless.make_bundle(STATEMENT, signed[0].trust_config)

    assert 4 == refused.value.exit_code
