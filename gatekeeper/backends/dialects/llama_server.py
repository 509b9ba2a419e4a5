"""The llama-server dialect: llama.cpp's server, restarted for each setting, its flags found in its own --help.

Its reports about drafting are claims. `timings` of an answer hold drafted and accepted tokens, and the number of tokens
up to each chunk; the counters of `/metrics` hold the same, and the verify passes.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gatekeeper.backends import dialect
from gatekeeper.backends.counters import claiming, count, seconds, spec_decode, with_all_rounds, within
from gatekeeper.backends.dialect import (
    COMMON_OPTIONS,
    STREAMED,
    Counters,
    Dialect,
    Get,
    ServerRequest,
    Slots,
    Start,
    StatedWindow,
    option,
    request_scores,
    thinking,
)
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.http.chat_request import request_fields
from gatekeeper.backends.http.scores import LIKELIEST, Ask, Beginning, scored_from
from gatekeeper.backends.lossy_options import INVENTS, LossyOption
from gatekeeper.backends.models import gguf
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.records import Answer, Scored, token_number

SIMPLE, MTP = "draft-simple", "draft-mtp"
NGRAM = frozenset({"ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"})

_KNOBS = {
    "num_draft_tokens": ("--spec-draft-n-max", "--draft-max", "--draft"),
    "draft_n_min": ("--spec-draft-n-min", "--draft-min"),
    "draft_p_min": ("--spec-draft-p-min", "--draft-p-min"),
}
"""The flags of each knob, the newest first: some builds still list an old flag that they have removed."""

_NGRAM_KNOBS = {
    "ngram-simple": {"num_draft_tokens": ("--spec-ngram-simple-size-m",)},
    "ngram-map-k": {"num_draft_tokens": ("--spec-ngram-map-k-size-m",)},
    "ngram-map-k4v": {"num_draft_tokens": ("--spec-ngram-map-k4v-size-m",)},
    "ngram-mod": {"num_draft_tokens": ("--spec-ngram-mod-n-max",), "draft_n_min": ("--spec-ngram-mod-n-min",)},
    "ngram-cache": {},
}
"""N-gram look-ups have their own flags for the lengths, and none for a probability."""

_DRAFTING = ("--spec-", "--draft", "--model-draft", "-md", "--hf-repo-draft", "-hfd", "-hfrd")
"""Prefixes of the options that turn on drafting: in `subject.args` they would do so for the plain arm too."""

_ROUNDED = re.compile(r"(?m)^llamacpp:spec_decode_num_\w+ \S*e\+")
"""`/metrics` prints six digits: a counter of a million or more is rounded, and differences are meaningless."""

_TEMPLATED = ("messages", "tools", "chat_template_kwargs")
"""Fields of a request that its template reads."""

_HELP_ENTRY = re.compile(r"^-[^\s,]+(?:,\s+-[^\s,]+)*", re.MULTILINE)


def flags_of(help_text: str) -> frozenset[str]:
    """Return the flags in a --help, without those it lists as removed."""
    entries = list(_HELP_ENTRY.finditer(help_text))
    begins = [*(entry.start() for entry in entries), len(help_text)]
    flags: set[str] = set()
    for entry, end in zip(entries, begins[1:], strict=True):
        if "has been removed" not in " ".join(help_text[entry.end() : end].split()):
            flags |= {*re.split(r",\s+", entry.group())}
    return frozenset(flags)


def spec_types(help_text: str) -> tuple[str, ...]:
    """Return the values that a --help lists for --spec-type; empty for builds older than that flag."""
    listed = re.search(r"^--spec-type\s+\[?([a-z0-9,|-]+)", help_text, re.MULTILINE)
    return tuple(re.split(r"[,|]", listed.group(1))) if listed else ()


def argv(start: Start) -> Iterator[str]:
    """Yield the command line of a setting's server; `-md` alone would silently draft nothing."""
    _check_plain_stays_plain(start)
    if not start.target.endswith(gguf.SUFFIX):
        message = f"target '{start.subject.target}' is not a .gguf file"
        raise InputError(message, hint="llama-server loads GGUF files only: name one, or convert the model")
    help_text = start.help()
    listed = flags_of(help_text)
    if "--model" not in listed:
        command = " ".join((*start.program, "--help"))
        raise InputError(f"`{command}` does not list --model", hint="run it by hand: is it llama-server?")
    yield from (*start.program, "--model", start.target, *start.address)
    # Tools need the template engine, which is off in older builds; nothing may be downloaded.
    yield from (flag for flag in ("--metrics", "--jinja", "--offline") if flag in listed)
    if not start.cache and "--cache-ram" in listed:
        yield from ("--cache-ram", "0")
    yield from _reading(start)
    if start.draft is None:
        yield from ("--spec-type", "none") if "--spec-type" in listed else ()
        return
    method = drafting_method(start)
    if "--spec-type" in listed:
        _check_type(method, spec_types(help_text))
        yield from ("--spec-type", method)
    elif method != SIMPLE:
        message = f"this {start.program[0]} has no --spec-type, so it cannot draft with {method}"
        raise InputError(message, hint="install a newer llama.cpp, or draft with a smaller model")
    if start.draft.endswith(gguf.SUFFIX):
        yield from ("--model-draft", start.draft)
    yield from _lengths(start, method, listed)


def _lengths(start: Start, method: str, listed: frozenset[str]) -> Iterator[str]:
    for knob, flags in _KNOBS.items():
        yield from option(_flag(knob, flags, method, listed), start.knob(knob)) if start.knob(knob) is not None else ()


def _reading(start: Start) -> Iterator[str]:
    """Yield how prompts are read and cached; a quantised cache of values needs flash attention."""
    if (chunk := start.subject.prefill_chunk) is not None:
        yield from ("--batch-size", str(chunk), "--ubatch-size", str(chunk))
    if (bits := start.subject.kv_bits) is not None:
        yield from ("--cache-type-k", f"q{bits}_0", "--cache-type-v", f"q{bits}_0", "--flash-attn", "on")


def drafting_method(start: Start) -> str:
    """Return the --spec-type of a draft: its own name, the SLO's `draft_method`, or the one its file was made for.

    `draft_method` may list several: `ngram-mod,draft-mtp` looks up, and asks the heads
    where that finds nothing.
    """
    draft = start.draft or ""
    method = start.subject.draft_method
    if not draft.endswith(gguf.SUFFIX):
        return method if method is not None and draft in method.split(",") else draft
    return method or _method_of(gguf.read_header(Path(draft), draft))


def _method_of(header: gguf.Header) -> str:
    """Return the method a draft was made for, as llama.cpp derives it from the tensors."""
    if header.architecture == "eagle3":
        return "draft-eagle3"
    if header.architecture == "dflash":
        return "draft-dspark" if "markov_w1.weight" in header.tensors else "draft-dflash"
    return MTP if any(name.endswith(".nextn.eh_proj.weight") for name in header.tensors) else SIMPLE


def _flag(knob: str, flags: tuple[str, ...], method: str, listed: frozenset[str]) -> str:
    # Of several types the knobs are the model's; a look-up beside it keeps its own lengths.
    spellings = _NGRAM_KNOBS[method].get(knob, ()) if method in _NGRAM_KNOBS else flags
    if not spellings:
        raise InputError(f"{knob} has no effect with {method}", hint=f"remove {knob} from [sweep]")
    for flag in spellings:
        if flag in listed:
            return flag
    hint = f"install a newer llama.cpp, or remove {knob} from [sweep]; its --help lists none of {', '.join(spellings)}"
    raise InputError(f"this llama-server has no flag for {knob}", hint=hint)


def _check_type(method: str, types: tuple[str, ...]) -> None:
    if not types:
        return  # an older one lists none in its --help: the start of the server shows whether it knows the type
    for name in method.split(","):
        if name not in types:
            raise InputError(f"this llama-server cannot draft with '{name}'", hint=did_you_mean(name, types))


def _check_plain_stays_plain(start: Start) -> None:
    """Raise InputError for what would make both arms draft: options in `args`, and variables that set options."""
    for word in start.subject.args:
        if word.startswith(_DRAFTING):
            hint = "name the draft in subject.drafts, its method in subject.draft_method, and put its knobs in [sweep]"
            raise InputError(f"subject.args: {word} would also turn on drafting in the plain arm", hint=hint)
    for name in os.environ:
        if name.startswith(("LLAMA_ARG_SPEC_", "LLAMA_ARG_DRAFT_")):
            message = f"the variable {name} would also turn on drafting in the plain arm"
            raise InputError(message, hint=f"unset {name}: llama-server reads it as an option")


def body(request: ServerRequest) -> dict[str, Any]:
    """Return the request, without fields for drafting, which the server ignores."""
    fields = request_fields(
        request.resolved,
        chat_template_kwargs=thinking(request),
        cache_prompt=request.cache,
        # A chunk may hold several tokens; with this option it holds their number.
        timings_per_token=True,
    )
    if "repetition_penalty" in fields:  # a name that it ignores
        fields["repeat_penalty"] = fields.pop("repetition_penalty")
    return fields


def continue_answer(ask: Ask, beginning: Beginning, tokens: int) -> Scored | None:
    """Read the prompt and the numbers of the tokens after it as one prompt; return what follows."""
    templated = ask("/apply-template", {key: beginning.fields[key] for key in _TEMPLATED if key in beginning.fields})
    prompt = templated.get("prompt") if isinstance(templated, Mapping) else None
    names = beginning.answer.tokens
    numbers = [token_number(name) for name in names]
    if not isinstance(prompt, str) or None in numbers:
        return None
    mixed, most = [prompt, *numbers], {"n_predict": tokens, "max_tokens": tokens}
    answer = ask(
        "/completion", {"prompt": mixed, **most, "temperature": 0, "n_probs": LIKELIEST, "cache_prompt": False}
    )
    told = answer.get("completion_probabilities") if isinstance(answer, Mapping) else None
    return scored_from({"choices": [{"logprobs": {"content": told}}]})


def count_tokens(ask: Ask, text: str) -> int | None:
    """Return how many tokens a text has; what it spells of the template's own tokens is counted as text."""
    answer = ask("/tokenize", {"content": text})
    tokens = answer.get("tokens") if isinstance(answer, Mapping) else None
    return len(tokens) if isinstance(tokens, list) else None


def tokens_of(chunk: Mapping[str, Any]) -> int | None:
    """Return the tokens of the answer up to *chunk*."""
    return count(within(chunk, "timings").get("predicted_n"))


def read(answer: Answer, response: ChatResponse) -> Answer:
    """Add the claims in `timings` of the last chunk; draft_n is missing where nothing was drafted."""
    timings = within(response.last, "timings")
    if not timings:
        return answer
    return claiming(
        answer,
        drafted=count(timings.get("draft_n", 0)),
        accepted=count(timings.get("draft_n_accepted", 0)),
        cached_tokens=count(timings.get("cache_n")),
        prompt_tokens=count(timings.get("prompt_n")),
        prompt_seconds=seconds(timings.get("prompt_ms")),
        decode_seconds=seconds(timings.get("predicted_ms")),
        decode_tokens=count(timings.get("predicted_n")),
    )


def counters(get: Get) -> Counters | None:
    """Return the counters of /metrics; None where the server was started without them, or rounds them."""
    text = get("/metrics")
    return None if text is None or _ROUNDED.search(text) else spec_decode(text, "llamacpp:")


def slots(get: Get) -> Slots:
    """Return what /props and /slots tell of its slots."""
    props, listed = (_document(get(path)) for path in ("/props", "/slots"))
    total = props.get("total_slots") if isinstance(props, dict) else None
    drafting = (
        [slot.get("speculative") for slot in listed if isinstance(slot, dict)] if isinstance(listed, list) else []
    )
    return Slots(
        count=total if isinstance(total, int) else None,
        drafting=tuple(map(bool, drafting)) if all(isinstance(drafts, bool) for drafts in drafting) else (),
    )


def _document(text: str | None) -> Any:
    try:
        return json_value(text or "{}", from_server=True)
    except ParseError:
        return {}


_OTHER_NAMES = {
    "--model": ("-m",), "--model-draft": ("-md", "--spec-draft-model"), "--ctx-size": ("-c",),
    "--n-gpu-layers": ("-ngl", "--gpu-layers"), "--parallel": ("-np",), "--flash-attn": ("-fa",),
    "--batch-size": ("-b",), "--ubatch-size": ("-ub",), "--threads": ("-t",), "--cache-type-k": ("-ctk",),
    "--cache-type-v": ("-ctv",), "--cache-ram": ("-cram",), "--spec-draft-n-max": ("--draft", "--draft-max"),
    "--spec-draft-n-min": ("--draft-min",), "--spec-draft-p-min": ("--draft-p-min",),
}  # fmt: skip
ALIASES = {alias: name for name, aliases in _OTHER_NAMES.items() for alias in aliases}
MODEL_OPTIONS = frozenset({"--model", "--draft-model", "--model-draft"})


def maps_weights(args: Sequence[str]) -> bool:
    """Return whether the weights stay a file that is mapped and not locked, as by default.

    Since b10884 `--load-mode` says it, before `--mlock` and `--no-mmap`.
    """
    modes = [value for option, value in pairwise(args) if option in {"--load-mode", "-lm"}]
    return modes[-1] in {"auto", "mmap"} if modes else not {"--mlock", "--no-mmap"} & {*args}


HARMLESS = (*dialect.HARMLESS, "--slots*", "--props*", "--webui*", "--no-webui*", "--no-ui*", "--no-slots*")
LOSSY = (LossyOption("spec-synth-*", INVENTS), LossyOption("LLAMA_ARG_SPEC_SYNTH_*", INVENTS))

DIALECT = Dialect(
    name="llama-server",
    install="install llama.cpp (brew install llama.cpp), or name the program in subject.program",
    draft_hint="-md alone drafts nothing: pass --spec-type too, and look for a rejected draft in the log",
    program=("llama-server",),
    variables=("GGML_", "LLAMA_"),
    loads="GGUF",
    shipped="llama-server",
    provider="llama.cpp",
    argv=argv,
    maps_weights=maps_weights,
    body=body,
    count_tokens=count_tokens,
    read=read,
    counters=counters,
    corrected=with_all_rounds,
    tokens_of=tokens_of,
    scored=request_scores,  # of tokens that a verify pass emitted it tells only their numbers
    continued=continue_answer,
    sight=STREAMED | Sight.CLAIMED_ROUNDS | Sight.COLD | Sight.PROMPT_TIME | Sight.LOGPROBS,
    knobs=frozenset({*_KNOBS, "thinking"}),
    restart_knobs=("draft", *_KNOBS),
    caches_by_request=True,
    own_drafts=NGRAM | {MTP},
    loading=503,
    window=StatedWindow("/props", None, ("default_generation_settings", "n_ctx"), "--ctx-size, which its slots share"),
    slots=slots,
    aliases=ALIASES,
    model_options=MODEL_OPTIONS,
    options=COMMON_OPTIONS | {"grammar", "json_schema"},
    harmless=HARMLESS,
    version_path="/props",
    version_key="build_info",
    lossy=LOSSY,
)
