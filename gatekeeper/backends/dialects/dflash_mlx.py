"""The dflash-mlx dialect: `dflash serve`, block diffusion drafts on top of mlx_lm's server.

Written from the source of dflash-mlx 0.1.8. Its acceptance is accepted over *emitted* tokens (definition B); /metrics
holds that of the last request. A cycle proposes a block without its first token. It reads a request's temperature, and
its engine decodes greedily all the same. Tried on Linux: it does not start
without a DFlash draft, not even for plain decoding, and no such draft fits a model that runs there. Its answers are
untested.
"""

from collections.abc import Iterator

from gatekeeper.backends.counters import by_output, claiming, count, number_of, within
from gatekeeper.backends.dialect import STREAMED, Dialect, Get, ServerRequest, Start, option
from gatekeeper.backends.dialects import ddtree
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.records import Answer


def argv(start: Start) -> Iterator[str]:
    """Yield the command line; `adaptive`, the default verify mode, changes the block size during the measurement."""
    yield from (*start.program, "--model", start.target, *start.address)
    yield from ("--verify-mode", "off" if start.draft is None else "dflash", "--fastpath-max-tokens", "0")
    # It loads a draft at every start; with `off` the draft is unused, but takes memory.
    yield from option("--draft", start.draft or next(map(start.place, start.subject.drafts), None))
    if start.draft is not None:
        yield from option("--verify-len-cap", start.length("block_size"))
        yield from option("--draft-window-size", start.knob("window"))


def after_answer(get: Get, request: ServerRequest, answer: Answer) -> Answer:
    """Add the claims in /metrics, where they are of this answer."""
    try:
        last = within(json_value(get("/metrics") or "{}", from_server=True), "last_request")
    except ParseError:
        return answer
    if count(last.get("generated_tokens")) != answer.generated_tokens:
        return answer
    rounds, block = count(last.get("cycles")), request.knobs.get("block_size")
    return claiming(
        answer,
        rounds=rounds,
        accepted=by_output(answer, last.get("acceptance_rate")),
        drafted=rounds * (block - 1) if rounds is not None and isinstance(block, int) else None,
        cached_tokens=count(last.get("cache_hit_tokens")),
        prompt_seconds=number_of(last.get("prefill_s")),
        decode_seconds=number_of(last.get("decode_s")),
    )


DIALECT = Dialect(
    name="dflash-mlx",
    install="pip install dflash-mlx (in an environment of its own, with mlx-lm 0.31.3; name it in subject.program)",
    draft_hint="pass --fastpath-max-tokens 0 (older builds decode plainly up to 256 tokens) and --verify-mode dflash",
    program=("dflash", "serve"),
    packages=("dflash-mlx", "mlx-lm", "mlx"),
    argv=argv,
    after_answer=after_answer,
    knobs=frozenset({"block_size", "window", "thinking"}),
    restart_knobs=("draft", "block_size", "window"),
    cache_off=("--no-prefix-cache", "--prompt-cache-size", "0"),
    variables=("DFLASH_",),
    model_options=frozenset({"--model", "--draft"}),
    shipped="dflash-mlx",
    streams=1,
    greedy_only=True,
    lossy=ddtree.LOSSY,  # of its --verify-mode ddtree
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD | Sight.PROMPT_TIME,
)
