"""The mlx-vlm dialect: mlx_vlm.server, with dflash, eagle3 and mtp drafts that are set at its start.

Plain decoding was run on Linux with mlx-vlm 0.7.10; its drafts were read in its source. With a draft of another kind it
starts, and every answer is an error. Its counters are differences of global ones, exact while requests run one at a
time; `draft_n_accepted` may exceed the emitted tokens, which is a finding.
"""

from collections.abc import Iterator
from functools import partial

from gatekeeper.backends.counters import claiming, count, seconds, within
from gatekeeper.backends.dialect import STREAMED, Dialect, Start, option, request_scores
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.http.scores import LIKELIEST, by_template
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer

_LIKELIEST = "--top-logprobs-k"
"""How many likely tokens it may tell of a place, none by default; of drafted tokens it tells none."""


def argv(start: Start) -> Iterator[str]:
    """Yield the command line."""
    yield from (*start.program, "--model", start.target, *start.address)
    if start.draft is not None:
        yield from ("--draft-model", start.draft)
        yield from option("--draft-kind", start.subject.draft_method)
        yield from option("--draft-block-size", start.knob("block_size"))
    if _LIKELIEST in start.help():
        yield from (_LIKELIEST, str(LIKELIEST))


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the claims in the timings of the usage chunk."""
    timings = within(response.last, "timings")
    # A draft_kind of null means that nothing was drafted; without the key it is unknown.
    nothing = 0 if "draft_kind" in timings and timings["draft_kind"] is None else None
    return claiming(
        answer,
        drafted=nothing if nothing is not None else count(timings.get("draft_n")),
        accepted=nothing if nothing is not None else count(timings.get("draft_n_accepted")),
        rounds=count(timings.get("draft_rounds")),
        prompt_seconds=seconds(timings.get("prompt_ms")),
        decode_seconds=seconds(timings.get("predicted_ms")),
        decode_tokens=count(timings.get("predicted_n")),
    )


DIALECT = Dialect(
    name="mlx-vlm",
    install="pip install mlx-vlm (in an environment of its own; name it in subject.program)",
    draft_hint='name the kind of draft: draft_method = "dflash", "eagle3" or "mtp" in [subject]',
    program=("mlx_vlm.server",),
    packages=("mlx-vlm", "mlx"),
    argv=argv,
    read=read,
    scored=request_scores,
    continued=partial(by_template, request_scores),
    model_name="path",
    knobs=frozenset({"block_size", "thinking"}),
    restart_knobs=("draft", "block_size"),
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD | Sight.PROMPT_TIME | Sight.LOGPROBS,
)
