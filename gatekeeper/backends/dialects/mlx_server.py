"""The mlx-server dialect: the real mlx_lm.server, unmodified for plain decoding and through our tap for a draft."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gatekeeper.backends import dialect
from gatekeeper.backends.counters import count, counts, spec_decode
from gatekeeper.backends.dialect import (
    COMPLETIONS,
    STREAMED,
    Counters,
    Dialect,
    Get,
    ServerRequest,
    Start,
    option,
    thinking,
)
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.http.chat_request import request_fields
from gatekeeper.backends.http.scores import (
    Ask,
    Beginning,
    by_template,
    choice_of,
    likeliest_at,
    name_of,
    places_of,
    scored_from,
    spelled_by,
    with_scores,
)
from gatekeeper.backends.server_process import find_versions, installed_beside
from gatekeeper.backends.workers.mlx_tap import METRICS, PREFIX
from gatekeeper.backends.workers.rounds import rounds_from
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Scored
from gatekeeper.core.slo.subject_table import Subject


def argv(start: Start) -> Iterator[str]:
    """Yield the command line; our tap counts the rounds, which mlx_lm.server does not report."""
    if start.program:
        yield from start.program
    else:
        module = ("mlx_lm", "server") if start.draft is None else ("gatekeeper.backends.workers.mlx_tap",)
        yield from (sys.executable, "-P", "-m", *module)
    yield from ("--model", start.target, *start.address)
    yield from option("--draft-model", start.draft)
    yield from option("--prefill-step-size", start.subject.prefill_chunk)
    # From the first token on: mlx-lm would begin at the 5,000th.
    yield from ("--kv-bits", str(start.subject.kv_bits), "--quantized-kv-start", "0") if start.subject.kv_bits else ()


def body(request: ServerRequest) -> dict[str, Any]:
    """Return the request; 0 draft tokens are not plain decoding (docs/servers.md), so that has its own server."""
    # A model's name would make it load that model again; without one it uses the model it was started with.
    return request_fields(
        request.resolved, num_draft_tokens=request.resolved.draft_tokens, chat_template_kwargs=thinking(request)
    )


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the rounds our tap counted; none without the tap, or where it counted other tokens than were sent."""
    counted = response.usage.get("speculative")
    if not isinstance(counted, dict) or counted.get("tokens") != answer.generated_tokens:
        return answer
    numbers = [count(counted.get(name)) for name in ("rounds", "drafted", "accepted")]
    lists = [counted.get(name) for name in ("tried_by_position", "accepted_by_position")]
    if None in numbers or not all(isinstance(values, list) and len(counts(values)) == len(values) for values in lists):
        return answer
    return replace(answer, rounds=rounds_from(counted))


def request_scores(ask: Ask, fields: Mapping[str, Any]) -> Scored | None:
    """Return an answer with log-probabilities: those of the pass that verified each token, with a draft too.

    It tells either its tokens or the likeliest ones. Where the likeliest ones spell the answer's text they are its
    tokens, and one request is enough.
    """
    asking = with_scores(fields)
    document = ask(COMPLETIONS, asking)
    likely = places_of(choice_of(document))
    if (preferred := _of_likeliest(scored_from(document), likely)) is not None:
        return preferred
    written = scored_from(ask(COMPLETIONS, {**asking, "top_logprobs": -1}))
    if written is None or len(likely) != len(written.tokens):
        return None
    return replace(written, likeliest=tuple(map(likeliest_at, likely)), spelled=spell_tokens(written.tokens, likely))


def _of_likeliest(told: Scored | None, places: Sequence[Mapping[str, Any]]) -> Scored | None:
    """Return an answer whose text is what the likeliest tokens spell; None for another one.

    The token that ends an answer is no part of its text; nor is, with some tokenizers, a space at its beginning.
    """
    if told is None or not all(told.likeliest):
        return None
    tokens, logprobs = zip(*(likely[0] for likely in told.likeliest), strict=True)
    pieces = spell_tokens(tokens, places)
    text = "".join(pieces[:-1] if told.finish == "stop" else pieces)
    if not told.text or told.text not in {text, text.removeprefix(" ")}:
        return None
    return replace(told, tokens=tokens, logprobs=logprobs, spelled=pieces)


def continue_answer(ask: Ask, beginning: Beginning, tokens: int) -> Scored | None:
    """Return what follows a beginning; of one token the likeliest ones are enough, and one request."""
    return by_template(request_scores if tokens > 1 else dialect.request_scores, ask, beginning, tokens)


def spell_tokens(names: Sequence[str], places: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the text of each written token, which its place has among the likeliest; empty where one is not there."""
    pieces = []
    for name, place in zip(names, places, strict=True):
        listed = place.get("top_logprobs")
        likely = [token for token in listed if isinstance(token, Mapping)] if isinstance(listed, list) else []
        pieces.append(next((token for token in likely if name_of(token) == name), {}))
    return spelled_by(pieces, piece_bytes)


def piece_bytes(piece: str) -> bytes:
    """Return the bytes of a piece of a vocabulary: of bytes written as characters, or of words after U+2581."""
    if "\u2581" in piece:
        return piece.replace("\u2581", " ").encode("utf-8", "replace")
    if (byte := re.fullmatch("<0x([0-9A-F]{2})>", piece)) is not None:
        return bytes.fromhex(byte.group(1))
    if all(character in _BYTES for character in piece):
        return bytes(_BYTES[character] for character in piece)
    return piece.encode("utf-8", "replace")


def _byte_characters() -> dict[str, int]:
    """Return the byte of each character of a byte-level vocabulary: printable ones are themselves, others from U+0100.

    Of GPT-2 (Radford et al., 2019), and of the byte-level vocabularies since.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}


_BYTES = _byte_characters()


def traffic(get: Get) -> Counters | None:
    """Return the sums of our tap over all requests; None without it."""
    return spec_decode(get(METRICS), PREFIX)


def versions(subject: Subject) -> dict[str, str]:
    """Return the versions of this environment, which serves both arms unless the SLO names another's program."""
    names = ("mlx", "mlx-lm", "transformers")
    return find_versions(*names) if subject.program is None else installed_beside(subject.program[0], names)


DIALECT = Dialect(
    name="mlx-server",
    install='pip install "gatekeeper-slo[mlx]" (or name a server of another environment in subject.program)',
    extra="mlx",
    module="mlx_lm",
    console_script="mlx_lm.server",
    loads="folder",
    provider="mlx",
    variables=("MLX_",),
    one_forward_a_token=True,
    draft_hint="pass --draft-model to mlx_lm.server, and a num_draft_tokens above 0",
    argv=argv,
    body=body,
    steered_paths=(COMPLETIONS, "/chat/completions", "/v1/completions"),
    read=read,
    scored=request_scores,
    continued=continue_answer,
    sight=STREAMED | Sight.ROUNDS | Sight.COLD | Sight.LOGPROBS | Sight.VERIFIED,
    knobs=frozenset({"num_draft_tokens", "thinking"}),
    cache_off=("--prompt-cache-size", "0"),
    cache_defect="mlx-lm 0.23.2 to 0.32.2 changes answers that a draft resumes from the prompt cache",
    no_acceptance_hint="start it with `python -m gatekeeper.backends.workers.mlx_tap` instead of "
    "`python -m mlx_lm server`, or remove this guard from the policy",
    version=versions,
    traffic=traffic,
)
