"""A certificate that signed itself, for servers in tests."""

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(folder: Path) -> Path:
    """Write a certificate for 127.0.0.1 and its key into one file of *folder*."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate")
    folder.mkdir(exist_ok=True)
    path = folder / "server.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=fake", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, "-keyout", path, "-out", folder / "cert.pem"], check=True, capture_output=True)
    path.write_bytes((folder / "cert.pem").read_bytes() + path.read_bytes())
    return path
