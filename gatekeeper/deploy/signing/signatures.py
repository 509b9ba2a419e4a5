"""Signatures of a certificate: by ssh keys (ssh-keygen), and by key files as a Sigstore bundle (securesystemslib).

A bundle (github.com/sigstore/protobuf-specs, sigstore_bundle.proto) holds a DSSE envelope (Dead Simple Signing
Envelope, github.com/secure-systems-lab/dsse), which cosign verifies.
"""

import base64
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import json_object
from gatekeeper.core.system.run_directory import SIGNATURE_SUFFIX
from gatekeeper.core.text import json_text

PAYLOAD_TYPE = "application/vnd.in-toto+json"
"""Of an in-toto Statement in an envelope (in-toto attestation framework, spec/v1/envelope.md)."""
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
ENVELOPE_KEY = "dsseEnvelope"
PEM = b"-----BEGIN "
OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY"
PUBLIC_SSH = (b"ssh-", b"ecdsa-sha2-", b"sk-")
"""Types of key, with which the line of a public key begins."""
KEY_MOST = 1 << 16
PUBLIC_END = "-----END PUBLIC KEY-----"
INSTALL = "pip install 'gatekeeper-slo[sign]'"
SIGNERS = "allowed_signers"
NAMESPACE = "gatekeeper"
"""The purpose of the signature (`ssh-keygen -Y ... -n`): a signature made for mail or git is not accepted."""


def check_key(key: Path) -> None:
    """Raise InputError if there is no key file."""
    if not key.is_file():
        raise InputError(f"no key file {key}", hint="name a private key, or the .pub file of a key in ssh-agent")


def make_signature(content: bytes, key: Path) -> bytes:
    """Return the signature of *content* by *key*: a private key, or a public one whose private key an agent holds."""
    ran = _run(("-Y", "sign", "-f", str(key), "-n", NAMESPACE), content)
    if ran.returncode != 0:
        hint = "try the key with ssh-keygen -Y sign"
        lines = ran.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {ran.returncode}"]
        raise InputError(f"ssh-keygen cannot sign with {key}: {lines[-1]}", hint=hint)
    return ran.stdout


def public_key_command(key: Path) -> str:
    """Return the command that writes whom `admit --signed-by` accepts, into a file beside *key* or a list here."""
    if key.suffix == ".pub" or not is_pem(key):
        public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
        return f'echo "NAME $(cat {quote(str(public))})" >> {SIGNERS}'
    return f"openssl pkey -in {quote(str(key))} -pubout -out {quote(str(public_key_file(key)))}"


def public_key_file(key: Path) -> Path:
    """Return what `public_key_command` writes."""
    return key.with_name(f"{key.name}.pub") if key.suffix != ".pub" and is_pem(key) else Path(SIGNERS)


def check_signers_file(allowed: Path) -> None:
    """Raise InputError if signatures cannot be checked: no such file, or no ssh-keygen."""
    if not allowed.is_file():
        hint = f'make one: echo "NAME $(cat KEY.pub)" > {quote(str(allowed))}; or name a file of public keys as PEM'
        raise InputError(f"no allowed-signers file {allowed}", hint=hint)
    with allowed.open("rb") as file:
        begin = file.read(KEY_MOST)
    if begin.startswith(PUBLIC_SSH):
        hint = f'make the list, with a name before each key: echo "NAME $(cat {quote(str(allowed))})" > allowed_signers'
        raise InputError(f"{allowed} is a public key, not a list of allowed signers", hint=hint)
    if b"PRIVATE KEY-----" in begin:
        hint = f"name the public ones: {public_key_command(allowed)}"
        raise InputError(f"{allowed} is a private key, not a list of allowed signers", hint=hint)
    if is_pem(allowed):
        _import_libraries()
    else:
        _find_ssh_keygen()


def verify_ssh_signature(content: bytes, signature: bytes, allowed: Path) -> str | None:
    """Verify that an *allowed* signer signed *content*; return which one, None for any other signature."""
    with tempfile.NamedTemporaryFile(suffix=SIGNATURE_SUFFIX) as file:  # ssh-keygen reads a signature only from a file
        file.write(signature)
        file.flush()
        files = ("-f", str(allowed), "-s", file.name)
        lookup = _run(("-Y", "find-principals", *files), b"")
        # An older ssh-keygen writes several principals of one key in one line.
        principals = "" if lookup.returncode else lookup.stdout.decode(errors="replace").replace(",", "\n")
        for principal in filter(None, (name.strip() for name in principals.split("\n"))):
            verified = _run(("-Y", "verify", "-I", principal, "-n", NAMESPACE, *files), content)
            if verified.returncode == 0:
                return principal
    return None


def _find_ssh_keygen() -> str:
    program = shutil.which("ssh-keygen")
    if program is None:
        hint = "install OpenSSH: apt-get install openssh-client; macOS includes it"
        raise InputError("ssh-keygen is not on PATH", hint=hint)
    return program


def _run(arguments: Sequence[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run((_find_ssh_keygen(), *arguments), input=content, capture_output=True, check=False)


def is_pem(path: Path) -> bool:
    """Return whether a file holds keys as PEM, and not a key or a list of keys of ssh."""
    with path.open("rb") as file:
        begin = file.read(KEY_MOST).lstrip()
    return begin.startswith(PEM) and not begin.startswith(OPENSSH)


def make_bundle(content: bytes, key: Path) -> bytes:
    """Return a bundle of *content* in an envelope, signed by the private key (PEM, not encrypted) in the file *key*.

    It names no key: cosign computes key ids differently, and skips a signature of another id than its own.
    """
    signing, serialization = _import_libraries()
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
    signing, serialization = _import_libraries()
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


def _import_libraries() -> tuple[Any, Any]:
    """Return securesystemslib's signers and the key formats of cryptography, which the extra `sign` brings."""
    try:
        import securesystemslib.signer as signing  # noqa: PLC0415
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    except ImportError as error:
        raise InputError("signatures by key files need securesystemslib and cryptography", hint=INSTALL) from error
    return signing, serialization
