"""The openai dialect: any server with the OpenAI chat API; the SLO defines how it is started and takes its knobs."""

from functools import partial

from gatekeeper.backends.counters import read_any
from gatekeeper.backends.dialect import STREAMED, Dialect, request_scores
from gatekeeper.backends.dialects import llama_server, rapid_mlx, sglang, vllm
from gatekeeper.backends.http.scores import by_final_message
from gatekeeper.backends.lossy_options import ACCEPTS, INVENTS, LossyOption
from gatekeeper.core.canary import OPTIONS
from gatekeeper.core.metrics.metric import Sight

LOSSY = (
    LossyOption("*-acceptance-length", INVENTS),
    LossyOption("*synthetic-accept*", INVENTS),
    LossyOption("*typical-accept*", ACCEPTS, lossless=("false",)),
    LossyOption("*relaxed-accept*", ACCEPTS, lossless=("false",)),
    LossyOption("*mtp*optimistic*", ACCEPTS, lossless=("false",)),
)
"""What the options of servers without a dialect are called, such as ATOM, TokenSpeed and TensorRT-LLM."""

AS_SERVED = "as-served"
"""The draft of a server that is taken as it is, drafting or not: no request says which."""

DIALECT = Dialect(
    name="openai",
    install="set command and plain_command in [subject], or url and plain_url of running servers",
    draft_hint="look in the server's log for why the draft is not used",
    aliases=llama_server.ALIASES,
    model_options=llama_server.MODEL_OPTIONS,
    harmless=llama_server.HARMLESS,
    health="/v1/models",
    own_drafts=frozenset({AS_SERVED}),
    loading=503,
    any_server=True,
    options=frozenset(OPTIONS),
    read=read_any,
    sight=STREAMED | Sight.CLAIMED_ROUNDS,
    # Of use only where the first short answers show them.
    scored=request_scores,
    continued=partial(by_final_message, request_scores),
    model_name="listed",
    lossy=(*vllm.LOSSY, *sglang.LOSSY, *rapid_mlx.LOSSY, *llama_server.LOSSY, *LOSSY),  # it may be any of them
)
