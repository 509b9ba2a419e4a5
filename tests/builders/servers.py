"""Recorded protocols: servers with one dialect each, as their sources and documents say, quirks included.

All send the same answer. The prompt has 9 tokens, the answer is twelve words of one token each. With a draft, three
rounds propose four tokens each: 12 drafted, 9 accepted, so 9 + 3 = 12 emitted.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.builders.project_folder import ROOT, Done, ProjectFolder

WORDS = tuple(f"word{number} " for number in range(12))
ROUNDS = (WORDS[:4], WORDS[4:8], WORDS[8:])
DRAFTED, ACCEPTED, VERIFIED = 12, 9, 3
PROMPT, OUTPUT = 9, len(WORDS)
USAGE = {"prompt_tokens": PROMPT, "completion_tokens": OUTPUT, "total_tokens": PROMPT + OUTPUT}

REFUSAL = "the draft model cannot be loaded here"
"""What a server says that refuses a request."""

Request = Mapping[str, Any]
Pieces = Iterator[bytes]


class Protocol(NamedTuple):
    """How one server answers: the pieces for a request, and documents at other paths."""

    path: str
    pieces: Callable[[Request, bool], Pieces]
    """Gets the request and whether it is to be drafted."""
    drafts: Callable[[Request], bool | None] = lambda _: None
    """Returns whether a request drafts; None: that was set at the server's start."""
    documents: Mapping[str, Callable[[int], Any]] = {}
    """Returns the document at another path after a number of drafted answers."""
    refuses: Callable[[Request, bool], int | None] = lambda *_: None
    """Returns the HTTP status with which a request is refused; None: it is answered."""


class RecordedServer:
    """A real HTTP server with a recorded protocol."""

    def __init__(self, protocol: Protocol, *, drafting: bool, port: int = 0) -> None:
        self.requests: list[tuple[str, Mapping[str, str], dict[str, Any]]] = []
        self.drafted = 0
        recorded = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path in protocol.documents:
                    document = protocol.documents[self.path](recorded.drafted)
                elif self.path in {"/health", "/v1/models", "/api/version", "/version"}:
                    document = {"status": "ok", "version": "recorded-1", "data": [{"id": "big"}, {"id": "small"}]}
                else:
                    self.send_error(404)
                    return
                self._whole(document.encode() if isinstance(document, str) else json.dumps(document).encode())

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                recorded.requests.append((self.path, dict(self.headers), body))
                if self.path != protocol.path:
                    self.send_error(404)
                    return
                requested = protocol.drafts(body)
                speculates = drafting if requested is None else requested
                recorded.drafted += speculates
                if (status := protocol.refuses(body, speculates)) is not None:
                    self._whole(json.dumps({"error": REFUSAL}).encode(), status)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in protocol.pieces(body, speculates):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

            def _whole(self, content: bytes, status: int = 200) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


# Pieces that most of them share


def event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def delta(**fields: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "model": "big", "choices": [{"index": 0, "delta": fields}]}


def finish(**more: Any) -> dict[str, Any]:
    return {"model": "big", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **more}


def usage(**more: Any) -> dict[str, Any]:
    return {"model": "big", "choices": [], "usage": dict(USAGE), **more}


DONE = b"data: [DONE]\n\n"
ROLE = event(delta(role="assistant", content=None))


def one_by_one() -> Pieces:
    for word in WORDS:
        yield event(delta(content=word))


def by_round(*, drafting: bool) -> Pieces:
    """One write a verify round: several tokens in a chunk."""
    for words in ROUNDS if drafting else [(word,) for word in WORDS]:
        yield event(delta(content="".join(words)))


# The systems


def lmstudio(request: Request, drafting: bool) -> Pieces:
    assert ("draft_model" in request) == drafting
    yield from one_by_one()
    stats: dict[str, Any] = {"tokens_per_second": 50.0, "time_to_first_token": 0.1, "generation_time": 0.24}
    if drafting:
        stats |= {"draft_model": request["draft_model"], "total_draft_tokens_count": DRAFTED}
        stats |= {"accepted_draft_tokens_count": ACCEPTED, "rejected_draft_tokens_count": 3}
    yield event(finish(usage=dict(USAGE), stats=stats))
    yield DONE


def mlx_omni(_request: Request, _drafting: bool) -> Pieces:
    # The last token's text never comes, and the usage chunk repeats the choices.
    for word in WORDS[:-1]:
        yield event(delta(content=word))
    yield event(finish(usage=dict(USAGE)))
    yield DONE


def mtplx(request: Request, drafting: bool) -> Pieces:
    yield ROLE  # before anything was computed
    yield b": keep-alive\n\n"
    for words in ROUNDS if drafting else [(word,) for word in WORDS]:
        yield event(delta(content="".join(words)))
    depth = request.get("depth", 3)
    stats: dict[str, Any] = {"generation_mode": request["generation_mode"], "cached_tokens": 0, "ttft_s": 0.1}
    stats |= {"mtp_depth": min(depth, 4), "requested_mtp_depth": depth, "prompt_eval_time_s": 0.09}
    if drafting:
        stats |= {"verify_calls": VERIFIED, "drafted_tokens": DRAFTED, "accepted_drafts": ACCEPTED}
        stats |= {"drafted_by_depth": [3, 3, 3, 3], "accepted_by_depth": [3, 3, 2, 1]}
    else:
        stats |= {"verify_calls": 0, "drafted_tokens": 0, "accepted_drafts": 0}
    yield event(finish(usage=dict(USAGE), mtplx_stats=stats))
    yield DONE


def mtplx_settings(policy: str) -> dict[str, Any]:
    return {"ok": True, "depth": 3, "adaptive_policy_effective": policy, "adaptive_policy_reason": None}


def dflash(_request: Request, drafting: bool) -> Pieces:
    yield from by_round(drafting=drafting)
    yield event(finish())
    yield event(usage())
    yield DONE


def dflash_metrics(answers: int) -> Any:
    last = {"request_id": answers, "generated_tokens": OUTPUT, "acceptance_rate": ACCEPTED / OUTPUT}
    last |= {"cycles": VERIFIED, "tokens_per_cycle": 4.0, "cache_hit_tokens": 0, "prefill_s": 0.1, "decode_s": 0.2}
    return {"last_request": last if answers else None}


def mlx_vlm(_request: Request, drafting: bool) -> Pieces:
    # Seen: every delta spells its role and its nulls out, and the reason to finish comes with no text.
    nulls: dict[str, Any] = dict.fromkeys(("reasoning_content", "reasoning", "tool_calls", "tool_call_id", "name"))
    for word in WORDS:
        chunk = delta(role="assistant", content=word, **nulls)
        yield event({**chunk, "usage": None, "timings": {"predicted_per_second": 50.0}})
    drafts = dict.fromkeys(("draft_kind", "draft_rounds", "draft_n", "draft_n_accepted"))
    timings: dict[str, Any] = {"prompt_ms": 100.0, "cache_n": 0, "predicted_n": OUTPUT, "predicted_ms": 240.0, **drafts}
    if drafting:
        timings |= {"draft_kind": "dflash", "draft_rounds": VERIFIED, "draft_n": DRAFTED, "draft_n_accepted": ACCEPTED}
    yield event(finish(usage=None, timings={"predicted_per_second": 50.0}))
    yield event(usage(timings=timings) | {"usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": 0}}})
    yield DONE


def vllm_mlx(_request: Request, drafting: bool) -> Pieces:
    # Seen: nulls in every chunk, and the usage twice: with the last word, which has the reason to finish, and alone.
    nulls: dict[str, Any] = {"usage": None, "generation_metadata": None}
    yield event({**delta(role="assistant"), **nulls})
    for word in WORDS[:-1]:
        yield event({**delta(content=word), **nulls})
    last = delta(content=WORDS[-1])
    last["choices"][0]["finish_reason"] = "stop"
    yield event({**last, **nulls, "usage": dict(USAGE)})
    document = {"mtp_drafts": DRAFTED, "mtp_accepted": ACCEPTED} if drafting else None
    yield event(usage(generation_metadata=document))
    yield DONE


def rapid_mlx(_request: Request, drafting: bool) -> Pieces:
    # Seen: the last word, the reason to finish and the metrics in one chunk, the usage in another.
    yield event(delta(role="assistant"))
    yield b": keepalive\n\n"
    *early, last = ROUNDS if drafting else [(word,) for word in WORDS]
    for words in early:
        yield event(delta(content="".join(words)))
    document: dict[str, Any] = {"time_to_first_token_ms": 100.0, "mean_itl_ms": 20.0}
    if drafting:
        depths = {"accepted_by_depth": [3, 3, 2, 1], "drafted_by_depth": [3, 3, 3, 3]}
        document["speculative_decoding"] = {
            "verify_calls": VERIFIED,
            "correction_tokens": 1,
            "bonus_tokens": 2,
            **depths,
        }
    ending = delta(content="".join(last))
    ending["choices"][0]["finish_reason"] = "stop"
    yield event({**ending, "metrics": document})
    yield event(usage())
    yield DONE


def silent(_request: Request, _drafting: bool) -> Pieces:
    """Drafting is not reported: oMLX and the bare OpenAI protocol."""
    yield from one_by_one()
    yield event(finish())
    yield event(usage())
    yield DONE


def ollama(request: Request, _drafting: bool) -> Pieces:
    assert "max_tokens" not in request
    assert "stream_options" not in request
    for word in WORDS:
        message = {"role": "assistant", "content": word}
        yield json.dumps({"model": "big", "created_at": "now", "message": message, "done": False}).encode() + b"\n"
    last = {"model": "big", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    last |= {"total_duration": 400_000_000, "load_duration": 3_000_000, "prompt_eval_count": PROMPT}
    last |= {"prompt_eval_duration": 100_000_000, "eval_count": OUTPUT, "eval_duration": 240_000_000}
    yield json.dumps(last).encode() + b"\n"


def vllm(_request: Request, drafting: bool) -> Pieces:
    yield ROLE
    yield from by_round(drafting=drafting)
    yield event(finish())
    yield event(usage())
    yield DONE


def sglang(request: Request, drafting: bool) -> Pieces:
    # From its protocol.py: the details come in a chunk of their own, before the usage.
    assert request["return_spec_tokens_details"] is True
    yield ROLE
    yield from by_round(drafting=drafting)
    yield event(finish())
    counts = {"spec_num_proposed_drafts": DRAFTED, "spec_num_correct_drafts": ACCEPTED, "spec_verify_ct": VERIFIED}
    if drafting:
        yield event({"id": "1", "choices": [], "sglext": {"spec_tokens_details": counts}})
    yield event(usage())
    yield DONE


def vllm_metrics(answers: int) -> Any:
    def line(name: str, count: int, labels: str = "") -> str:
        return f'vllm:{name}{{engine="0",model_name="big"{labels}}} {float(count * answers)}\n'

    accepted = (3, 3, 2, 1)
    return (
        "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.\n"
        "# TYPE vllm:spec_decode_num_drafts_total counter\n"
        + line("spec_decode_num_drafts_total", VERIFIED)
        + line("spec_decode_num_draft_tokens_total", DRAFTED)
        + line("spec_decode_num_accepted_tokens_total", ACCEPTED)
        + "".join(
            line("spec_decode_num_accepted_tokens_per_pos_total", count, f',position="{position}"')
            for position, count in enumerate(accepted)
        )
    )


def ddtree(request: Request, drafting: bool) -> Pieces:
    assert request["stream"] is False
    message = {"role": "assistant", "content": "".join(WORDS)}
    completion = {
        "model": "big",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": USAGE,
    }
    stats = {"tree_budget": request.get("tree_budget"), "cycles": VERIFIED, "avg_acceptance": OUTPUT / VERIFIED}
    yield json.dumps(completion | ({"ddtree_stats": stats} if drafting else {})).encode()


def llama_server(drafting: bool) -> Protocol:
    """Return llama-server's protocol, as one that was started with a draft or without one speaks it."""

    def pieces(_request: Request, _drafting: bool) -> Pieces:
        for words in ROUNDS if drafting else [(word,) for word in WORDS]:
            yield event(delta(content="".join(words)))
        timings: dict[str, Any] = {"cache_n": 0, "prompt_n": PROMPT, "prompt_ms": 100.0, "predicted_ms": 240.0}
        timings["predicted_n"] = OUTPUT
        yield event(finish())
        yield event(usage(timings=timings | ({"draft_n": DRAFTED, "draft_n_accepted": ACCEPTED} if drafting else {})))
        yield DONE

    def metrics(answers: int) -> str:
        counts = {"num_drafts": VERIFIED, "num_draft_tokens": DRAFTED, "num_accepted_tokens": ACCEPTED}
        lines = [f"llamacpp:spec_decode_{name}_total {count * answers}" for name, count in counts.items()]
        return "\n".join([*lines, ""])

    slots = [{"id": number, "n_ctx": 4096, "speculative": drafting} for number in range(4)]
    props = {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4, "build_info": "b10000-recorded"}
    documents = {"/slots": lambda _: slots, "/props": lambda _: props, "/metrics": metrics}
    return Protocol(CHAT, pieces, documents=documents)


CHAT = "/v1/chat/completions"
PROTOCOLS = {
    "lmstudio": Protocol("/api/v0/chat/completions", lmstudio, lambda request: "draft_model" in request),
    "mlx-omni": Protocol(CHAT, mlx_omni),
    "mtplx": Protocol(
        CHAT,
        mtplx,
        lambda request: request["generation_mode"] == "mtp",
        {"/v1/mtplx/settings": lambda _: mtplx_settings("none")},
    ),
    "dflash-mlx": Protocol(CHAT, dflash, documents={"/metrics": dflash_metrics}),
    "mlx-vlm": Protocol(CHAT, mlx_vlm),
    "vllm-mlx": Protocol(CHAT, vllm_mlx),
    "rapid-mlx": Protocol(CHAT, rapid_mlx),
    "omlx": Protocol(CHAT, silent),
    "openai": Protocol(CHAT, silent),
    "ollama": Protocol("/api/chat", ollama, lambda request: request["options"].get("draft_num_predict") != 0),
    "sglang": Protocol(CHAT, sglang, documents={"/server_info": lambda _: {"version": "recorded-1"}}),
    "vllm": Protocol(CHAT, vllm, documents={"/metrics": vllm_metrics}),
    "ddtree": Protocol(CHAT, ddtree),
}


def certify_served(project: ProjectFolder, protocol: Protocol, *objectives: Mapping[str, Any], **changes: Any) -> Done:
    """Certify two servers of one protocol over sockets, one of which drafts; *changes* are of the SLO."""
    lines = [{"id": f"c-{at}", "messages": [{"role": "user", "content": f"Say {at}."}]} for at in range(10)]
    (project.path / "work.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with RecordedServer(protocol, drafting=True) as fast, RecordedServer(protocol, drafting=False) as plain:
        models = {name: str(ROOT / "models" / name) for name in ("little-target", "little-draft")}
        subject = {"backend": "openai", "target": models["little-target"], "drafts": [models["little-draft"]]}
        slo = {
            "schema": 1,
            "name": "served",
            "subject": {**subject, "url": fast.url, "plain_url": plain.url},
            "workload": [{"name": "work", "canaries": "work.jsonl"}],
            "sweep": {"repeats": 2},
            "soak": {"duration": "2 s", "baseline_drift": 0.9},
            "objective": list(objectives),
        }
        project.write_slo({**slo, **changes})
        return project.run("certify", "slo.toml", "--out", "run")
