"""A Sigstore of one's own on 127.0.0.1: it certifies identities (Fulcio), and logs certificates and entries (Rekor).

What it signs is checked by the real libraries, with the trusted root and the client configuration that it writes.
"""

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

ISSUERS = ("1.3.6.1.4.1.57264.1.1", "1.3.6.1.4.1.57264.1.8")
"""Extensions that hold the issuer: as bytes, and as a DER string (fulcio, docs/oid-info.md)."""
SCTS = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
ALWAYS = {"start": "2020-01-01T00:00:00Z"}


class Sigstore(NamedTuple):
    trust_config: Path
    trusted_root: Path


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


class LogKey:
    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.public = self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.id = hashlib.sha256(self.public).digest()

    def sign(self, content: bytes) -> bytes:
        return self.key.sign(content, ec.ECDSA(hashes.SHA256()))

    def document(self, url: str) -> dict[str, Any]:
        details = {"keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": ALWAYS}
        return {
            "baseUrl": url,
            "hashAlgorithm": "SHA2_256",
            "publicKey": {"rawBytes": b64(self.public), **details},
            "logId": {"keyId": b64(self.id)},
        }


class Authority:
    """Certifies keys for an identity; each certificate is in the log of certificates."""

    def __init__(self) -> None:
        self.key, self.certificates = ec.generate_private_key(ec.SECP256R1()), LogKey()
        now = datetime.now(UTC)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        public = self.key.public_key()
        usage = x509.KeyUsage(*(name in {5, 6} for name in range(9)))  # signs certificates and their revocation
        self.certificate = (
            x509.CertificateBuilder(self._name, self._name, public, x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def certify(self, public: Any, identity: str, issuer: str) -> x509.Certificate:
        now = datetime.now(UTC)
        authority_key = self.key.public_key()
        text = issuer.encode()
        builder = (
            x509.CertificateBuilder(self._name, x509.Name([]), public, x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(minutes=10))
            .add_extension(x509.KeyUsage(*(name == 0 for name in range(9))), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True)
        )
        for oid, value in zip(ISSUERS, (text, bytes([0x0C, len(text)]) + text), strict=True):
            builder = builder.add_extension(x509.UnrecognizedExtension(ObjectIdentifier(oid), value), critical=False)
        tbs = builder.sign(self.key, hashes.SHA256()).tbs_certificate_bytes
        stamps = self._timestamp(tbs, round(now.timestamp() * 1000))
        logged = builder.add_extension(x509.UnrecognizedExtension(SCTS, stamps), critical=False)
        return logged.sign(self.key, hashes.SHA256())

    def _timestamp(self, tbs: bytes, at_ms: int) -> bytes:
        """Return the list of the one timestamp of a precertificate (RFC 6962, 3.2 and 3.3), as its extension has it."""
        issuer = hashlib.sha256(self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        at, none = at_ms.to_bytes(8, "big"), b"\0\0"
        entry = b"\0\1" + issuer.digest() + len(tbs).to_bytes(3, "big") + tbs
        signature = self.certificates.sign(b"\0\0" + at + entry + none)
        timestamp = b"\0" + self.certificates.id + at + none + b"\4\3" + len(signature).to_bytes(2, "big") + signature
        stamp_list = len(timestamp).to_bytes(2, "big") + timestamp
        stamp_list = len(stamp_list).to_bytes(2, "big") + stamp_list
        return (
            bytes([0x04, len(stamp_list)]) + stamp_list
            if len(stamp_list) < 128
            else bytes([0x04, 0x81, len(stamp_list)]) + stamp_list
        )


class EntryLog(LogKey):
    """A log of signed envelopes: a Merkle tree, a signed checkpoint, and a signed promise for each entry."""

    leaves: list[bytes]

    def add(self, envelope: str, certificate: str) -> dict[str, Any]:
        signed = json.loads(envelope)
        payload = base64.b64decode(signed["payload"])
        digests = {"envelopeHash": envelope.encode(), "payloadHash": payload}
        spec: dict[str, Any] = {
            name: {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()}
            for name, content in digests.items()
        }
        spec["signatures"] = [
            {"signature": signature["sig"], "verifier": certificate} for signature in signed["signatures"]
        ]
        body = canonical({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        before = hashlib.sha256(b"\0an entry of somebody else").digest()
        root = hashlib.sha256(b"\1" + before + hashlib.sha256(b"\0" + body).digest()).digest()
        note = f"test log - 1\n2\n{b64(root)}\n"
        checkpoint = f"{note}\n\N{EM DASH} test {b64(self.id[:4] + self.sign(note.encode()))}\n"
        entry = {"body": b64(body), "integratedTime": int(time.time()), "logID": self.id.hex(), "logIndex": 1}
        proof = {"checkpoint": checkpoint, "hashes": [before.hex()], "logIndex": 1, "rootHash": root.hex()}
        promise = b64(self.sign(canonical(entry)))
        return entry | {"verification": {"inclusionProof": proof | {"treeSize": 2}, "signedEntryTimestamp": promise}}


def token(identity: str, issuer: str) -> str:
    """Return an identity token as a CI system gives it; only the authority would check its signature."""
    now = int(time.time())
    claims = {"iss": issuer, "sub": identity, "aud": "sigstore", "iat": now, "exp": now + 600}
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    encoded = [base64.urlsafe_b64encode(canonical(part)).decode().rstrip("=") for part in parts]
    return ".".join((*encoded, "eA"))


@contextmanager
def local_sigstore(folder: Path) -> Iterator[Sigstore]:
    """Serve both; write the client configuration and the trusted root into *folder*."""
    authority, log = Authority(), EntryLog()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = self._certify(request) if self.path.endswith("/signingCert") else self._log(request)
            content = json.dumps(answer).encode()
            self.send_response(201)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _certify(self, proposal: dict[str, Any]) -> dict[str, Any]:
            part = self.headers["authorization"].split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
            request = x509.load_pem_x509_csr(base64.b64decode(proposal["certificateSigningRequest"]))
            certificate = authority.certify(request.public_key(), claims["sub"], claims["iss"])
            chain = [link.public_bytes(Encoding.PEM).decode() for link in (certificate, authority.certificate)]
            return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

        def _log(self, entry: dict[str, Any]) -> dict[str, Any]:
            proposed = entry["spec"]["proposedContent"]
            return {"0" * 64: log.add(proposed["envelope"], proposed["verifiers"][0])}

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        authority_der = authority.certificate.public_bytes(Encoding.DER)
        root = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log.document(url)],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "test", "commonName": "test authority"},
                    "uri": url,
                    "certChain": {"certificates": [{"rawBytes": b64(authority_der)}]},
                    "validFor": ALWAYS,
                }
            ],
            "ctlogs": [authority.certificates.document(url)],
            "timestampAuthorities": [],
        }
        service = {"url": url, "majorApiVersion": 1, "validFor": ALWAYS, "operator": "test"}
        signing = {
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": [service],
            "rekorTlogUrls": [service],
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaConfig": {"selector": "ANY"},
        }
        config = {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": root,
            "signingConfig": signing,
        }
        sigstore = Sigstore(folder / "trust-config.json", folder / "trusted-root.json")
        sigstore.trust_config.write_text(json.dumps(config))
        sigstore.trusted_root.write_text(json.dumps(root))
        try:
            yield sigstore
        finally:
            server.shutdown()
