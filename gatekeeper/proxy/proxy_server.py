"""The proxy: an HTTP server that routes each request, passes it on, measures its answer and records it."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from gatekeeper.core.clock import stamp
from gatekeeper.core.subject import Address
from gatekeeper.core.system.host_names import HostNames
from gatekeeper.core.system.own_limits import OwnLimitError
from gatekeeper.proxy import forward, live_request, proxy_page
from gatekeeper.proxy.answer_meter import AnswerMeter
from gatekeeper.proxy.client_limits import MOST_BODY, ClientServer, RefusedBodyError, RequestBodies, pieces
from gatekeeper.proxy.forward import BrokenAnswerError, ServerFailedError, Target
from gatekeeper.proxy.headers import is_from_foreign_page
from gatekeeper.proxy.live_evidence import Observation
from gatekeeper.proxy.live_records import LiveRecords, answer_of
from gatekeeper.proxy.live_request import LiveRequest
from gatekeeper.proxy.long_requests import LONG, LongRequests, UnreadableBodyError
from gatekeeper.proxy.prometheus import Exposition
from gatekeeper.proxy.request_routes import RequestDecision, RequestRoutes
from gatekeeper.proxy.upstream import Upstream, origin_of

CLIENT_LEFT = "client left"
STOPPED = "the proxy was stopping"
UNREADABLE = "the body is no JSON object that can be read, so that the proxy cannot choose how it is decoded"
OWN_LIMIT = "the proxy has no more connections or memory for this request"
NOT_ITS_FAULT = frozenset({CLIENT_LEFT, STOPPED, UNREADABLE, OWN_LIMIT})
"""Ends of an answer that say nothing of the server."""
MOST_TURNS = 100
UNDECIDED = RequestDecision("unknown", "none", False, "")
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
        self.routes, self._records, self._plain_url = routes, records, plain_url
        self._speculative = url, origin_of(url)
        self._plain = (plain_url, origin_of(plain_url)) if plain_url else self._speculative
        self._names = HostNames(hosts)
        self._say, self._said, self._is_stopping = say, "", False
        self._long, self._bodies = LongRequests(), RequestBodies()
        self.exposition = Exposition(routes)
        self._upstream = Upstream()
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str, port: int, *, drain_s: float) -> int:
        """Listen; return the port. After `stop` requests have *drain_s* seconds to end."""
        server = ClientServer(
            self._handle,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            tcp_keepalive=False,  # a client that is gone shows when it is written to
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=drain_s)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Accept no more, let requests end, then close every connection."""
        self._is_stopping = True
        if self._runner is not None:
            await self._runner.cleanup()
            for _ in range(MOST_TURNS):  # of the loop, in which cancelled requests end
                if not self.routes.in_flight:
                    break
                await asyncio.sleep(0)
            await asyncio.sleep(0)  # the last record
        self._upstream.close()
        self._long.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if (refused := self._refused(request)) is not None:
            return refused
        if "Expect" in request.headers:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # of the answer
        if request.method in {"GET", "HEAD"} and request.path == "/":
            headers = {"Cache-Control": "no-store", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}
            headers["Refresh"] = str(proxy_page.REFRESH_S)
            return web.Response(text=proxy_page.render(self.routes), content_type="text/html", headers=headers)
        if request.method in {"GET", "HEAD"} and request.path == "/metrics":
            body, kind = self.exposition.text()
            return web.Response(body=body, headers={"Content-Type": kind})
        generates = live_request.generates(request.method, request.raw_path)
        try:
            return await (self._generate(request) if generates else self._pass(request))
        except web.RequestPayloadError:
            return web.Response(status=400, text="the request's body cannot be read\n")

    def _refused(self, request: web.BaseRequest) -> web.Response | None:
        if (because := self._denied(request)) is not None:
            return web.Response(status=403, text=because)
        if request.headers.get("Transfer-Encoding", "chunked").lower() != "chunked":
            return web.Response(status=501, text="the only transfer coding that can be read is chunked\n")
        if not request.raw_path.startswith("/") or request.method == "CONNECT":
            return web.Response(status=400, text="the request target must be a path\n")
        if request.headers.get("Expect", "100-continue").lower() != "100-continue":
            return web.Response(status=417, text="the only expectation that can be met is 100-continue\n")
        if (request.content_length or 0) > MOST_BODY and live_request.generates(request.method, request.raw_path):
            return web.Response(status=413, text=f"a request has at most {MOST_BODY >> 20} MB\n")
        return None

    def _denied(self, request: web.BaseRequest) -> str | None:
        """Return why a request may not come from where it comes; None where it may."""
        if not self._names.has(request.host):
            return "this name is not one of the proxy's: add it with --host-name\n"
        # A link on another page may lead to the proxy's own.
        is_link = request.method == "GET" and request.path == "/" and "Origin" not in request.headers
        if is_from_foreign_page(request.headers, self._names) and not is_link:
            return "a page of another site: name its host with --host-name\n"
        return None

    async def _pass(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass a request on that generates nothing; it is not recorded."""
        targets = [Target("speculative", *self._speculative, {})]
        if self._plain_url is not None and request.method in REPEATABLE:
            targets.append(Target("plain", *self._plain, {}))
        content = pieces(request) if request.can_read_body else b""
        meter = AnswerMeter(time.monotonic_ns())
        try:
            return (await self._first_that_answers(request, targets, content, meter, {}))[0]
        except ServerFailedError as error:
            return web.Response(status=502, text=f"{error}\n")
        except OwnLimitError as error:
            return _error(503, error.message)
        except RefusedBodyError as error:
            return _error(error.status, str(error))
        except (BrokenAnswerError, ConnectionResetError):
            return web.Response(status=502)  # never sent: the connection is closed

    async def _first_that_answers(
        self,
        request: web.BaseRequest,
        targets: Sequence[Target],
        content: Any,
        meter: AnswerMeter,
        added: Mapping[str, str],
        asked: LiveRequest | None = None,
    ) -> tuple[web.StreamResponse, Target, str]:
        """Try one server after another while nothing was sent to the client; return also the last failure."""
        failed = ""
        for number, target in enumerate(targets):
            again = number + 1 < len(targets)
            body = content
            if asked is not None and (target.fields or asked.drafting or target.must_be_read):
                body = await self._long.merge(content, asked, target.fields)
            headers = {**added, "x-gatekeeper-route": target.name} if added else added
            try:
                answer = await forward.forward(request, self._upstream, target, body, meter, added=headers, again=again)
            except (ServerFailedError, OwnLimitError) as error:
                failed = str(error)
                if isinstance(error, OwnLimitError):
                    failed = OWN_LIMIT
                    self._report("no connection to a server", error)
                if not again:
                    raise
            else:
                return answer, target, failed
        raise ServerFailedError("no server")

    async def _decide(self, request: web.BaseRequest, given: bytes) -> tuple[LiveRequest, RequestDecision]:
        """Read a request and decide its route; whatever fails in here decodes plainly."""
        asked, because = None, "the proxy failed to decide"
        try:
            if self._records.keeps_prompts or len(given) < LONG:
                asked = live_request.read(request.path, request.headers, given)
            else:
                asked = await self._long.read(request.path, request.headers, given)
            self.routes.begin(asked.answers - 1)
            return asked, self.routes.decide(asked)
        except Exception as error:  # noqa: BLE001 (it must not cost an answer)
            self._report(because, error)
        return asked or LiveRequest(request.path), replace(
            UNDECIDED, because=because, plain_fields=self.routes.plain_fields
        )

    def _safely(self, record: Callable[[], None]) -> None:
        try:
            record()
        except Exception as error:  # noqa: BLE001 (it must not cost an answer)
            self._report("a request could not be recorded", error)

    def _report(self, what: str, error: Exception) -> None:
        """Report an error of the proxy's own, once in a row: it must not cost an answer."""
        if (text := f"{what}: {type(error).__name__}: {error}") != self._said:
            self._say(text)
            self._said = text

    def _targets(self, decision: RequestDecision) -> list[Target]:
        fields = {} if self._plain_url else decision.plain_fields
        plain = Target("plain", *self._plain, fields, must_be_read=self._plain_url is None)
        if decision.speculative:
            return [Target("speculative", *self._speculative, decision.fields), plain]
        fallback = [Target("speculative", *self._speculative, decision.fields)] if decision.may_speculate else []
        return [plain, *(fallback if self._plain_url else [])]

    async def _generate(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self.routes.ready.is_set() and self._plain_url is None:
            return _error(503, "the first check of the server is not over: nothing says yet how it decodes plainly")
        meter = AnswerMeter(time.monotonic_ns(), keeps=self._records.keeps_prompts)
        arrived = datetime.now(UTC)
        try:
            given = await self._bodies.read(request)
        except RefusedBodyError as error:
            return _error(error.status, str(error))
        try:
            return await self._route(request, given, meter, arrived)
        finally:
            self._bodies.release(given)

    async def _route(
        self, request: web.BaseRequest, given: bytes, meter: AnswerMeter, arrived: datetime
    ) -> web.StreamResponse:
        self.routes.begin()
        asked, decision = None, UNDECIDED
        target, failed, fault = "plain", "", None
        answer: web.StreamResponse | None = None
        sent: web.StreamResponse | None = None
        try:
            asked, decision = await self._decide(request, given)
            added = {"x-gatekeeper-workload": decision.workload, "x-gatekeeper-rule": decision.rule}
            tried = self._targets(decision)
            target = tried[0].name
            answer, used, failed = await self._first_that_answers(request, tried, given, meter, added, asked)
            target = used.name
            fault, sent = f"status {answer.status}" if answer.status >= 500 else None, answer
        except asyncio.CancelledError:
            fault = STOPPED if self._is_stopping else CLIENT_LEFT
            raise
        except ServerFailedError as error:
            fault = failed = str(error)
            sent = answer = _error(502, fault)
        except UnreadableBodyError:
            fault, target = UNREADABLE, "none"
            sent = answer = _error(400, fault)
        except OwnLimitError as error:
            fault, target = OWN_LIMIT, "none"
            sent = answer = _error(503, error.message)
        except BrokenAnswerError as error:
            fault = f"the server broke off: {error}"
        except ConnectionResetError:
            fault = CLIENT_LEFT
        finally:
            asked = asked or LiveRequest(request.path)
            self.routes.end(asked.answers)
            # Only then: the client has its answer, and first what has arrived of other streams is passed on.
            ended = partial(self._record, request, asked, decision, target, meter, arrived, answer, fault, failed)
            asyncio.get_running_loop().call_soon(self._safely, ended)
        # Of an answer that broke off nothing more is sent: the connection is closed.
        return web.Response(status=502) if sent is None else sent

    def _record(
        self,
        request: web.BaseRequest,
        asked: LiveRequest,
        decision: RequestDecision,
        target: str,
        meter: AnswerMeter,
        arrived: datetime,
        answer: web.StreamResponse | None,
        fault: str | None,
        failed: str,
    ) -> None:
        """Record a request that has ended, and count it as evidence where its arm was drawn.

        What fails for one of evidence, metrics and records leaves the other two alone.
        """
        now_ns = time.monotonic_ns()
        usage = meter.finish()
        seconds = (now_ns - meter.begun_ns) / 1e9
        ttft = None if meter.first_ns is None else (meter.first_ns - meter.begun_ns) / 1e9
        tokens, prompt_tokens = _count(usage.get("completion_tokens")), _count(usage.get("prompt_tokens"))
        status = answer.status if answer is not None else meter.status

        def judge() -> None:
            spoken = meter.chars_per_s if meter.streamed else meter.chars / seconds
            seen = Observation(
                decision.workload,
                decision.arm or "",
                decision.epoch,
                asked.prompt_chars,
                meter.chars,
                meter.streamed,
                spoken or None,
                ttft,
                bool(fault or failed),
            )
            self.routes.evidence.add(seen, now_ns)

        def write() -> None:
            known = {
                "id": secrets.token_hex(8),
                "time": stamp(arrived),
                "workload": decision.workload,
                "route": target,
                "prompt_tokens": prompt_tokens,
                "completion_tokens": tokens,
                "ttft_s": ttft,
                "decode_tok_s": (tokens - 1) / meter.decode_s if tokens and tokens > 1 and meter.decode_s else None,
            }
            self._records.write(
                "request",
                **known,
                rule=decision.rule,
                because=f"{decision.because}; {failed}" if failed else decision.because,
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
            whole = self._records.keeps_prompts and meter.keeps and fault is None and status == 200
            if whole and asked.body is not None and (body := meter.body()):
                # An uncertified workload keeps its name here: it may be the next to be certified.
                known["workload"] = asked.workload or decision.workload
                replied = answer_of(body, streamed=meter.streamed)
                self._records.keep(
                    {"schema": 1, "kind": "completion", **known, "request": asked.body, "response": replied}
                )

        judged = decision.arm is not None and fault not in NOT_ITS_FAULT and failed not in NOT_ITS_FAULT
        if judged and (status is None or not 400 <= status < 500):
            self._safely(judge)
        self._safely(partial(self.exposition.ended, decision, target, status, fault, ttft, seconds, tokens))
        self._safely(write)


def _error(status: int, reason: str) -> web.Response:
    """Return an error in the form of the OpenAI API."""
    headers = {"Retry-After": "5"} if status == 503 else {}
    error = {"message": reason, "type": "server_error" if status >= 500 else "invalid_request_error"}
    return web.json_response({"error": error}, status=status, headers=headers)


MOST_COUNT = 2**53
"""Of the tokens that a server says it counted: a float holds every whole number up to here."""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_COUNT else None


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """Make a request; its body is read within the limits of RequestBodies."""
    return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())
