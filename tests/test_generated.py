"""What is written anew with the code, and what must have a part for each of its parts: a failure says what mends it."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gatekeeper.core.backend_registry import SERVERS
from tests.builders import faults, servers
from tests.builders.project_folder import ROOT
from tools import build_site, write_fault_matrix, write_reference, write_schema

GENERATE = "run ./run generate"
LOCK = "run python tools/lock_runtime.py"
CONSTRAINTS = ROOT / "tests" / "constraints.txt"
LOCKED = {"mlx", "test", "lint", "docs"}
"""The extras whose libraries `tests/constraints.txt` has."""


def test_the_reference_says_what_the_program_does() -> None:
    """Each page of docs/reference/ that a generator writes is what it writes of this version."""
    stale = [
        name
        for name, page in write_reference.PAGES.items()
        if (write_reference.FOLDER / name).read_text() != write_reference.HEAD + page()
    ]

    assert [] == stale, GENERATE


def test_the_schema_is_what_the_model_says() -> None:
    """The schema beside the SLO files is that of the model that reads them, byte for byte."""
    assert write_schema.SCHEMA.read_text("utf-8") == write_schema.text(), GENERATE


def test_the_page_of_faults_counts_the_matrix() -> None:
    """docs/faults.md has the number of rows of each table in tests/faults/matrix."""
    assert faults.PAGE.read_text("utf-8") == write_fault_matrix.page(), GENERATE


def test_llms_txt_lists_the_sidebar() -> None:
    """llms.txt is what the sidebar says, with the first sentence of each page, and names files that exist."""
    listed = build_site.LLMS.read_text()

    assert listed == build_site.llms(), GENERATE
    assert [] == [path for path in re.findall(r"\]\(([^)\s]+)\)", listed) if not (ROOT / path).is_file()]


def test_every_server_has_a_test() -> None:
    """Each server that an SLO may name has a stand-in, or runs for real in a file of its own."""
    tried = {*servers.PROTOCOLS, "mlx-server", "llama-server"}

    assert set(SERVERS) == tried, "describe what it answers in PROTOCOLS of tests/builders/servers.py"


def requirements(extras: set[str]) -> list[Requirement]:
    """Return what gatekeeper needs, and what these extras do, for Linux on an x86-64 processor."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    parsed = [Requirement(line) for line in lines]
    here = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.11"}
    return [
        requirement
        for requirement in parsed
        if requirement.name != project["name"] and (requirement.marker is None or requirement.marker.evaluate(here))
    ]


def unmet(needed: list[Requirement], locked: dict[str, set[str]]) -> list[str]:
    """Return the requirements that no version of the lock fits."""
    missing = []
    for requirement in needed:
        versions = locked.get(canonicalize_name(requirement.name), ())
        if not any(Version(version) in requirement.specifier for version in versions):
            missing.append(str(requirement))
    return missing


def test_the_locks_have_what_the_project_needs() -> None:
    """Each library of pyproject.toml is in the lock files in a version that it allows."""
    pinned: dict[str, set[str]] = {}
    for line in CONSTRAINTS.read_text().splitlines():
        name, _, version = line.partition(";")[0].partition("==")
        pinned.setdefault(name, set()).add(version.strip())
    locks = [
        ({name: {package["version"]} for package in read["packages"] for name in [package["name"]]}, extras)
        for path, extras in (
            (ROOT / "pylock.toml", set()),
            (ROOT / "integrations" / "pylock.image.toml", {"proxy", "sign", "keyless"}),
        )
        for read in [tomllib.loads(path.read_text())]
    ]

    assert [] == unmet(requirements(LOCKED | {"grpc", "keyless", "proxy", "sign"}), pinned), LOCK
    for locked, extras in locks:
        assert [] == unmet(requirements(extras), locked), LOCK


def test_the_constraints_name_versions_alone() -> None:
    """A line is a name, a version and at most a condition: no address of an index, and no file of a machine."""
    lines = CONSTRAINTS.read_text().splitlines()

    assert [] == [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [\w\s.'()<>=!]+)?", line)]
