"""The proxy: an HTTP server that routes each request, passes it on, measures its answer and records it."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from aiohttp import ClientSession, web

from gatekeeper.core.clock import stamp
from gatekeeper.core.subject import Address
from gatekeeper.proxy import forward, live_request, proxy_page
from gatekeeper.proxy.answer_meter import AnswerMeter
from gatekeeper.proxy.forward import BrokenAnswerError, ServerFailedError, Target
from gatekeeper.proxy.headers import LOCAL, host_name
from gatekeeper.proxy.live_evidence import Observation
from gatekeeper.proxy.live_records import LiveRecords, answer_of
from gatekeeper.proxy.live_request import LiveRequest
from gatekeeper.proxy.long_requests import LongRequests
from gatekeeper.proxy.prometheus import Exposition
from gatekeeper.proxy.request_routes import RequestDecision, RequestRoutes

MOST_BODY = 64 << 20
"""Longest request that is read before it is routed, in bytes; a longer one gets status 413."""
CLIENT_LEFT = "client left"
REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})


class ProxyServer:
    """Answers every path: `/` and `/metrics` itself, all others through one of the servers."""

    def __init__(
        self,
        routes: RequestRoutes,
        records: LiveRecords,
        *,
        url: Address,
        plain_url: Address | None,
        hosts: Sequence[str] = (),
        say: Callable[[str], None] = print,
    ) -> None:
        """Route by *routes*; *hosts* are further names under which clients may address the proxy."""
        self.routes, self._records, self._url, self._plain_url = routes, records, url, plain_url
        self._hosts = LOCAL | {one.lower() for one in hosts}
        self._say, self._said = say, ""
        self._long = LongRequests()
        self.exposition = Exposition(routes)
        self._session: ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int, *, drain_s: float) -> int:
        """Listen; return the port. After `stop` requests have *drain_s* seconds to end."""
        self._session = forward.open_session()
        app = web.Application(client_max_size=MOST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=drain_s, auto_decompress=False
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Accept no more, let requests end, then close every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()
        self._long.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if host_name(request.host) not in self._hosts:
            return web.Response(status=403, text="this name is not one of the proxy's: add it with --host-name\n")
        if not request.raw_path.startswith("/") or request.method == "CONNECT":
            return web.Response(status=400, text="the request target must be a path\n")
        if request.method in {"GET", "HEAD"} and request.path == "/":
            headers = {"Cache-Control": "no-store", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}
            headers["Refresh"] = str(proxy_page.REFRESH_S)
            return web.Response(text=proxy_page.render(self.routes), content_type="text/html", headers=headers)
        if request.method in {"GET", "HEAD"} and request.path == "/metrics":
            body, kind = self.exposition.text()
            return web.Response(body=body, headers={"Content-Type": kind})
        if live_request.generates(request.method, request.path):
            return await self._generate(request)
        return await self._pass(request)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on that generates nothing; it is not recorded."""
        targets = [Target("speculative", self._url, {})]
        if self._plain_url is not None and request.method in REPEATABLE:
            targets.append(Target("plain", self._plain_url, {}))
        content = request.content.iter_any() if request.can_read_body else None
        meter = AnswerMeter(time.monotonic_ns())
        try:
            return (await self._first_that_answers(request, targets, content, meter, {}))[0]
        except ServerFailedError as error:
            return web.Response(status=502, text=f"{error}\n")
        except (BrokenAnswerError, ConnectionResetError):
            return web.Response(status=502)  # never sent: the connection is closed

    async def _first_that_answers(
        self,
        request: web.Request,
        targets: Sequence[Target],
        content: Any,
        meter: AnswerMeter,
        added: Mapping[str, str],
    ) -> tuple[web.StreamResponse, Target, str]:
        """Try one server after another while nothing was sent to the client; return also the last failure."""
        assert self._session is not None
        failed = ""
        for number, target in enumerate(targets):
            again = number + 1 < len(targets)
            body = await content(target) if callable(content) else content
            headers = {**added, "x-gatekeeper-route": target.name} if added else added
            try:
                answer = await forward.forward(request, self._session, target, body, meter, added=headers, again=again)
            except ServerFailedError as error:
                failed = str(error)
                if not again:
                    raise
            else:
                return answer, target, failed
        raise ServerFailedError("no server")

    async def _decide(self, request: web.Request, given: bytes) -> tuple[LiveRequest, RequestDecision]:
        """Read a request and decide its route; whatever fails in here decodes plainly."""
        because = "the proxy failed to decide"
        asked = LiveRequest(request.path)
        with self._at_most_said(because):
            keeps = self._records.keeps_prompts
            asked = await self._long.read(request.path, request.headers, given, keeps=keeps)
            return asked, self.routes.decide(asked)
        return asked, RequestDecision("unknown", "none", False, because)

    @contextmanager
    def _at_most_said(self, what: str) -> Iterator[None]:
        """Report an error of the proxy's own, once in a row, and go on: it must not cost an answer."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (as above)
            if (text := f"{what}: {type(error).__name__}: {error}") != self._said:
                self._say(text)
                self._said = text

    def _targets(self, decision: RequestDecision) -> list[Target]:
        plain = Target("plain", self._plain_url or self._url, {} if self._plain_url else decision.plain_fields)
        if decision.speculative:
            return [Target("speculative", self._url, decision.fields), plain]
        fallback = [Target("speculative", self._url, decision.fields)] if decision.may_speculate else []
        return [plain, *(fallback if self._plain_url else [])]

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        meter = AnswerMeter(time.monotonic_ns(), keeps=self._records.keeps_prompts)
        arrived = datetime.now(UTC)
        given = await request.read()
        self.routes.begin()
        asked = LiveRequest(request.path)
        decision, target, failed, fault = RequestDecision("unknown", "none", False, ""), "plain", "", None
        answer: web.StreamResponse | None = None
        try:
            asked, decision = await self._decide(request, given)
            added = {"x-gatekeeper-workload": decision.workload, "x-gatekeeper-rule": decision.rule}
            tried = self._targets(decision)
            target = tried[0].name
            answer, used, failed = await self._first_that_answers(
                request, tried, lambda one: self._long.merge(given, asked, one.fields), meter, added
            )
            target = used.name
            fault = f"status {answer.status}" if answer.status >= 500 else None
        except asyncio.CancelledError:
            fault = CLIENT_LEFT
            raise
        except ServerFailedError as error:
            fault = failed = str(error)
            return (answer := web.json_response({"error": {"message": fault, "type": "server_error"}}, status=502))
        except BrokenAnswerError as error:
            fault = f"the server broke off: {error}"
            return web.Response(status=502)  # never sent: the connection is closed
        except ConnectionResetError:
            fault = CLIENT_LEFT
            return web.Response(status=499)
        finally:
            self.routes.end()
            with self._at_most_said("a request could not be recorded"):
                self._record(request, asked, decision, target, meter, arrived, answer, fault, failed)
        return answer

    def _record(
        self,
        request: web.Request,
        asked: LiveRequest,
        decision: RequestDecision,
        target: str,
        meter: AnswerMeter,
        arrived: datetime,
        answer: web.StreamResponse | None,
        fault: str | None,
        failed: str,
    ) -> None:
        """Record a request that has ended, and count it as evidence where its arm was drawn."""
        now_ns = time.monotonic_ns()
        usage = meter.finish()
        seconds = (now_ns - meter.begun_ns) / 1e9
        ttft = None if meter.first_ns is None else (meter.first_ns - meter.begun_ns) / 1e9
        tokens, prompt_tokens = _count(usage.get("completion_tokens")), _count(usage.get("prompt_tokens"))
        speed = (tokens - 1) / meter.decode_s if tokens and tokens > 1 and meter.decode_s else None
        status = answer.status if answer is not None else meter.status
        because = f"{decision.because}; {failed}" if failed else decision.because
        known = {
            "id": secrets.token_hex(8),
            "time": stamp(arrived),
            "workload": decision.workload,
            "route": target,
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "ttft_s": ttft,
            "decode_tok_s": speed,
        }
        self._records.write(
            "request",
            **known,
            rule=decision.rule,
            because=because,
            arm=decision.arm,
            method=request.method,
            path=request.path,
            stream=meter.streamed,
            status=status,
            fault=fault,
            prompt_chars=asked.prompt_chars,
            answer_chars=meter.chars,
            duration_s=seconds,
            bytes=meter.size,
            digest=meter.digest,
        )
        self.exposition.ended(decision, target, status, fault, ttft, seconds, tokens)
        kept = meter.body() if self._records.keeps_prompts and meter.keeps and fault is None and status == 200 else b""
        if kept and asked.body is not None:
            replied = answer_of(kept, streamed=meter.streamed)
            self._records.keep({"schema": 1, "kind": "completion", **known, "request": asked.body, "response": replied})
        if decision.arm is not None and fault != CLIENT_LEFT and (status is None or not 400 <= status < 500):
            spoken = meter.chars_per_s if meter.streamed else meter.chars / seconds
            seen = Observation(
                decision.workload,
                decision.arm,
                decision.epoch,
                asked.prompt_chars,
                meter.chars,
                meter.streamed,
                spoken or None,
                ttft,
                bool(fault or failed),
            )
            self.routes.evidence.add(seen, now_ns)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
