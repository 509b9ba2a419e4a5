"""What releases of mlx-lm need beside them, where their own metadata do not say it."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from gatekeeper.core.errors import InputError

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[([^\]]*)\])?\s*(?:==\s*([^\s;,]+))?")
_LIMITS = (
    # Its chat template returns a dictionary since transformers 5, which these releases take for the tokens.
    ((0, 30, 0), "transformers", "<5"),
    # Their server decodes in another thread than the one that made its stream, which mlx refuses since 0.31.2.
    ((0, 31, 3), "mlx", "<0.31.2"),
)
"""The first release of mlx-lm that works with any version of a package, the package, and the bound for those before."""
OLDEST = (0, 28, 0)
"""The oldest release of mlx-lm for the `mlx` backend: those before yield the last token of a cut answer twice."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: a package, its extras, and the version that it is pinned to."""

    name: str
    extras: frozenset[str]
    version: str | None

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the first three numbers of its version; none where it is not pinned."""
        return tuple(int(number) for number in re.findall(r"\d+", self.version or "")[:3])


def parsed(words: Sequence[str]) -> list[Requirement]:
    """Return the requirements that name a package."""
    found = [match for word in words if (match := _REQUIREMENT.match(word)) is not None]
    return [
        Requirement(
            one[1].lower().replace("_", "-").replace(".", "-"),
            frozenset(extra.strip().lower() for extra in (one[2] or "").split(",") if extra.strip()),
            one[3],
        )
        for one in found
    ]


def completed(requirements: Sequence[str]) -> tuple[str, ...]:
    """Return *requirements*, and what they need besides to run here; what they name themselves is left alone.

    On Linux mlx computes with a library of its own, which it leaves to an extra: the one of the CPU, unless a
    requirement names another.
    """
    asked = parsed(requirements)
    named = {one.name for one in asked}
    if not any("mlx" in name.split("-") for name in named):
        return tuple(requirements)
    bounds: dict[str, str] = {}
    for one in asked:
        if one.name == "mlx-lm" and one.numbers:
            bounds |= {package: bound for first, package, bound in _LIMITS if one.numbers < first}
    added = {package: f"{package}{bound}" for package, bound in bounds.items() if package not in named}
    builds = {part for one in asked for part in (*one.extras, *one.name.split("-")) if "mlx" in one.name.split("-")}
    if sys.platform == "linux" and not any(part.startswith(("cpu", "cuda")) for part in builds):
        added["mlx"] = f"mlx[cpu]{bounds.get('mlx', '') if 'mlx' not in named else ''}"
    return (*requirements, *added.values())


def check_worker(requirements: Sequence[str]) -> None:
    """Raise InputError where the worker of the `mlx` backend cannot run with the mlx-lm that *requirements* pin."""
    for one in parsed(requirements):
        if one.name == "mlx-lm" and one.numbers and one.numbers < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            message = f"backend mlx cannot run mlx-lm {one.version}: it needs {oldest} or newer"
            raise InputError(message, hint='set backend = "mlx-server" in [subject], or begin with a newer version')
