"""A quote: what a server said, as one line that every file, terminal and environment can hold."""

MOST = 200
"""Characters that are quoted: servers may say anything, at any length."""


def quote(said: str) -> str:
    """Return *said* without control characters and halves of characters, on one line and cut to size."""
    return " ".join("".join(one if one.isprintable() else " " for one in said[: 4 * MOST]).split())[:MOST]
