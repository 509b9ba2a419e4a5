"""The vllm-mlx dialect: `vllm-mlx serve`, whose drafts are the target's own MTP heads.

Plain decoding was run on Linux with vllm-mlx 0.6.0; its drafts were read in its source. `generation_metadata` is null
where nothing was drafted and where nothing was counted. Without MTP heads in the target it starts with --enable-mtp and
decodes plainly. Rapid-MLX installs a program of the same name; the versions in the manifest identify it.
"""

from collections.abc import Iterator
from dataclasses import replace

from gatekeeper.backends.counters import claims_at, count, dropped_prompt, within
from gatekeeper.backends.dialect import STREAMED, Dialect, Start
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.lossy_options import ACCEPTS, DROPS, LossyOption
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer


def argv(start: Start) -> Iterator[str]:
    """Yield the command line."""
    yield from (*start.program, start.target, *start.address, "--stream-interval", "1")
    # Its other engine always caches the state of system prompts, in the plain arm only and unreported, and does not
    # count the drafts of a text model.
    yield "--continuous-batching"
    if start.draft is not None:
        yield "--enable-mtp"


_read_claims = claims_at("generation_metadata", drafted="mtp_drafts", accepted="mtp_accepted")


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the claims in its metadata; an answer to a part of the prompt is a fault."""
    metadata = within(response.last, "generation_metadata")
    if metadata.get("specprefill_engaged") is True:
        original, selected = (count(metadata.get(f"specprefill_{which}_tokens")) for which in ("original", "selected"))
        return replace(answer, fault=dropped_prompt("specprefill_engaged", original=original, remaining=selected))
    return _read_claims(answer, response)


LOSSY = (
    LossyOption("mtp-optimistic", ACCEPTS, lossless=("false",)),
    LossyOption("spec*prefill*", DROPS, lossless=("false",)),
)

DIALECT = Dialect(
    name="vllm-mlx",
    install="pip install vllm-mlx (in an environment of its own; name it in subject.program)",
    draft_hint="the target needs MTP heads: --enable-mtp has no effect without them",
    program=("vllm-mlx", "serve"),
    packages=("vllm-mlx", "rapid-mlx", "mlx-lm", "mlx"),
    argv=argv,
    read=read,
    model_name="listed",
    knobs=frozenset({"thinking"}),  # 0.6.0 drafts one token, whatever --mtp-num-draft-tokens says
    restart_knobs=("draft",),
    cache_off=("--disable-prefix-cache",),
    own_drafts=frozenset({"mtp"}),
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD,
    lossy=LOSSY,
    ignored=(LossyOption("mtp-num-draft-tokens", "has no effect: it drafts one token", lossless=("1",)),),
)
