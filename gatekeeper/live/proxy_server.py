"""The proxy: an HTTP server that routes each request, passes it on, measures its answer and records it."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from gatekeeper.backends.dialect import Dialect
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.system.host_names import HostNames
from gatekeeper.core.system.own_limits import OwnLimitError
from gatekeeper.live import live_records, proxy_page
from gatekeeper.live.answer_meter import AnswerMeter
from gatekeeper.live.exposition import CONTENT_TYPE, Exposition
from gatekeeper.live.http import client_limits, forward
from gatekeeper.live.http.client_limits import RefusedBodyError
from gatekeeper.live.http.forward import (
    BrokenAnswerError,
    ServerFailedError,
    Target,
    answer_headers,
    is_from_foreign_page,
)
from gatekeeper.live.http.upstream import Upstream, origin_of
from gatekeeper.live.live_records import EndedRequest, LiveRecords
from gatekeeper.live.live_request import LiveRequest, generates, read_request, unread
from gatekeeper.live.long_requests import LONG, LongRequests, UnreadableBodyError
from gatekeeper.live.prompt_tokens import TokenCounter
from gatekeeper.live.proxy_page import LiveDay
from gatekeeper.live.request_routes import RequestDecision, RequestRoutes

MOST_TURNS = 100
RECORD_AFTER_S = 0.007
"""From an answer's end to its record: a client often sends its next request at once, which would wait meanwhile."""
RECORD_EACH_S = 0.001
"""Between two parts of it: only while the proxy sleeps, the system lets a client run that it has just woken."""
WAITING_A_PART = 16
"""Requests that wait to be recorded for each further part that is done at once."""
Targets = list[tuple[Target, Mapping[str, Any]]]
"""Servers in the order in which they are tried, and what is changed of a request's body for each."""
REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})


class NotPlainError(Exception):
    """A request is to be decoded plainly, and at its path no server is known to do so."""

    def __init__(self, dialect: Dialect | None) -> None:
        paths = " or ".join(dialect.steered_paths or (dialect.path,)) if dialect is not None else "no path"
        super().__init__(f"{live_records.NOT_PLAIN}: this server is told how to decode at {paths}")


class ProxyServer:
    """Answers every path: its page and `/metrics` itself, all others through one of the servers."""

    def __init__(
        self,
        routes: RequestRoutes,
        records: LiveRecords,
        *,
        url: Address,
        plain_url: Address | None,
        hosts: Sequence[str] = (),
        say: Callable[[str], None] = print,
        watch_text: Callable[[], str] = str,
    ) -> None:
        """Route by *routes*; *hosts* are further names under which clients may address the proxy.

        *watch_text* returns what `/metrics` says of its watch.
        """
        self.routes, self._records, self._plain_url = routes, records, plain_url
        self._speculative, plain = Target("speculative", url, origin_of(url)), plain_url or url
        self._plain = Target("plain", plain, origin_of(plain))
        self._names = HostNames(hosts)
        self._say, self._reported, self._is_stopping = say, "", False
        self._long, self._bodies, self._tokens = LongRequests(), client_limits.RequestBodies(), TokenCounter()
        self.exposition, self._day = Exposition(routes, watch_text), LiveDay(time.monotonic_ns())
        self._upstream = Upstream()
        self._ended: deque[tuple[EndedRequest, int]] = deque()
        self._recording: asyncio.Task[None] | None = None
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str, port: int, *, drain_s: float) -> int:
        """Listen; return the port. After `stop` requests have *drain_s* seconds to end."""
        server = client_limits.ClientServer(
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
            await self.wait_until_recorded()
        self._upstream.close()
        self._long.close()

    async def wait_until_recorded(self) -> None:
        """Wait until every request that has ended is recorded."""
        if self._recording is not None:
            await self._recording

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if (refused := self._refuse_request(request)) is not None:
            return refused
        if "Expect" in request.headers:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # of the answer
        if request.method in {"GET", "HEAD"} and request.path == "/":
            headers = {"Cache-Control": "no-store", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}
            headers["Refresh"] = str(proxy_page.REFRESH_S)
            text = proxy_page.render(self.routes, self._day, time.monotonic_ns())
            return web.Response(text=text, content_type="text/html", headers=headers)
        if request.method in {"GET", "HEAD"} and request.path == "/favicon.ico":
            return web.Response(status=204)  # a browser that shows the page asks for it
        if request.method in {"GET", "HEAD"} and request.path == "/metrics":
            return web.Response(body=self.exposition.text().encode(), headers={"Content-Type": CONTENT_TYPE})
        is_generating = generates(request.method, request.raw_path)
        try:
            return await (self._generate(request) if is_generating else self._pass(request))
        except web.RequestPayloadError:
            return web.Response(status=400, text="the request's body cannot be read\n")

    def _refuse_request(self, request: web.BaseRequest) -> web.Response | None:
        if (because := self._explain_denial(request)) is not None:
            return web.Response(status=403, text=because)
        if request.headers.get("Transfer-Encoding", "chunked").lower() != "chunked":
            return web.Response(status=501, text="the only transfer coding that can be read is chunked\n")
        if not request.raw_path.startswith("/") or request.method == "CONNECT":
            return web.Response(status=400, text="the request target must be a path\n")
        if request.headers.get("Expect", "100-continue").lower() != "100-continue":
            return web.Response(status=417, text="the only expectation that can be met is 100-continue\n")
        return self._refused_body(request) if generates(request.method, request.raw_path) else None

    def _refused_body(self, request: web.BaseRequest) -> web.Response | None:
        # A server may decode the bytes by these headers, and then read another request in them than the proxy does.
        codings = {coding.strip().lower() for coding in request.headers.getall("Content-Encoding", ())}
        if codings - {"identity"} or (request.charset or "utf-8").lower() not in {"utf-8", "utf8"}:
            return web.Response(status=415, text="a request must be sent as it is, neither compressed nor re-coded\n")
        if (request.content_length or 0) > client_limits.MOST_BODY:
            return web.Response(status=413, text=f"a request has at most {client_limits.MOST_BODY >> 20} MB\n")
        return None

    def _explain_denial(self, request: web.BaseRequest) -> str | None:
        """Return why a request may not come from where it comes; None where it may."""
        # HTTP/1.0 needs no `Host`, and no browser leaves it out; for `request.host` aiohttp would then ask the DNS.
        if not self._names.has(request.headers.get("Host", "localhost")):
            return "this name is not one of the proxy's: add it with --host-name\n"
        # A link on another page may lead to the proxy's own.
        is_link = request.method == "GET" and request.path == "/" and "Origin" not in request.headers
        if is_from_foreign_page(request.headers, self._names) and not is_link:
            return "a page of another site: name its host with --host-name\n"
        return None

    async def _pass(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass a request on that generates nothing; it is not recorded."""
        targets: Targets = [(self._speculative, {})]
        if self._plain_url is not None and request.method in REPEATABLE:
            targets.append((self._plain, {}))
        content = client_limits.pieces(request) if request.can_read_body else b""
        meter = AnswerMeter(time.monotonic_ns())
        try:
            return (await self._first_that_answers(request, targets, content, meter))[0]
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
        targets: Targets,
        content: Any,
        meter: AnswerMeter,
        ended: EndedRequest | None = None,
    ) -> tuple[web.StreamResponse, Target, str]:
        """Try one server after another while nothing was sent to the client; return also the last failure."""
        failed, dialect = "", None if ended is None else self.routes.dialect
        for number, (target, fields) in enumerate(targets):
            may_retry = number + 1 < len(targets)
            body = content
            headers: dict[str, str] = {}
            if ended is not None:
                # At every target: what the proxy cannot read may name a draft, which a plain server would load, too.
                hints = dialect.client_hint_fields if dialect is not None else {}
                body = await self._long.merge(content, ended.request, hints, fields)
                headers = answer_headers(ended.decision, target.name)
                meter.served = self.routes.load.begin(target.url, ended.request.answers)
            try:
                answer = await forward.forward(
                    request, self._upstream, target, body, meter, added=headers, dialect=dialect, may_retry=may_retry
                )
            except (ServerFailedError, OwnLimitError) as error:
                failed = str(error)
                if isinstance(error, OwnLimitError):
                    failed = live_records.OWN_LIMIT
                    self._report("no connection to a server", error)
                if not may_retry:
                    raise
            else:
                return answer, target, failed
            finally:
                if meter.served is not None:
                    meter.served.end()
        raise ServerFailedError("no server")

    async def _decide(self, request: web.BaseRequest, body: bytes) -> tuple[LiveRequest, RequestDecision]:
        """Read a request and decide its route; whatever fails in here decodes plainly."""
        path, because = _path_of(request), "the proxy failed to decide"
        live_request = unread(path)
        try:
            if self._records.keeps_prompts or len(body) < LONG:
                live_request = read_request(path, request.headers, body)
            else:
                live_request = await self._long.read(path, request.headers, body)
            dialect = self.routes.dialect
            if dialect is not None and self.routes.must_be_counted(live_request):
                url, target = self._speculative.url, self.routes.target
                live_request = await self._tokens.count(live_request, request.headers, dialect, url, target)
            if live_request.answers > 1:
                self.routes.begin(live_request.answers - 1)
            return live_request, self.routes.decide(live_request)
        except Exception as error:  # noqa: BLE001 (it must not cost an answer)
            self._report(because, error)
        return live_request, replace(live_records.UNDECIDED, because=because, plain_fields=self.routes.plain_fields)

    def _safely(self, record: Callable[[], None]) -> None:
        try:
            record()
        except Exception as error:  # noqa: BLE001 (it must not cost an answer)
            self._report("a request could not be recorded", error)

    def _report(self, trouble: str, error: Exception) -> None:
        """Report an error of the proxy's own, once in a row: it must not cost an answer."""
        if (text := f"{trouble}: {type(error).__name__}: {error}") != self._reported:
            self._say(text)
            self._reported = text

    def _targets(self, path: str, decision: RequestDecision) -> Targets:
        """Return where a request may go; raise NotPlainError where none of the servers would decode it plainly."""
        dialect = self.routes.dialect
        is_steered = dialect is not None and dialect.steers(path)
        # A plain server that needs a field to be plain, as Ollama's, drafts at a path where it does not read the field.
        is_plain_there = self._plain_url is not None and not decision.plain_fields
        plain = self._plain, decision.plain_fields
        if decision.speculative:
            return [(self._speculative, decision.fields), *([plain] if is_steered or is_plain_there else [])]
        if not (is_steered or is_plain_there):
            raise NotPlainError(dialect)
        may_fall_back = decision.may_speculate and self._plain_url is not None
        return [plain, (self._speculative, decision.fields)] if may_fall_back else [plain]

    async def _generate(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.routes.dialect is None:
            return _error(503, "the watch has not begun: nothing says yet how a server decodes plainly")
        meter = AnswerMeter(time.monotonic_ns(), keeps=self._records.keeps_prompts)
        arrived = datetime.now(UTC)
        try:
            body = await self._bodies.read(request)
        except RefusedBodyError as error:
            return _error(error.status, str(error))
        try:
            return await self._route(request, body, meter, arrived)
        finally:
            self._bodies.release(body)

    async def _route(
        self, request: web.BaseRequest, body: bytes, meter: AnswerMeter, arrived: datetime
    ) -> web.StreamResponse:
        self.routes.begin()
        ended = EndedRequest(request.method, arrived, meter, unread(_path_of(request)))
        answer: web.StreamResponse | None = None
        try:
            ended.request, ended.decision = await self._decide(request, body)
            targets = self._targets(ended.request.path, ended.decision)
            ended.target = targets[0][0].name
            answer, target, ended.failed = await self._first_that_answers(request, targets, body, meter, ended)
            ended.target = target.name
            ended.fault = f"status {answer.status}" if answer.status >= 500 else None
        except asyncio.CancelledError:
            ended.fault = live_records.STOPPED if self._is_stopping else live_records.CLIENT_LEFT
            raise
        except ServerFailedError as error:
            ended.fault = ended.failed = str(error)
            answer = _error(502, ended.fault)
        except UnreadableBodyError:
            ended.fault, ended.target = live_records.UNREADABLE, "none"
            answer = _error(400, live_records.UNREADABLE)
        except NotPlainError as error:
            ended.fault, ended.target = live_records.NOT_PLAIN, "none"
            answer = _error(501, str(error))
        except OwnLimitError as error:
            ended.fault, ended.target = live_records.OWN_LIMIT, "none"
            answer = _error(503, error.message)
        except BrokenAnswerError as error:
            ended.fault = f"the server broke off: {error}"
        except ConnectionResetError:
            ended.fault = live_records.CLIENT_LEFT
        finally:
            ended.status = answer.status if answer is not None else meter.status
            self.routes.end(ended.request.answers)
            self._ended.append((ended, time.monotonic_ns()))
            if self._recording is None or self._recording.done():
                self._recording = asyncio.get_running_loop().create_task(self._record_ended())
        # Of an answer that broke off nothing more is sent: the connection is closed.
        return web.Response(status=502) if answer is None else answer

    async def _record_ended(self) -> None:
        """Record the requests that have ended, after a moment, a part of one at a time.

        Between the parts what has arrived of other streams, and the next requests, are passed on. More parts at once
        keep up where requests end faster.
        """
        parts = 0
        await self._pause(RECORD_AFTER_S)
        while self._ended:
            for _ in self._record(*self._ended.popleft()):
                parts += 1
                if parts > len(self._ended) // WAITING_A_PART:
                    parts = 0
                    await self._pause(RECORD_EACH_S)

    async def _pause(self, seconds: float) -> None:
        """Sleep; not where the loop may end before what comes after it, and its end ends the sleep alone."""
        if not self._is_stopping:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(seconds)

    def _record(self, ended: EndedRequest, now_ns: int) -> Iterator[None]:
        """Record a request, and count it as evidence where its arm was drawn; yield between the parts of that.

        What fails for one of evidence, metrics, page and records leaves the others alone.
        """
        yield
        self._safely(partial(ended.measure, now_ns, self.routes.dialect))
        if ended.is_not_plain and not self.routes.not_plain:
            self.routes.not_plain = f"plain decoding is not plain: of a plain answer, {ended.draft_claim}"
            self._say(f"{self.routes.not_plain}; every route is off until it is certified again")
        yield
        if ended.is_evidence:
            self._safely(lambda: self.routes.evidence.add(live_records.observation(ended), now_ns))
            yield
        self._safely(partial(self.exposition.count_request, ended))
        self._safely(partial(self._day.add, ended, now_ns))
        yield
        self._safely(partial(self._records.write_request, ended))


def _path_of(request: web.BaseRequest) -> str:
    """Return the path of a request as it was sent: decoded it might be another one for its server."""
    return request.raw_path.partition("?")[0]


def _error(status: int, reason: str) -> web.Response:
    """Return an error in the form of the OpenAI API."""
    headers = {"Retry-After": str(client_limits.RETRY_AFTER_S)} if status == 503 else {}
    error = {"message": reason, "type": "server_error" if status >= 500 else "invalid_request_error"}
    return web.json_response({"error": error}, status=status, headers=headers)


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """Make a request; its body is read within the limits of RequestBodies."""
    return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())
