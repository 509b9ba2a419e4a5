"""What releases of mlx-lm need beside them, where their own metadata do not say it."""

import sys
from collections.abc import Sequence
from contextlib import suppress

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.core.errors import InputError

_LIMITS = (
    # Its chat template returns a dictionary since transformers 5, which these releases take for the tokens.
    ((0, 30, 0), "transformers", "<5"),
    # Their server decodes in another thread than the one that made its stream, which mlx refuses since 0.31.2.
    ((0, 31, 3), "mlx", "<0.31.2"),
)
"""The first release of mlx-lm that works with any version of a package, the package, and the bound for those before."""


def parse_requirements(words: Sequence[str]) -> list[Requirement]:
    """Return the requirements that name a package; a path or an address names none."""
    requirements = []
    for word in words:
        with suppress(InvalidRequirement):
            requirement = Requirement(word)
            requirement.name = canonicalize_name(requirement.name)
            requirements.append(requirement)
    return requirements


def _release(requirement: Requirement) -> tuple[int, ...]:
    """Return the first three numbers of the version that it is pinned to; none where it is not pinned."""
    pinned = (specifier.version for specifier in requirement.specifier if specifier.operator == "==")
    return Version(version.removesuffix(".*")).release[:3] if (version := next(pinned, None)) is not None else ()


def complete_requirements(requirements: Sequence[str]) -> tuple[str, ...]:
    """Return *requirements*, and what they need besides to run here; what they name themselves is left alone.

    On Linux mlx computes with a library of its own, which it leaves to an extra: the one of the CPU, unless a
    requirement names another.
    """
    by_name = {requirement.name: requirement for requirement in parse_requirements(requirements)}
    of_mlx = {name: requirement for name, requirement in by_name.items() if "mlx" in name.split("-")}
    if not of_mlx:
        return tuple(requirements)
    bounds: dict[str, str] = {}
    if "mlx-lm" in by_name and (release := _release(by_name["mlx-lm"])):
        bounds = {package: bound for first, package, bound in _LIMITS if release < first}
    added = {package: f"{package}{bound}" for package, bound in bounds.items() if package not in by_name}
    builds = {part for name, requirement in of_mlx.items() for part in (*requirement.extras, *name.split("-"))}
    if sys.platform == "linux" and not any(part.startswith(("cpu", "cuda")) for part in builds):
        added["mlx"] = f"mlx[cpu]{bounds.get('mlx', '') if 'mlx' not in by_name else ''}"
    return (*requirements, *added.values())


def check_oldest(requirements: Sequence[str], facts: BackendFacts) -> None:
    """Raise InputError where *requirements* pin a release that is too old for a backend."""
    for requirement in parse_requirements(requirements):
        oldest, release = facts.oldest.get(requirement.name), _release(requirement)
        if oldest is not None and release and release < oldest:
            version, needed = str(requirement.specifier).removeprefix("=="), ".".join(map(str, oldest))
            message = f"backend {facts.name} cannot run {requirement.name} {version}: it needs {needed} or newer"
            served = f'set backend = "{facts.served_as}" in [subject], or ' if facts.served_as else ""
            raise InputError(message, hint=f"{served}begin with a newer version")
