"""The metrics of a workload, one row each; how each is read from answers: `analysis/metrics/readers.py`."""

from typing import Any

from gatekeeper.core.metrics.metric import Metric, PassRate, Per, Sight
from gatekeeper.core.units import percent

_TIMES = Sight.ARRIVALS
_SPEED = Sight.ARRIVALS | Sight.TOKEN_COUNT
_WHOLE = Sight.TOKEN_COUNT | Sight.PLAIN
"""What speeds of whole answers need, which a server that does not stream shows as well."""
_PAIRED_TEXT = Sight.TEXT | Sight.PLAIN

_SLOWER = "try another draft length or a lighter draft; where none helps, let the workload decode plainly"
_SLOW = "try a smaller target or another draft, or allow less; an idle machine is faster"
_LATE = "try a shorter prompt, a warm-up request, a smaller target or a lighter draft; or allow more"
_LATER = "try a lighter draft, a shorter prompt or a warm-up request; or allow more"
_TAIL = "try a shorter draft length: long rounds that are rejected are the long gaps"
_GUESSES = (
    "try a draft of the same model family that was trained on this target's weights (one trained on the unquantised "
    "target guesses a quantised one worse), or a shorter draft length"
)
_WRONG = (
    "compare the answers in the records, and report it to the developers of the server: a draft may not change words"
)
_UNCACHED = "deploy with the prompt cache off, or decode plainly"
_FAILS = "read the faults in the records and the server's log, and mend the cause"


def _speed_ratio(name: str, needs: Sight, description: str, formula: str, **more: Any) -> Metric:
    return Metric(
        name=name,
        unit="1",
        higher_is_better=True,
        per=Per.PAIR,
        needs=needs,
        description=description,
        formula=formula,
        remedy=_SLOWER,
        minimum=0.0,
        speed_ratio=True,
        **more,
    )


def _median(name: str, unit: str, needs: Sight, description: str, *, higher: bool = True, **more: Any) -> Metric:
    return Metric(
        name=name,
        unit=unit,
        higher_is_better=higher,
        per=Per.ANSWER,
        needs=needs,
        description=f"{description}; median over answers",
        base=name,
        quantile=0.5,
        minimum=0.0,
        **more,
    )


def _latency(
    base: str, quantile: float, needs: Sight, description: str, *, formula: str, remedy: str = _TAIL, **more: Any
) -> Metric:
    share = percent(quantile)
    return Metric(
        name=f"{base}_p{share.removesuffix(' %')}",
        unit="s",
        higher_is_better=False,
        per=Per.ANSWER,
        needs=needs,
        description=f"{share} quantile {description}",
        formula=f"{'median' if quantile == 0.5 else f'{share} quantile'} {formula}",
        remedy=remedy,
        base=base,
        quantile=quantile,
        minimum=0.0,
        **more,
    )


def _itl(quantile: float, **more: Any) -> Metric:
    description = "of the inter-token latency: m tokens after a gap g count m times g/m, the first burst not"
    formula = "of gap / tokens of the burst, weighted by tokens"
    return _latency("itl", quantile, _SPEED, description, formula=formula, **more)


def _share(name: str, per: Per, needs: Sight, description: str, *, higher: bool = True, **more: Any) -> Metric:
    return Metric(
        name=name,
        unit="1",
        higher_is_better=higher,
        per=per,
        needs=needs,
        description=description,
        counted=True,
        **({"minimum": 0.0, "maximum": 1.0} | more),
    )


def _pass_delta(name: str, rate: PassRate, description: str, formula: str, **more: Any) -> Metric:
    return _share(
        name,
        Per.PAIR,
        _PAIRED_TEXT,
        description,
        formula=formula,
        remedy=_WRONG,
        minimum=-1.0,
        pass_rate=rate,
        every_canary=True,
        watched=True,
        **more,
    )


# fmt: off
WORKLOAD_METRICS: tuple[Metric, ...] = (
    _speed_ratio(
        "throughput_ratio", _SPEED | Sight.PLAIN,
        "how many times as fast the same tokens are decoded",
        "sum over canaries of plain decode time / drafting decode time",
        aliases=("speed_up", "speedup"), watched=True,
    ),
    _speed_ratio(
        "answer_throughput_ratio", _WHOLE,
        "how many times as fast the same answers are given",
        "sum over canaries of plain time from request to end / that of drafting",
    ),
    _speed_ratio(
        "system_throughput_ratio", _WHOLE,
        "how many times as fast all streams together do the same work",
        "plain time / drafting time from request to end, with every stream busy",
    ),
    _median(
        "decode_throughput", "tok/s", _SPEED,
        "decode speed",
        formula="(tokens - those of the first arrival) / (last arrival - first arrival)",
        remedy=_SLOW, aliases=("speed", "throughput", "tokens_per_second", "tps"), watched=True,
    ),
    _median(
        "plain_decode_throughput", "tok/s", _SPEED | Sight.PLAIN,
        "decode speed of the plain arm: where it falls from run to run, the engine became slower, and a ratio rises",
        formula="of plain answers: (tokens - those of the first arrival) / (last arrival - first arrival)",
        remedy="compare the versions and the load of both runs: the engine decodes more slowly without a draft",
        of_plain=True,
    ),
    _median(
        "prefill_throughput", "tok/s", Sight.PROMPT_TIME | Sight.TOKEN_COUNT | Sight.COLD,
        "speed of reading the prompt",
        formula="prompt tokens / the server's time to read them",
        remedy="use shorter prompts, or allow less",
    ),
    _median(
        "ttft", "s", _TIMES | Sight.COLD,
        "time from the request to its first non-empty content",
        higher=False,
        formula="first arrival with content - sent",
        remedy=_LATE, aliases=("time_to_first_token",),
    ),
    Metric(
        name="ttft_delta", unit="1", higher_is_better=False, per=Per.PAIR, needs=_TIMES | Sight.PLAIN | Sight.COLD,
        description="relative change of the time to first token",
        formula="exp(mean over canaries of mean log(drafting TTFT / plain TTFT)) - 1",
        remedy=_LATER, relative=True,
    ),
    Metric(
        name="ttft_after_pause_delta", unit="1", higher_is_better=False, per=Per.PAIR,
        needs=_TIMES | Sight.PLAIN | Sight.COLD,
        description="relative change of the time to first token after ten idle seconds",
        formula="exp(mean over canaries of log(drafting TTFT / plain TTFT)) - 1",
        remedy="keep the models in memory while the server idles, send a request before the pause ends, or allow more",
        relative=True, measured_by="pauses",
    ),
    _median(
        "acceptance_rate", "1", Sight.ROUNDS,
        "share of drafted tokens that were kept",
        formula="accepted / drafted tokens",
        remedy=_GUESSES, aliases=("acceptance",), from_rounds=True, maximum=1.0, watched=True,
    ),
    _median(
        "acceptance_length", "tok", Sight.ROUNDS,
        "tokens per verify round, including the target's own",
        formula="1 + accepted tokens / rounds",
        remedy=_GUESSES, from_rounds=True,
    ),
    _share(
        "acceptance_window_min", Per.WINDOW, Sight.ROUNDS,
        "worst three consecutive windows, by the best of them",
        formula="min over i of max(window i, i+1, i+2) of accepted / drafted",
        remedy=_GUESSES, from_rounds=True, population=False,
    ),
    _itl(0.50, remedy=_SLOWER),
    _itl(0.95, aliases=("inter_token_latency", "itl", "latency", "p95")),
    _itl(0.99, aliases=("p99",)),
    _latency(
        "round_gap", 0.95, _TIMES,
        "of the gaps between bursts, as a reader sees them",
        formula="of the gaps between bursts",
    ),
    _latency(
        "stall", 0.95, _TIMES, "over answers of the longest gap", formula="over answers of the longest gap"
    ),
    _latency(
        "tpot", 0.95, _SPEED,
        "over answers of the time per output token",
        formula="over answers of (last - first arrival) / (tokens - 1)",
    ),
    _latency(
        "answer_latency", 0.95, Sight.COLD,
        "over answers of the whole time",
        formula="over answers of end - sent",
        remedy="try shorter answers or prompts, a smaller target or a lighter draft; or allow more",
        aliases=("e2el", "e2e_latency", "end_to_end_latency", "http_req_duration", "request_latency"),
    ),
    _pass_delta(
        "task_pass_delta", PassRate(None, "canary_pass_rate"),
        "change of the share of canaries passed",
        "pass rate of drafting - pass rate of plain decoding",
        aliases=("quality",),
    ),
    _pass_delta(
        "json_pass_delta", PassRate("json", "json_pass_rate"),
        "change of the share of canaries passed, of those with a JSON schema",
        "pass rate of drafting - pass rate of plain decoding, over canaries with a JSON schema",
    ),
    _pass_delta(
        "tool_call_pass_delta", PassRate("tool", "tool_call_pass_rate"),
        "change of the share of canaries passed, of those with expected tool calls",
        "pass rate of drafting - pass rate of plain decoding, over canaries with expected tool calls",
    ),
    _share(
        "token_agreement", Per.PAIR, _PAIRED_TEXT,
        "share of canaries whose greedy words are plain decoding's, or differ by numerics alone",
        formula="canaries with such answers / canaries",
        remedy=_WRONG, every_canary=True,
    ),
    _share(
        "replay_agreement", Per.ANSWER, Sight.REPLAY | Sight.ROUNDS | Sight.TOKEN_IDS,
        "share of greedy answers whose every token is the target's choice in the pass that verified it",
        formula="answers without another choice / answers read again",
        or_needs=Sight.VERIFIED,
        remedy="report it to the developers of the engine: its cache, its rollback or its verification is wrong",
        from_rounds=True, population=False,
    ),
    _share(
        "numerics_harm_p_value", Per.PAIR, _PAIRED_TEXT,
        "p-value that answers which repeat themselves or do not end are as frequent without the draft",
        formula="sign test of canaries degenerate in one arm alone",
        remedy="use another draft length, whose passes take another kernel, or other versions of the engine and its "
        "kernels; or decode plainly",
        population=False,
    ),
    Metric(
        name="nll_delta", unit="nats", higher_is_better=False, per=Per.PAIR, needs=Sight.REPLAY | Sight.PLAIN,
        description="change of the mean negative log-likelihood under the target, for perplexity",
        formula="mean over canaries of nats a token of drafting - of plain",
        remedy=_WRONG,
    ),
    Metric(
        name="energy_ratio", unit="1", higher_is_better=False, per=Per.PAIR, needs=_WHOLE,
        description="joules a token of drafting over plain decoding's, above rest",
        formula="sum over pairs of (power - rest) * seconds / tokens of drafting / of plain",
        remedy="use a lighter draft or a shorter draft length; where the time does not count, decode plainly",
        aliases=("energy", "joules"), samples=("package_power", "system_power"), minimum=0.0,
    ),
    _share(
        "plain_repeat_agreement", Per.ANSWER, Sight.TEXT,
        "share of canaries that plain decoding always answers alike, greedily",
        formula="canaries with equal plain answers / canaries",
        remedy="send one request at a time, switch the prompt cache off, or use another version of the server; "
        "until plain decoding repeats itself, no draft can be compared with it word by word",
        measured_by="plain_repeats",
    ),
    _speed_ratio(
        "warm_cache_turn_ratio", _WHOLE,
        "answer_throughput_ratio of turns of conversations with the prompt cache on",
        "sum over turns on a warm cache of plain time from request to end / that of drafting",
        measured_by="warm_cache",
    ),
    Metric(
        name="warm_cache_ttft_delta", unit="1", higher_is_better=False, per=Per.PAIR, needs=_TIMES | Sight.PLAIN,
        description="ttft_delta of turns of conversations with the prompt cache on",
        formula="exp(mean over conversations of mean log(drafting TTFT / plain TTFT)) - 1",
        remedy=_LATER, relative=True, measured_by="warm_cache",
    ),
    _share(
        "warm_cache_error_rate", Per.ANSWER, Sight.NOTHING,
        "share of turns with the prompt cache on that failed, in either arm",
        higher=False,
        formula="failed turns / turns",
        remedy=_FAILS, measured_by="warm_cache", population=False,
    ),
    _share(
        "warm_cache_agreement", Per.PAIR, _PAIRED_TEXT,
        "share of conversations whose greedy words are those of plain decoding without a cache",
        formula="conversations with equal answers / conversations",
        remedy=_UNCACHED, measured_by="warm_cache",
    ),
    _share(
        "sampled_tokens_p_value", Per.ANSWER, Sight.REPLAY | Sight.ROUNDS | Sight.TOKEN_IDS,
        "p-value that sampled tokens are drawn from the target's distribution; valid at any time",
        formula="1 / mean over alternatives of the likelihood ratio to the target",
        remedy=_WRONG, from_rounds=True, population=False,
    ),
    _share(
        "sampled_answers_p_value", Per.PAIR, _PAIRED_TEXT,
        "p-value that both arms sample their texts alike",
        formula="permutation test of a spectrum kernel, within canaries",
        remedy=_WRONG, population=False,
    ),
    _share(
        "error_rate", Per.ANSWER, Sight.NOTHING,
        "share of answers that failed",
        higher=False,
        formula="failed answers / answers",
        remedy=_FAILS, aliases=("errors", "failures"), watched=True,
    ),
    _share(
        "speculation_engaged", Per.ANSWER, Sight.NOTHING,
        "share of speculative answers in which the draft proposed tokens",
        formula="answers with proposals / answers",
        remedy="check the server's log: it ignores the draft, or this setting drafts nothing for some answers",
        from_rounds=True,
    ),
    _share(
        "truncation_rate", Per.PAIR, Sight.NOTHING,
        "share of canaries cut short that plain decoding completes",
        higher=False,
        formula="such canaries / canaries",
        remedy=_FAILS,
    ),
)
# fmt: on
