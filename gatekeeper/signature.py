"""A detached signature, made and checked by the system's ssh-keygen, with its keys, agents and tokens."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gatekeeper.terms.errors import InputError

NAMESPACE = "gatekeeper"
"""What the signature is for (`ssh-keygen -Y ... -n`): one made for mail or for git does not count here."""
SUFFIX = ".sig"


def sign(content: bytes, key: Path) -> bytes:
    """Return the signature of *content* by *key*: a private key, or a public one whose private half an agent holds."""
    if not key.is_file():
        raise InputError(f"no key {key}", hint="name a private key, or the .pub of one that ssh-agent holds")
    ran = _run(("-Y", "sign", "-f", str(key), "-n", NAMESPACE), content)
    if ran.returncode != 0:
        raise InputError(
            f"ssh-keygen did not sign with {key}: {_said(ran)}", hint="try the key with ssh-keygen -Y sign"
        )
    return ran.stdout


def can_check(allowed: Path) -> None:
    """Refuse at once what no signature could be checked with."""
    if not allowed.is_file():
        raise InputError(f"no file {allowed}", hint="name a file as ssh-keygen(1) describes under ALLOWED SIGNERS")
    _program()


def signer(content: bytes, signature: bytes, allowed: Path) -> str | None:
    """Return who of the *allowed* signers signed *content*; None where nobody of them did."""
    with tempfile.NamedTemporaryFile(suffix=SUFFIX) as file:  # ssh-keygen reads a signature from a file alone
        file.write(signature)
        file.flush()
        where = ("-f", str(allowed), "-s", file.name)
        named = _run(("-Y", "find-principals", *where), b"")
        # An older ssh-keygen writes several principals of one key in one line.
        principals = (
            named.stdout.decode(errors="replace").replace(",", "\n").split("\n") if not named.returncode else []
        )
        for principal in filter(None, (one.strip() for one in principals)):
            verified = _run(("-Y", "verify", "-I", principal, "-n", NAMESPACE, *where), content)
            if verified.returncode == 0:
                return principal
    return None


def _program() -> str:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise InputError(
            "ssh-keygen is not on PATH", hint="install OpenSSH: apt-get install openssh-client; macOS brings it"
        )
    return program


def _run(arguments: Sequence[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run((_program(), *arguments), input=content, capture_output=True, check=False)


def _said(ran: subprocess.CompletedProcess[bytes]) -> str:
    lines = ran.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {ran.returncode}"
