"""The parts of an mlx-lm answer: its text and its tool calls, without the markers and the reasoning."""

import json
from importlib import import_module
from typing import Any, NamedTuple

# `import mlx_lm.generate` yields the function of that name, not the module.
generation = import_module("mlx_lm.generate")

Segments = list[tuple[str | None, str]]
"""Texts, each with what it is: normal, reasoning or tool."""


class Token(NamedTuple):
    """A token as mlx-lm yielded it."""

    id: int
    drafted: bool
    text: str
    finish: str | None
    """Why the answer ended with it; None where it went on."""


def answer_parts(
    tokenizer: Any, prompt: list[int], pieces: list[Token], tools: list[dict[str, Any]]
) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and the tool calls of an answer, separated as mlx-lm's own server does."""
    by_server = hasattr(getattr(generation, "TextStateMachine", None), "split")
    segments = _by_state_machine(tokenizer, prompt, pieces) if by_server else _by_markers(tokenizer, prompt, pieces)
    text, spans, before = "", [""], segments[0][0] if segments else "normal"
    for name, segment in segments:
        if name == "tool":
            spans[-1] += segment
        elif name == "normal":
            if before == "tool":
                spans.append("")
            text += segment
        before = name or before
    return text, [call for span in spans if span for call in _calls(tokenizer, span, tools)]


def _by_state_machine(tokenizer: Any, prompt: list[int], pieces: list[Token]) -> Segments:
    """Separate an answer by the state machine of mlx-lm's server."""
    machine = generation.TextStateMachine
    initial = "normal"
    if tokenizer.has_thinking and tokenizer.rfind_think_start(prompt) > tokenizer.rfind_think_end(prompt):
        initial = "reasoning"
    initial = getattr(tokenizer, "response_initial_state", None) or initial
    state = generation.make_text_state_machine(tokenizer).make_state(initial)
    segments: Segments = [(initial, "")]
    for piece in pieces:
        if piece.finish == "stop":
            # The stop token's text, and a held-back start of a marker, are not part of the answer.
            break
        state, split = machine.split(state, piece.text)
        segments += split
        if piece.finish == "length":
            state, flushed, name = machine.flush(state)
            segments.append((name, flushed))
    return segments


def _by_markers(tokenizer: Any, prompt: list[int], pieces: list[Token]) -> Segments:
    """Separate a whole answer at its markers: the state machine of mlx-lm before 0.32.1 does not name its parts."""
    edges: dict[str, list[tuple[str, str]]] = {"normal": [], "reasoning": [], "tool": []}
    name = "normal"
    if getattr(tokenizer, "has_thinking", False):
        begin, end = tokenizer.think_start, tokenizer.think_end
        edges["normal"].append((begin, "reasoning"))
        edges["reasoning"].append((end, "normal"))
        before = tokenizer.decode(prompt)
        name = "reasoning" if before.rfind(begin) > before.rfind(end) else "normal"
    if getattr(tokenizer, "has_tool_calling", False):
        for state in ("normal", "reasoning"):
            edges[state].append((tokenizer.tool_call_start, "tool"))
        edges["tool"] += [(tokenizer.tool_call_end, "normal")] if tokenizer.tool_call_end else []
    rest = "".join(piece.text for piece in pieces)
    segments: Segments = []
    while True:
        markers = [(rest.find(marker), marker, to) for marker, to in edges[name] if marker in rest]
        if not markers:
            return [*segments, (name, rest)]
        index, marker, to = min(markers)
        segments.append((name, rest[:index]))
        name, rest = to, rest[index + len(marker) :]


def _calls(tokenizer: Any, span: str, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    parse = getattr(tokenizer, "tool_parser", None)
    try:
        parsed = parse(span, tools or None) if parse is not None else json.loads(span)
    except (ValueError, KeyError, TypeError):
        return []
    calls = parsed if isinstance(parsed, list) else [parsed]
    return [
        {"type": "function", "function": {**call, "arguments": json.dumps(call.get("arguments"), ensure_ascii=False)}}
        for call in calls
        if isinstance(call, dict)
    ]
