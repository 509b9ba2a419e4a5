"""How outcomes are written: the sign and the colour of each, and their words."""

GLYPHS = {
    "pass": "✓",
    "fail": "✕",
    "promoted": "✓",
    "graded_back": "↓",
    "failed": "✕",
    "unproven": "?",
    "interrupted": "‖",
    "running": "▸",
    "demo": "!",
    "no_verdict": "!",
    "unfinished": "‖",
    "open": "…",
    "excluded": "-",
    "plain": "○",
}
"""A sign with every colour, so that an outcome can be read without either one; from `demo` on, other states."""


def glyph_of(outcome: str) -> str:
    """Return the sign of an outcome."""
    return GLYPHS.get(outcome, "?")


def write_as_words(word: str) -> str:
    """Write a key such as graded_back as words."""
    return word.replace("_", " ")
