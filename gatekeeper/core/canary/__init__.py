"""Canary files: frozen prompts, each with what its answer is expected to be."""

from gatekeeper.core.canary.canary_line import OPTIONS, ROLES, Canary, Tier, parse
from gatekeeper.core.canary.expectation import Expect, ToolCall

__all__ = ["OPTIONS", "ROLES", "Canary", "Expect", "Tier", "ToolCall", "parse"]
