"""Canary files: frozen prompts, each with what its answer is expected to be."""

from gatekeeper.core.canary.canary_line import (
    LIMITS,
    OPTIONS,
    OWN_FORMATS,
    PENALTIES,
    ROLES,
    SCHEMAS,
    WITHOUT_EFFECT,
    Canary,
    Tier,
    parse,
)
from gatekeeper.core.canary.expectation import Expect, ToolCall

__all__ = [
    "LIMITS",
    "OPTIONS",
    "OWN_FORMATS",
    "PENALTIES",
    "ROLES",
    "SCHEMAS",
    "WITHOUT_EFFECT",
    "Canary",
    "Expect",
    "Tier",
    "ToolCall",
    "parse",
]
