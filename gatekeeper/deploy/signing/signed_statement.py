"""The statement that a signature is about: what sigstore signs, and whether a signed one is a run's certificate."""

from gatekeeper.core import parse
from gatekeeper.core.text import json_text
from gatekeeper.run.stored.verify import Published


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
