"""A fake llama-server: it takes the flags of one build and has the protocol of the real one, quirks included.

    python fake_llama_server.py new|old [the flags of llama-server]

FAKE_LLAMA holds JSON that changes it: `counted` more drafted tokens in /metrics than in
`timings`, `metrics` already counted before the first answer, `pass_alone` passes without a draft in each answer,
`rejected` more drafted tokens rejected in each round, `pass_s` seconds that each pass takes, `window` words of a
prompt, above which a request is refused.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMON = ("--model", "--host", "--port", "--model-draft", "--ctx-size", "--parallel")
TYPES = "none,draft-simple,draft-eagle3,draft-mtp,draft-dflash,ngram-simple,ngram-mod"
VALUED = {
    "new": (
        *(*COMMON, "--cache-ram", "--spec-type", "--spec-draft-n-max", "--spec-draft-n-min", "--spec-draft-p-min"),
        *("--spec-ngram-simple-size-m", "--spec-ngram-mod-n-max", "--spec-ngram-mod-n-min", "--spec-synth-len"),
    ),
    "old": (*COMMON, "--draft-max", "--draft-min", "--draft-p-min"),
}
BARE = ("--metrics", "--jinja", "--offline")
REMOVED = {
    "new": {"--draft": "--spec-draft-n-max", "--draft-max": "--spec-draft-n-max", "--draft-min": "--spec-draft-n-min"},
    "old": {},
}
WORDS = [f"word{number} " for number in range(12)]
FAKE: dict[str, Any] = json.loads(os.environ.get("FAKE_LLAMA", "{}"))


def explain(build: str) -> str:
    """Return the text of --help: flags in a column, their meaning next to or below them."""
    lines = ["----- common params -----", "", "-h,    --help, --usage                  print usage and exit"]
    for flag in VALUED[build]:
        if flag == "--spec-type":
            lines += [f"--spec-type {TYPES}", f"{'':40}how to speculate (default: none)"]
        elif flag == "--model-draft":
            lines.append(f"{'-md,   --model-draft FNAME':40}draft model (default: unused)")
        elif flag == "--draft-max":
            lines.append(f"{'--draft-max, --draft, --draft-n N':40}number of tokens to draft (default: 16)")
        else:
            lines.append(f"{flag + ' N':40}a number")
    for flag in BARE:
        lines.append(f"{flag:40}a switch")
    for flag, instead in REMOVED[build].items():
        lines += [f"{flag + ' N':40}the argument has been", f"{'':40}removed. use {instead}"]
    return "\n".join(lines) + "\n"


def parse(build: str, words: list[str]) -> dict[str, str]:
    """Return the flags with their values; an unknown or removed one ends the program, as the real one does."""
    value_by_flag: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        flag = {"-md": "--model-draft", "-c": "--ctx-size", "-np": "--parallel"}.get(word, word)
        if flag in REMOVED[build]:
            raise SystemExit(f"error while handling argument {flag}: it has been removed, use {REMOVED[build][flag]}")
        if flag not in (*VALUED[build], *BARE):
            raise SystemExit(f"error: invalid argument: {flag}")
        value_by_flag[flag] = next(rest) if flag in VALUED[build] else ""
    return value_by_flag


class Loaded:
    """The server's state."""

    def __init__(self, build: str, flags: dict[str, str]) -> None:
        self.flags = flags
        # Without a type a new build loads the draft and does not use it.
        drafts = flags.get("--spec-type", "none") != "none" if build == "new" else "--model-draft" in flags
        length = flags.get("--spec-draft-n-max") or flags.get("--draft-max") or flags.get("--spec-ngram-simple-size-m")
        self.draft_tokens = int(length or 3) if drafts else 0
        self.drafted, self.accepted, self.drafts = FAKE.get("metrics", [0, 0, 0])
        self.by_position = [0] * self.draft_tokens

    def metrics(self) -> str:
        """Return the counters; %g is how the real one prints them: six digits."""
        lines = [
            f"llamacpp:spec_decode_num_draft_tokens_total {self.drafted:g}",
            f"llamacpp:spec_decode_num_accepted_tokens_total {self.accepted:g}",
            f"llamacpp:spec_decode_num_drafts_total {self.drafts:g}",
            *(
                f'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{position}"}} {count}'
                for position, count in enumerate(self.by_position)
                if self.drafts
            ),
        ]
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """Responds as llama-server does."""

    loaded: Loaded

    def do_GET(self) -> None:
        """Answer all requests but chats."""
        if self.path == "/health":
            self.respond(200, '{"status":"ok"}')
        elif self.path == "/props":
            self.respond(200, json.dumps({"default_generation_settings": {}, "build_info": "b9999-fake"}, indent=1))
        elif self.path == "/metrics" and "--metrics" in self.loaded.flags:
            self.respond(200, self.loaded.metrics())
        else:
            self.respond(501 if self.path == "/metrics" else 404, '{"error":{"message":"not here"}}')

    def do_POST(self) -> None:
        """Answer a chat, chunk by chunk."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if (words := prompt_words(request)) > FAKE.get("window", words):
            error = {"code": 400, "message": "the request exceeds the available context size"}
            self.respond(400, json.dumps({"error": {**error, "type": "exceed_context_size_error"}}))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for document in answer(self.loaded, request):
            self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")

    def respond(self, status: int, text: str) -> None:
        """Answer with a document."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def prompt_words(request: dict[str, Any]) -> int:
    """Count the words of the last message, which stand for tokens."""
    return len(request["messages"][-1]["content"].split())


def answer(loaded: Loaded, request: dict[str, Any]) -> Any:
    """Yield the chunks of an answer; of each round all drafted tokens but the last are accepted, or as FAKE_LLAMA says.

    Fields such as `speculative.n_max` have no effect, as in the real one.
    """
    words, k = WORDS[: request["max_tokens"]], loaded.draft_tokens
    drafted = accepted = rounds = 0
    passes = {0: (0, 0)}  # the first token comes with the prompt
    at = 1 + FAKE.get("pass_alone", 0)
    while k and at < len(words) - 1:
        width = min(k, len(words) - at - 1)
        accepted_here = max(0, width - 1 - FAKE.get("rejected", 0))
        passes[at] = (width, accepted_here)
        at += accepted_here + 1
    emitted, of_draft = 0, 0
    read = prompt_words(request)
    timings: dict[str, Any] = {}

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"finish_reason": finish, "index": 0, "delta": delta}
        return {"choices": [choice], "object": "chat.completion.chunk", "model": "target.gguf", **more}

    if request.get("return_progress"):
        yield chunk({"role": "assistant", "content": None}, prompt_progress={"total": 4, "processed": 4})
    yield chunk({"role": "assistant", "content": None})
    for number, word in enumerate(words):
        width, accepted_here = passes.get(number, (0, 0))
        if width:
            drafted, accepted, rounds = drafted + width, accepted + accepted_here, rounds + 1
            loaded.by_position = [
                count + (position < accepted_here) for position, count in enumerate(loaded.by_position)
            ]
        emitted += 1
        if of_draft == 0:
            time.sleep(FAKE.get("pass_s", 0.0))
        of_draft = accepted_here if width else max(0, of_draft - 1)
        timings = {"cache_n": 0, "prompt_n": read, "prompt_ms": 2.0, "predicted_n": emitted, "predicted_ms": 5.0}
        if drafted:  # left out where there is none
            timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
        more: dict[str, Any] = {"timings": timings} if request.get("timings_per_token") else {}
        # One word in four comes together with the one after it, as the halves of a character do.
        if number % 4 != 2:
            text = words[number - 1] + word if number % 4 == 3 else word
            yield chunk({"content": text}, **more)
    loaded.drafted += drafted + FAKE.get("counted", 0)
    loaded.accepted += accepted
    loaded.drafts += rounds
    ended = "stop" if len(words) == len(WORDS) else "length"
    if request.get("stream_options", {}).get("include_usage"):
        yield chunk({}, ended)
        usage = {"completion_tokens": emitted, "prompt_tokens": read, "prompt_tokens_details": {"cached_tokens": 0}}
        yield {"choices": [], "object": "chat.completion.chunk", "usage": usage, "timings": timings}
    else:
        yield chunk({}, ended, timings=timings)


def main() -> None:
    """Explain itself, or serve."""
    build, *words = sys.argv[1:]
    if "--help" in words:
        sys.stdout.write(explain(build))
    elif "--version" in words:
        sys.stderr.write("some_device_init: found 1 device\nversion: 9999 (fake)\nbuilt with care\n")
    else:
        flags = parse(build, words)
        Handler.loaded = Loaded(build, flags)
        ThreadingHTTPServer((flags["--host"], int(flags["--port"])), Handler).serve_forever()


if __name__ == "__main__":
    main()
