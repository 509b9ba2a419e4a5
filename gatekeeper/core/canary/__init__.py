"""Canary files: frozen prompts, each with what its answer is expected to be."""

from gatekeeper.core.canary.canary_line import KNOWN_ROLES, OPTIONS, ROLES, Canary, Tier, parse
from gatekeeper.core.canary.expectation import Expect, ToolCall

__all__ = ["KNOWN_ROLES", "OPTIONS", "ROLES", "Canary", "Expect", "Tier", "ToolCall", "parse"]
