"""The versions that a bisect searches: packages, programs or drafts, and the releases that a package index offers."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from gatekeeper.core.errors import InputError
from gatekeeper.core.text import quote_lines


@dataclass(frozen=True, slots=True)
class Version:
    """One version to test: packages that are installed together, a program, or a draft."""

    requirements: tuple[str, ...] = ()
    program: str | None = None
    draft: str | None = None

    @property
    def name(self) -> str:
        """Return how it is shown."""
        return " ".join(self.requirements) or self.program or str(self.draft)

    @property
    def option(self) -> list[str]:
        """Return the options of the command line that name it."""
        if self.requirements:
            return ["--step", " ".join(self.requirements)]
        return ["--program", self.program] if self.program is not None else ["--draft", str(self.draft)]


def released_versions(package: str, good: str, bad: str, options: Sequence[str]) -> list[str]:
    """Return the versions of *package* from *good* to *bad* that the package index offers, in their order."""
    program = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", *options, package]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    line = next((line for line in ran.stdout.splitlines() if line.startswith("Available versions:")), "")
    offered = [version.strip() for version in line.partition(":")[2].split(",") if version.strip()]
    for version in (good, bad):
        if version not in offered:
            hint = f"it has {', '.join(offered[:12])}" if offered else quote_lines(ran.stderr) or "check its name"
            raise InputError(f"the package index has no {package} {version}", hint=hint)
    offered.reverse()  # pip lists the newest first
    first, last = offered.index(good), offered.index(bad)
    return offered[first : last + 1] if first <= last else offered[last : first + 1][::-1]
