"""A release without an account: build it, install it, and go the way of its first user.

    ./run rehearse-release

It builds sdist and wheel into `dist/`, checks them, and installs the wheel into two empty environments. The one of pip
has gatekeeper alone: its packages, size and licences are counted, and known vulnerabilities looked up. The one of uv
has the engine and the extra `sign`: from an empty folder it certifies `smoke`, signs the certificate with a new key,
and admits the run by that key alone. What cannot be looked up is not checked, and never clean.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
MOST_PACKAGES, MOST_MEGABYTES = 35, 95
"""Without the inference engine, gatekeeper among them, bytecode left out."""
INSTALLERS = {"pip", "setuptools"}
ACCEPTED = {
    "0BSD",
    "3-Clause BSD License",
    "Apache Software License",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "MIT",
    "MIT License",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
    "Zlib",
}
"""Licences that allow to use and to ship a package beside one under Apache-2.0, as packages spell them."""
LIST_PACKAGES = """
import importlib.metadata, json
rows = []
for package in importlib.metadata.distributions():
    about = package.metadata
    classifiers = [text.rpartition(" :: ")[2] for text in about.get_all("Classifier", []) if "License ::" in text]
    licence = about.get("License-Expression") or about.get("License") or " AND ".join(classifiers)
    size = sum(file.size or 0 for file in package.files or () if file.suffix != ".pyc")
    rows.append({"name": package.name, "version": package.version, "licence": licence, "bytes": size})
print(json.dumps(rows))
"""
MAKE_KEY = """
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
key = Ed25519PrivateKey.generate()
with open("key.pem", "wb") as private, open("key.pub.pem", "wb") as public:
    private.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
"""
PYTHON = Path(sys.executable)
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
"""Neither this checkout nor its environment is found from the new ones; the settings of pip and uv are kept."""


def run(*words: str | Path, cwd: Path = ROOT) -> str:
    """Run a program and return what it prints; where it fails, end with what it said."""
    shown = (word.name if isinstance(word, Path) else word for word in words)
    print("$", " ".join(shown).partition("\n")[0], flush=True)
    done = subprocess.run(words, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}\nrehearse-release: exit code {done.returncode} of the last command above")
    return done.stdout


def build() -> Path:
    """Build the sdist, and of it the wheel, into an empty dist/; check both, and return the wheel."""
    for old in DIST.glob("gatekeeper_slo-*"):
        old.unlink()
    run(PYTHON, "-m", "hatchling", "build", "-t", "sdist", "-d", DIST)
    (sdist,) = DIST.glob("*.tar.gz")
    run(PYTHON, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", DIST, sdist)
    (wheel,) = DIST.glob("*.whl")
    run(PYTHON, "-m", "twine", "check", "--strict", wheel, sdist)
    run(PYTHON, "-m", "check_wheel_contents", wheel)
    return wheel


def list_packages(python: Path) -> list[dict[str, Any]]:
    """Return the packages of an environment, without what installs them."""
    rows: list[dict[str, Any]] = json.loads(run(python, "-c", LIST_PACKAGES))
    return [row for row in rows if row["name"] not in INSTALLERS]


def check_size(packages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Print how many packages there are and how large; return what is wrong with that."""
    megabytes = sum(package["bytes"] for package in packages) / 1e6
    largest = sorted(packages, key=lambda package: -package["bytes"])[:4]
    listed = ", ".join(f"{package['name']} {package['bytes'] / 1e6:.1f} MB" for package in largest)
    print(f"size: {len(packages)} packages, {megabytes:.0f} MB ({listed})")
    if any(package["name"] == "mlx-lm" for package in packages):
        print("size: not judged, the inference engine is part of it on this system")
    elif len(packages) > MOST_PACKAGES or megabytes > MOST_MEGABYTES:
        return [f"more than {MOST_PACKAGES} packages or {MOST_MEGABYTES} MB"]
    return []


def check_licences(packages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the packages whose licence is not one of those accepted; one that names none is not accepted."""
    refused = []
    for package in packages:
        licences = re.split(r" AND | OR ", package["licence"].partition("\n")[0].strip("()"))
        if not {*licences} <= ACCEPTED:
            refused.append(f"licence of {package['name']} {package['version']}: {package['licence'] or 'not named'}")
    print(f"licences: {len(packages) - len(refused)} of {len(packages)} packages have an accepted one")
    return refused


def audit(site: str) -> str:
    """Return what pip-audit says of the packages of a folder, as JSON; what it warns of where it has no answer."""
    words = [str(PYTHON), "-m", "uv", "tool", "run", "pip-audit", "--format", "json", "--path", site]
    try:
        done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return "no answer within 5 min"
    return done.stdout or done.stderr


def check_vulnerabilities(answer: str, packages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Print which packages pip-audit looked up, and return those with a known vulnerability.

    Its own summary, and its exit code, call packages clean that no database knew.
    """
    try:
        audited = [row for row in json.loads(answer)["dependencies"] if "vulns" in row]
    except ValueError:
        print(f"vulnerabilities: not checked: {(answer.strip() or 'pip-audit printed nothing').splitlines()[-1]}")
        return []
    names = {row["name"].lower().replace("_", "-") for row in audited}
    unchecked = sorted({package["name"].lower().replace("_", "-") for package in packages} - names)
    print(f"vulnerabilities: {len(names)} packages checked; not checked: {', '.join(unchecked) or 'none'}")
    return [f"{row['name']}: {vulnerability['id']}" for row in audited for vulnerability in row["vulns"]]


def certify(gatekeeper: Path, folder: Path) -> None:
    """Certify, sign and admit from an empty *folder*, by the installed command alone."""
    ENVIRONMENT["XDG_STATE_HOME"] = str(folder)  # earlier tries of this host are not those of a first user
    run(gatekeeper, "certify", "smoke", "--quiet", "--out", "runs/rehearsal", cwd=folder)
    run(gatekeeper.with_name("python"), "-c", MAKE_KEY, cwd=folder)
    run(gatekeeper, "sign", "runs/rehearsal", "--key", "key.pem", cwd=folder)
    admit = ("admit", "smoke", "--runs", "runs", "--grade", "demo", "--signed-by", "key.pub.pem")
    print(run(gatekeeper, *admit, cwd=folder).strip())


def main() -> int:
    """Rehearse the release; exit 1 where something of it must not be published."""
    wheel = build()
    with tempfile.TemporaryDirectory(prefix="gatekeeper-release-") as name:
        folder = Path(name)
        empty = folder / "empty"
        empty.mkdir()

        by_pip = folder / "by-pip" / "bin" / "python"
        run(PYTHON, "-m", "venv", by_pip.parent.parent)
        run(by_pip, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", wheel)
        print(run(by_pip.with_name("gatekeeper"), "--version", cwd=empty).partition("\n")[0])
        packages = list_packages(by_pip)
        site = run(by_pip, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        wrong = check_size(packages) + check_licences(packages) + check_vulnerabilities(audit(site), packages)

        by_uv = folder / "by-uv" / "bin" / "python"
        run(PYTHON, "-m", "uv", "venv", "--quiet", "--python", PYTHON, by_uv.parent.parent)
        run(PYTHON, "-m", "uv", "pip", "install", "--quiet", "--python", by_uv, f"{wheel}[mlx,sign]")
        certify(by_uv.with_name("gatekeeper"), empty)
    for line in wrong:
        print(f"rehearse-release: {line}", file=sys.stderr)
    if not wrong:
        print(f"rehearse-release: nothing of {wheel.name} is wrong, but for what was not checked above")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
