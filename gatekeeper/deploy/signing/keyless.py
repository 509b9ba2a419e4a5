"""Keyless signatures: a Sigstore bundle ties a Statement to the identity of a CI job, by sigstore (extra `keyless`).

A bundle holds everything that its verification needs but the trusted root: no network is used for it.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError
from gatekeeper.core.reasons import Reason

INSTALL = "pip install 'gatekeeper-slo[keyless]'"
ADVICE = "in GitHub Actions give the job the permission id-token: write; in GitLab an id_token SIGSTORE_ID_TOKEN"
"""How a job gets an identity."""


@dataclass(frozen=True, slots=True)
class KeylessSigner:
    """Whose signature is accepted: an identity, as its issuer states it."""

    identity: str
    """The subject alternative name: an address of a workflow with its ref, or of a person."""
    issuer: str
    trusted_root: Path | None = None
    """A trusted root of Sigstore as JSON; None: that of the public instance, as the library has it."""


def load_verifier(signer: KeylessSigner) -> Any:
    """Return a verifier by the trusted root of *signer*; raise InputError where there is none."""
    _import_sigstore()
    from sigstore.errors import Error  # noqa: PLC0415 (an extra)
    from sigstore.models import ClientTrustConfig, TrustedRoot  # noqa: PLC0415
    from sigstore.verify import Verifier  # noqa: PLC0415

    path = signer.trusted_root
    try:
        root = TrustedRoot.from_file(str(path)) if path else ClientTrustConfig.production(offline=True).trusted_root
        return Verifier(trusted_root=root)
    except (OSError, ValueError, Error) as error:
        name = f"--trusted-root {path}" if path else "the trusted root of Sigstore's public instance"
        hint = "write one with: cosign trusted-root create, or gh attestation trusted-root"
        raise InputError(f"cannot read {name}: {error}", hint=hint) from error


def verify_bundle(bundle: bytes, signer: KeylessSigner) -> tuple[str, bytes]:
    """Verify that *signer* signed *bundle*, or raise NoProofError; return type and content of its envelope."""
    verifier = load_verifier(signer)
    from sigstore.errors import Error  # noqa: PLC0415
    from sigstore.models import Bundle  # noqa: PLC0415
    from sigstore.verify.policy import Identity  # noqa: PLC0415

    try:
        policy = Identity(identity=signer.identity, issuer=signer.issuer)
        payload_type, payload = verifier.verify_dsse(Bundle.from_json(bundle), policy)
    except (Error, ValueError, LookupError, TypeError, AttributeError) as error:
        because = f"the bundle is not signed by {signer.identity}: {error}"
        raise NoProofError(Reason.UNSIGNED, because, hint="name the signer as its certificate does") from error
    return str(payload_type), bytes(payload)


def make_bundle(statement: bytes, trust_config: Path | None) -> bytes:
    """Return the bundle of *statement*, signed by the identity of this CI job; this needs the network.

    *trust_config* is the client trust configuration of another Sigstore instance than the public one.
    """
    _import_sigstore()
    from sigstore import oidc  # noqa: PLC0415
    from sigstore.dsse import Statement  # noqa: PLC0415
    from sigstore.models import ClientTrustConfig  # noqa: PLC0415
    from sigstore.sign import SigningContext  # noqa: PLC0415

    try:
        token = oidc.detect_credential()
    except oidc.IdentityError as error:
        raise InputError(f"the identity of this CI job cannot be read: {error}", hint=ADVICE) from error
    if token is None:
        raise InputError("no identity found: this is not a CI job that has one", hint=ADVICE)
    try:
        config = ClientTrustConfig.from_json(trust_config.read_text("utf-8")) if trust_config else None
    except (OSError, ValueError) as error:
        hint = "it holds the trusted root and the addresses of a Sigstore instance, as JSON"
        raise InputError(f"cannot read --trust-config {trust_config}: {error}", hint=hint) from error
    try:
        context = SigningContext.from_trust_config(config or ClientTrustConfig.production())
        with context.signer(oidc.IdentityToken(token)) as signer:
            return signer.sign_dsse(Statement(statement)).to_json().encode()
    except Exception as error:  # its clients raise errors of several libraries
        hint = "does this machine reach Sigstore, and is the identity's token still valid? A key file needs neither"
        raise GatekeeperError(f"Sigstore did not sign: {type(error).__name__}: {error}", hint=hint) from error


def _import_sigstore() -> None:
    try:
        import sigstore  # noqa: F401, PLC0415
    except ImportError as error:
        raise InputError("keyless signatures need sigstore", hint=INSTALL) from error
    logging.getLogger("sigstore").setLevel(logging.ERROR)  # it warns that offline it does not look for a newer root
