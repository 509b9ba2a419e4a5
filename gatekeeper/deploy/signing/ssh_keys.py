"""Signatures by ssh keys (ssh-keygen), and who may sign: a list of allowed signers, or public keys as PEM."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from gatekeeper.core.errors import InputError
from gatekeeper.core.system.run_directory import SIGNATURE_SUFFIX
from gatekeeper.deploy.signing.pem_keys import KEY_MOST, import_libraries, is_pem

PUBLIC_SSH = (b"ssh-", b"ecdsa-sha2-", b"sk-")
"""Types of key, with which the line of a public key begins."""
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
        import_libraries()
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
