"""A bundle that was made elsewhere, for `sign --bundle`: it is taken where it signs the certificate of this run."""

import base64
from pathlib import Path

from gatekeeper.core import parse
from gatekeeper.core.errors import InputError
from gatekeeper.deploy.signing import pem_keys
from gatekeeper.deploy.signing.signed_statement import is_certificate
from gatekeeper.run.stored.verify import Published

ABOUT_BUNDLES = "it is what `attest: true` of the action makes of this run, or another tool of its certificate"


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
