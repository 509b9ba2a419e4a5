"""Signatures of a run's certificate: verify who made one, and make one after verifying the run."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict import admission
from gatekeeper.core import parse
from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.core.reasons import Reason
from gatekeeper.core.system import run_directory
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.core.text import json_text
from gatekeeper.deploy.signing import keyless, pem_keys, ssh_keys
from gatekeeper.deploy.signing.keyless import KeylessSigner
from gatekeeper.report.attestation import CERTIFICATE
from gatekeeper.run.stored import verify
from gatekeeper.run.stored.verify import Published, VerifiedRun

SIGNATURE = CERTIFICATE + run_directory.SIGNATURE_SUFFIX
BUNDLE = "certificate.sigstore.json"
ABOUT_BUNDLES = "it is what `attest: true` of the action makes of this run, or another tool of its certificate"


def verify_signature(run: VerifiedRun, published: Published, allowed: Path | KeylessSigner) -> str:
    """Verify that an *allowed* signer signed a run's certificate, or raise NoProofError; return which one.

    *allowed* is an allowed-signers file of ssh, or public keys as PEM, or an identity; the last two sign a bundle.
    """
    name = BUNDLE if isinstance(allowed, KeylessSigner) or pem_keys.is_pem(allowed) else SIGNATURE
    hint = f"sign it with a key listed in {allowed}: gatekeeper sign {{run}} --key KEY"
    if isinstance(allowed, KeylessSigner):
        hint = "sign it in the CI job: gatekeeper sign {run} --keyless"
    if not (run.directory.path / name).is_file():
        raise NoProofError(Reason.UNSIGNED, f"the certificate is not signed: no {name}", hint=hint)
    signature = run.directory.read(name)
    if isinstance(allowed, KeylessSigner):
        payload_type, payload = keyless.verify_bundle(signature, allowed)
        if payload_type == pem_keys.PAYLOAD_TYPE and is_certificate(payload, published):
            return f"{allowed.identity} ({allowed.issuer})"
        raise NoProofError(Reason.UNSIGNED, f"{name} is signed for something else than this run", hint=hint)
    signer = None
    if name == SIGNATURE:
        signer = ssh_keys.verify_ssh_signature(published.certificate, signature, allowed)
    elif (signed := pem_keys.verify_key_bundle(signature, allowed)) is not None:
        key, payload = signed
        signer = key if is_certificate(payload, published) else None
    if signer is None:
        raise NoProofError(Reason.UNSIGNED, f"the certificate is not signed by a signer in {allowed}", hint=hint)
    return signer


@dataclass(frozen=True, slots=True)
class SigningMethod:
    """How a run is signed: by a key file, by the identity of this CI job, or with a bundle that was made elsewhere."""

    key: Path | None = None
    trust_config: Path | None = None
    bundle: Path | None = None

    def make(self, published: Published) -> tuple[str, bytes]:
        """Return the name of the file that signs a certificate, and its content."""
        if self.key is not None and not pem_keys.is_pem(self.key):
            return SIGNATURE, ssh_keys.make_signature(published.certificate, self.key)
        if self.key is not None:
            return BUNDLE, pem_keys.make_bundle(published.certificate, self.key)
        if self.bundle is None:
            return BUNDLE, keyless.make_bundle(keyless_statement(published), self.trust_config)
        return BUNDLE, read_bundle(self.bundle, published)


def sign(path: Path, method: SigningMethod) -> dict[str, Any]:
    """Verify a run, sign its certificate and write its checksums again."""
    if method.key is not None:
        ssh_keys.check_key(method.key)
    RunDirectory(path).read(run_directory.MANIFEST)  # what is no run is told so, not that it cannot be resumed
    directory = RunDirectory.open(path, resume=True)
    try:
        verify.check_sums(directory)
        run = verify.judge_again(directory, verify.read_manifest(directory))
        admission.require_proof(run.verdict)
        published = verify.check_published(run)
        verify.check_chain(run)
        name, content = method.make(published)
        directory.write(name, content)
        directory.write_checksums()
    except NoProofError as error:
        raise NoProofError(error.reason, f"{path}: not signed: {error.message}", hint=error.next(None, path)) from error
    finally:
        directory.close()
    return {"schema": 1, "run": str(path), "signature": str(path / name), "outcome": run.verdict.outcome}


def keyless_statement(published: Published) -> bytes:
    """Return the certificate with those of its subjects that have a sha256: sigstore takes no other digests."""
    certificate = parse.json_object(published.certificate)
    hashed = [subject for subject in certificate["subject"] if "sha256" in subject["digest"]]
    subjects = [subject | {"digest": {"sha256": subject["digest"]["sha256"]}} for subject in hashed]
    return json_text(certificate | {"subject": subjects}).encode()


def is_certificate(payload: bytes, published: Published) -> bool:
    """Return whether a signed Statement is the run's certificate: whole, or its predicate about the run's policy.

    The second is what GitHub's `attest` action signs.
    """
    if payload == published.certificate:
        return True
    try:
        statement, certificate = parse.json_object(payload), parse.json_object(published.certificate)
        subjects = [subject["digest"].get("sha256") for subject in statement["subject"]]
        has_predicate = all(statement[key] == certificate[key] for key in ("_type", "predicateType", "predicate"))
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
    return has_predicate and published.policy_sha256 in subjects


def read_bundle(path: Path, published: Published) -> bytes:
    """Read a bundle that was made elsewhere; refuse one that signs something else. `admit` checks who signed it."""
    try:
        content = path.read_bytes()
        payload = base64.b64decode(parse.json_object(content)[pem_keys.ENVELOPE_KEY]["payload"])
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint=ABOUT_BUNDLES) from error
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path} is no bundle with a DSSE envelope: {error}", hint=ABOUT_BUNDLES) from error
    if not is_certificate(payload, published):
        raise InputError(f"{path} does not sign the certificate of this run", hint=ABOUT_BUNDLES)
    return content
