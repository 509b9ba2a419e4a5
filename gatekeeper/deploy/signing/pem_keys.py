"""Signatures by key files: PEM keys (securesystemslib), as a Sigstore bundle.

A bundle (github.com/sigstore/protobuf-specs, sigstore_bundle.proto) holds a DSSE envelope (Dead Simple Signing
Envelope, github.com/secure-systems-lab/dsse), which cosign verifies.
"""

import base64
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import json_object
from gatekeeper.core.text import json_text

PAYLOAD_TYPE = "application/vnd.in-toto+json"
"""The type of an in-toto Statement in an envelope (in-toto attestation framework, spec/v1/envelope.md)."""
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
ENVELOPE_KEY = "dsseEnvelope"
PEM = b"-----BEGIN "
OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY"
PUBLIC_END = "-----END PUBLIC KEY-----"
INSTALL = "pip install 'gatekeeper-slo[sign]'"
KEY_MOST = 1 << 16


def is_pem(path: Path) -> bool:
    """Return whether a file holds keys as PEM, and not a key or a list of keys of ssh."""
    with path.open("rb") as file:
        begin = file.read(KEY_MOST).lstrip()
    return begin.startswith(PEM) and not begin.startswith(OPENSSH)


def make_bundle(content: bytes, key: Path) -> bytes:
    """Return a bundle of *content* in an envelope, signed by the private key (PEM, not encrypted) in the file *key*.

    It names no key: cosign computes key ids differently, and skips a signature of another id than its own.
    """
    signing, serialization = import_libraries()
    from securesystemslib.dsse import Envelope  # noqa: PLC0415 (an extra)

    try:
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
        signer = signing.CryptoSigner(private)
    except (ValueError, TypeError) as error:
        hint = "name a private key as PEM without a passphrase: openssl genpkey -algorithm ed25519 -out KEY"
        raise InputError(f"{key} is not a private key that can sign: {error}", hint=hint) from error
    envelope = Envelope(content, PAYLOAD_TYPE, {})
    signature = envelope.sign(signer).signature
    signed = envelope.to_dict() | {"signatures": [{"sig": base64.b64encode(bytes.fromhex(signature)).decode()}]}
    material: dict[str, Any] = {"publicKey": {}}
    return json_text({"mediaType": BUNDLE_TYPE, "verificationMaterial": material, ENVELOPE_KEY: signed}).encode()


def verify_key_bundle(bundle: bytes, allowed: Path) -> tuple[str, bytes] | None:
    """Verify that a public key (PEM) in *allowed* signed *bundle*; return which one and what it signed, or None."""
    signing, serialization = import_libraries()
    from securesystemslib.dsse import Envelope  # noqa: PLC0415
    from securesystemslib.exceptions import Error  # noqa: PLC0415

    try:
        envelope = dict(json_object(bundle)[ENVELOPE_KEY])
        signatures = [base64.b64decode(signature["sig"]).hex() for signature in envelope["signatures"]]
        stored = Envelope.from_dict(envelope | {"signatures": []})
    except (ValueError, LookupError, TypeError, AttributeError, Error):
        return None
    if stored.payload_type != PAYLOAD_TYPE:
        return None
    for text in _read_keys(allowed).split(PUBLIC_END)[:-1]:
        try:
            public = serialization.load_pem_public_key((text.strip() + "\n" + PUBLIC_END + "\n").encode())
            key = signing.SSlibKey.from_crypto(public)
        except ValueError as error:
            raise InputError(f"{allowed}: {error}", hint="list public keys as PEM: openssl pkey -pubout") from error
        for signature in signatures:
            try:
                key.verify_signature(signing.Signature(key.keyid, signature), stored.pae())
            except Error:
                continue
            return f"{allowed.name}: key {key.keyid[:16]}", stored.payload
    return None


def _read_keys(allowed: Path) -> str:
    try:
        return allowed.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{allowed} is not UTF-8", hint="list public keys as PEM: openssl pkey -pubout") from error
    except OSError as error:
        raise InputError(f"cannot read {allowed}: {error.strerror}", hint="check its permissions") from error


def import_libraries() -> tuple[Any, Any]:
    """Return securesystemslib's signers and the key formats of cryptography, which the extra `sign` brings."""
    try:
        import securesystemslib.signer as signing  # noqa: PLC0415
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    except ImportError as error:
        raise InputError("signatures by key files need securesystemslib and cryptography", hint=INSTALL) from error
    return signing, serialization
