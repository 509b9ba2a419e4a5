"""The fields of a request by what they may change: its prompt, its tokens, its answers, its draft, or none of them."""

LIMITS = (
    "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_length", "num_predict",
    "n_predict", "min_tokens",
)  # fmt: skip
"""Fields that limit the tokens of an answer, or demand some, by server: the largest counts."""
ANSWERS = ("n", "best_of", "n_cmpl", "num_return_sequences")
"""Fields that ask for several answers at once, by server."""
PROMPTS = ("prompt", "input", "system")
NOT_PROMPT = frozenset({
    "logit_bias", "metadata", "model", "options", "prompt_cache_key", "request_id", "safety_identifier",
    "service_tier", "session_id", "stop", "stop_sequences", "stop_token_ids", "stream_options", "user",
})  # fmt: skip
"""Fields that no model reads as a part of its prompt; the text of any other field counts as one."""
READ_APART = NOT_PROMPT | {"messages", *PROMPTS}
DRAWN = frozenset({
    "add_generation_prompt", "cache_prompt", "dynatemp_exponent", "enable_thinking", "frequency_penalty",
    "ignore_eos", "include_reasoning", "include_stop_str_in_output", "keep_alive", "logprobs", "min_p",
    "parallel_tool_calls", "presence_penalty", "repeat_last_n", "repeat_penalty", "repetition_context_size",
    "repetition_penalty", "return_progress", "return_spec_tokens_details", "return_tokens", "seed",
    "separate_reasoning", "skip_special_tokens", "store", "stream", "stream_reasoning", "think",
    "timings_per_token", "top_k", "top_logprobs", "top_p", "typical_p",
})  # fmt: skip
"""Fields that say how a token is drawn or reported, and not how many there are."""
KNOWN = (
    NOT_PROMPT
    | DRAWN
    | {"messages", *PROMPTS, *LIMITS, *ANSWERS, "temperature", "dynatemp_range"}
    | {  # read as parts of the prompt
        "chat_template_kwargs", "documents", "format", "function_call", "functions", "grammar",
        "guided_grammar", "guided_json", "guided_regex", "input_extra", "input_prefix", "input_suffix",
        "instructions", "json_schema", "reasoning_effort", "response_format", "suffix", "tool_choice", "tools",
    }
)  # fmt: skip
"""Fields whose effect on the axes of a region is known: a request with another one is outside of every region."""
KNOWN_OF_OPTIONS = DRAWN | {*LIMITS, "temperature", "dynatemp_range", "stop"}
KNOWN_OF_MESSAGES = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "tool_name", "function_call", "refusal"}
    | {"reasoning_content", "reasoning", "thinking"}
)
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Any other one may be a part of the prompt as it is."""
TEXT_PART = frozenset({"type", "text", "cache_control"})
"""Fields of a part of a message that is text alone."""
TEXT_TYPES = (None, "text", "input_text", "output_text")
DRAFTING = frozenset(
    {"depth", "draft_model", "draft_num_predict", "generation_mode", "num_draft_tokens", "tree_budget"}
)
"""Fields that choose the draft, by server, and all that begin with `speculative`: the proxy chooses, not a client."""
