"""Servers' claims about their drafting, converted from their names and definitions to ours."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gatekeeper.backends.dialect import Counters, ServerRequest
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.core.parse import COUNTS, WHOLE, ParseError, integer
from gatekeeper.core.records import Answer

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_LAST_ALONE = 1
"""The last token that max_tokens allows is decoded alone: there is no room for a draft."""


def count(value: object) -> int | None:
    """Return *value* as a count; None where it is not a whole number of at least 0."""
    number = number_of(value)
    return int(number) if number is not None and float(number).is_integer() and int(number) in COUNTS else None


def counts(values: object) -> tuple[int, ...]:
    """Return counters by position; empty where one of them is not a count."""
    numbers = [count(value) for value in values] if isinstance(values, list) else []
    return tuple(value for value in numbers if value is not None) if None not in numbers else ()


def seconds(milliseconds: object) -> float | None:
    """Return milliseconds as seconds; None for anything but a number."""
    number = number_of(milliseconds)
    return None if number is None else number / 1e3


def number_of(value: object) -> float | None:
    """Return *value* where it is a finite number; None for anything else, True and False included."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < WHOLE else None


def within(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the object at *path* of a JSON document; empty where there is none."""
    part: Any = document
    for name in path:
        part = part.get(name) if isinstance(part, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def claims_at(*path: str, **keys: str) -> Callable[[Answer, ChatResponse], Answer]:
    """Return a `read` that takes each claim from its key, in the object at *path* of the response.

    A key that ends in `_ms` holds milliseconds.
    """

    def read(answer: Answer, response: ChatResponse) -> Answer:
        part = within(response.last, *path)
        return claiming(answer, **{claim: _claim(claim, key, part.get(key)) for claim, key in keys.items()})

    return read


def _claim(claim: str, key: str, value: object) -> object:
    if claim.endswith("_by_position"):
        return counts(value)
    if not claim.endswith("_seconds"):
        return count(value)
    return seconds(value) if key.endswith("_ms") else number_of(value)


def histogram_positions(histogram: object, *, rounds: int | None, accepted: int | None) -> dict[str, tuple[int, ...]]:
    """Return the counters by position of vLLM's `acceptance_histogram`: how many rounds accepted 0, 1, 2 … tokens.

    Empty where it does not add up to the other counters. A position was tried where all before it were accepted; the
    draft may have been shorter, so of the last one that is not known, and none are given as tried.
    """
    rounds_by_accepted = counts(histogram)
    told = sum(rounds_by_accepted), sum(length * number for length, number in enumerate(rounds_by_accepted))
    if not rounds_by_accepted or told != (rounds, accepted):
        return {}
    return {"accepted_by_position": tuple(sum(rounds_by_accepted[1 + i :]) for i in range(len(rounds_by_accepted) - 1))}


def decode_seconds(response: ChatResponse) -> float | None:
    """Return how long the server says that it decoded; None where it does not.

    It is `timings.predicted_ms` (llama.cpp, mlx-vlm, MTPLX), or `metrics.generation_time_ms` of vLLM 0.33 with
    `--enable-per-request-metrics`.
    """
    timings, metrics = within(response.last, "timings"), within(response.last, "metrics")
    return seconds(timings.get("predicted_ms", metrics.get("generation_time_ms")))


def decode_tokens(response: ChatResponse) -> int | None:
    """Return how many tokens the timings count (`predicted_n`), beside the usage; None where they do not."""
    return count(within(response.last, "timings").get("predicted_n"))


def read_any(answer: Answer, response: ChatResponse) -> Answer:
    """Add the claims of a server of any kind, by the shapes that are common.

    `timings.draft_n` (llama.cpp, mlx-vlm, MTPLX), `metrics.speculative_decoding` (vLLM 0.33; by depth, Rapid-MLX
    0.16.10) and `usage.completion_tokens_details.accepted_prediction_tokens` (OpenAI). Two zeros in the last are no
    claim: servers that count nothing send them, too.
    """
    answer = claiming(answer, decode_seconds=decode_seconds(response), decode_tokens=decode_tokens(response))
    timings, metrics = within(response.last, "timings"), within(response.last, "metrics", "speculative_decoding")
    if number_of(timings.get("draft_n")) is not None:
        return claiming(
            answer,
            drafted=count(timings["draft_n"]),
            accepted=count(timings.get("draft_n_accepted")),
            rounds=count(timings.get("draft_rounds")),
        )
    if metrics:
        return claiming(answer, **speculative_decoding(metrics))
    details = within(response.usage, "completion_tokens_details")
    accepted, rejected = (count(details.get(f"{which}_prediction_tokens")) for which in ("accepted", "rejected"))
    return (
        claiming(answer, drafted=accepted + rejected, accepted=accepted)
        if accepted and rejected is not None
        else answer
    )


def speculative_decoding(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims in `metrics.speculative_decoding`, in vLLM's form or, by depth, in Rapid-MLX's."""
    tried, accepted = counts(metrics.get("drafted_by_depth")), counts(metrics.get("accepted_by_depth"))
    if tried or accepted:
        return {
            "drafted": sum(tried) if tried else None,
            "accepted": sum(accepted) if accepted else None,
            "rounds": count(metrics.get("verify_calls")),
            "tried_by_position": tried,
            "accepted_by_position": accepted,
        }
    rounds, kept = count(metrics.get("num_spec_steps")), count(metrics.get("num_accepted_draft_tokens"))
    by_position = histogram_positions(metrics.get("acceptance_histogram"), rounds=rounds, accepted=kept)
    return {"drafted": count(metrics.get("num_draft_tokens")), "accepted": kept, "rounds": rounds, **by_position}


def dropped_prompt(field: str, *, original: int | None, remaining: int | None) -> str:
    """Return the fault of an answer to a part of the prompt, which a server reports under *field*."""
    tokens = "tokens" if original is None or remaining is None else f"{original - remaining} of {original} tokens"
    return f"not lossless: the server dropped {tokens} of the prompt ({field})"


def claiming(answer: Answer, **claims: Any) -> Answer:
    """Return *answer* with more claims; a claim of None changes nothing."""
    present = {name: value for name, value in claims.items() if value is not None}
    return replace(answer, claims=replace(answer.claims, **present))


def by_length(rounds: int | None, length: object) -> int | None:
    """Return the accepted tokens from rounds and tokens per round (definition C).

    Every round emits the accepted tokens and one of the target's own: accepted = rounds x (length - 1).
    """
    tokens_per_round = number_of(length)
    return None if rounds is None or tokens_per_round is None else max(0, round(rounds * (tokens_per_round - 1)))


def by_output(answer: Answer, rate: object) -> int | None:
    """Return the accepted tokens from their share of the output (definition B)."""
    share = number_of(rate)
    return None if share is None or answer.generated_tokens is None else max(0, round(share * answer.generated_tokens))


def with_all_rounds(request: ServerRequest, answer: Answer) -> Answer:
    """Drop the rounds where the server has not counted all passes of the target.

    The first token comes with the prompt, and every later pass yields the tokens it accepted and one more. A pass that
    had nothing to verify (a look-up that found nothing, a draft below `draft_p_min`, a length of 0) is not counted.
    """
    del request
    claims, emitted = answer.claims, answer.generated_tokens
    if claims.rounds is None or claims.accepted is None or emitted is None:
        return answer
    if emitted - 1 - claims.accepted - claims.rounds > _LAST_ALONE:
        return replace(answer, claims=replace(claims, rounds=None))
    return answer


def samples(text: str, part: str) -> "tuple[Sample, ...]":
    """Return the samples of a Prometheus text whose lines hold *part*; a line that is not valid has no number.

    A server has a thousand other lines, and they are read around every answer: only these are parsed.
    """
    lines = (line for line in text.splitlines() if part in line and not line.startswith("#"))
    return tuple(sample for line in lines for sample in _parse_line(line))


def _parse_line(line: str) -> "Iterable[Sample]":
    # Here, because they bring an HTTP server, which servers without such counters do without.
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415
    from prometheus_client.samples import Sample  # noqa: PLC0415

    try:
        return [sample for family in text_string_to_metric_families(f"{line}\n") for sample in family.samples]
    except (ValueError, IndexError):  # its own error, and what it runs into in a line that is cut off
        return [Sample(line.partition("{")[0].partition(" ")[0], {}, math.nan)]


def total(scraped: "Iterable[Sample]", name: str) -> int | None:
    """Return a Prometheus counter summed over its labels; None where it does not occur, or is not a count."""
    values = [float(sample.value) for sample in scraped if sample.name == name]
    summed = math.fsum(values) if all(math.isfinite(value) for value in values) else math.inf
    return count(float(math.floor(summed))) if values and abs(summed) < WHOLE else None


def by_position(scraped: "Iterable[Sample]", name: str) -> tuple[int, ...]:
    """Return a Prometheus counter by its label `position`, from 0 on; empty where one is missing or not a count."""
    summed: dict[int, float] = {}
    for sample in scraped:
        if sample.name == name:
            try:
                position = integer(sample.labels.get("position", ""))
            except ParseError:
                return ()
            summed[position] = summed.get(position, 0) + float(sample.value)
    positions = range(len(summed))
    return counts([summed[position] for position in positions]) if summed.keys() == set(positions) else ()


def spec_decode(text: str | None, prefix: str) -> Counters | None:
    """Return the counters that vLLM and llama-server have in common; None where there are none."""
    if text is None:
        return None
    scraped = samples(text, "spec_decode_num_")
    drafted = total(scraped, f"{prefix}spec_decode_num_draft_tokens_total")
    if drafted is None:
        return None
    return Counters(
        drafted=drafted,
        accepted=total(scraped, f"{prefix}spec_decode_num_accepted_tokens_total"),
        rounds=total(scraped, f"{prefix}spec_decode_num_drafts_total"),
        accepted_by_position=by_position(scraped, f"{prefix}spec_decode_num_accepted_tokens_per_pos_total"),
    )
