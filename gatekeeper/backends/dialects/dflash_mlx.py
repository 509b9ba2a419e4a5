"""The dflash-mlx dialect: `dflash serve`, block diffusion drafts on top of mlx_lm's server.

Read in the source of dflash-mlx 0.1.8. Its acceptance is accepted over *emitted* tokens (definition B), told under
/metrics for the request before. A cycle proposes a block less the token it begins with. It was tried
on Linux: without a DFlash draft it does not start, not even to decode plainly, and none of them fits a model that a
plain Linux machine serves. No answer of it was ever seen.
"""

import json
from collections.abc import Iterator

from gatekeeper.backends.dialects.counters import by_output, claiming, count, within
from gatekeeper.backends.dialects.dialect import STREAMED, Dialect, Get, ServerRequest, Start, option
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer


def argv(start: Start) -> Iterator[str]:
    """Yield the command line; `adaptive`, its default, would change the block while it is measured."""
    yield from (*start.program, "--model", start.target, *start.address)
    yield from ("--verify-mode", "off" if start.draft is None else "dflash", "--fastpath-max-tokens", "0")
    # It loads a draft at every start; with `off` it lies idle, and still counts as memory.
    yield from option("--draft", start.draft or next(map(start.place, start.subject.drafts), None))
    if start.draft is not None:
        yield from option("--verify-len-cap", start.knob("block_size"))
        yield from option("--draft-window-size", start.knob("window"))
    if not start.cache:
        yield from ("--no-prefix-cache", "--prompt-cache-size", "0")


def after_answer(get: Get, request: ServerRequest, answer: Answer) -> Answer:
    """Add what /metrics tells of the answer just given, where it tells of that one."""
    try:
        last = within(json.loads(get("/metrics") or "{}"), "last_request")
    except ValueError:
        return answer
    if count(last.get("generated_tokens")) != answer.output_tokens:
        return answer
    rounds, block = count(last.get("cycles")), request.knobs.get("block_size")
    return claiming(
        answer,
        rounds=rounds,
        accepted=by_output(answer, last.get("acceptance_rate")),
        drafted=rounds * (block - 1) if rounds is not None and block is not None else None,
        cached_tokens=count(last.get("cache_hit_tokens")),
        prompt_seconds=last.get("prefill_s"),
        decode_seconds=last.get("decode_s"),
    )


DIALECT = Dialect(
    name="dflash-mlx",
    install="pip install dflash-mlx (in an environment of its own, with mlx-lm 0.31.3; name it in subject.program)",
    draft_hint="older builds decode plainly up to 256 tokens (--fastpath-max-tokens 0), or the verify mode is off",
    program=("dflash", "serve"),
    packages=("dflash-mlx", "mlx-lm", "mlx"),
    argv=argv,
    after_answer=after_answer,
    knobs=frozenset({"block_size", "window", "thinking"}),
    restart_knobs=("draft", "block_size", "window"),
    caches="start",
    streams=1,
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD,
)
