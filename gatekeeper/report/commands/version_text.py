"""What `gatekeeper version` prints."""

from collections.abc import Mapping


def versions_text(versions: Mapping[str, str | None]) -> str:
    """Return a line for each version, our own first."""
    return "".join(f"{name} {version or 'not found'}\n" for name, version in versions.items())
