"""One proxy from its start to its end: the watch in a thread, the server, the records and the signals."""

import asyncio
import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.policy import WORKLOAD_HEADER, Policy
from gatekeeper.core.units import percent
from gatekeeper.live.exposition import HoldoutReports
from gatekeeper.live.live_evidence import LEAST_CONVERSATIONS, STREAM, whole_answers_count
from gatekeeper.live.live_records import LiveRecords
from gatekeeper.live.outputs import Say
from gatekeeper.live.overlay import hold_lock
from gatekeeper.live.proxy_server import ProxyServer
from gatekeeper.live.request_routes import RequestRoutes
from gatekeeper.live.session import Session, open_session
from gatekeeper.live.terminal_lines import WARNING
from gatekeeper.live.watch_config import WatchConfig

JOIN_S = 10.0
"""Longest wait for a round to end: one that takes longer leaves an overlay that expires as it says."""
OPEN_S = 120.0
"""Longest wait for the locks and the digests of the models."""
RECORDS = "live.jsonl"


class _Clock(SystemClock):
    """The machine's clock, whose waits end when the proxy does."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def sleep(self, seconds: float) -> None:
        """Wait; end the watch where the proxy ends."""
        if self.stopped.wait(max(0.0, seconds)):
            raise KeyboardInterrupt


class WatchThread:
    """Runs a watch until it is stopped. If it fails, its last overlay expires and every request decodes plainly."""

    def __init__(self, config: WatchConfig, traffic: RequestRoutes, say: Say) -> None:
        self._config, self._traffic, self._say, self._clock = config, traffic, say, _Clock()
        self._opened = threading.Event()
        self._session: Session | None = None
        """Once it has begun."""
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> Session:
        """Take the locks and begin; return the session, and raise what keeps the watch from beginning."""
        self._thread.start()
        until = time.monotonic() + OPEN_S
        while not self._opened.wait(0.05) and self._thread.is_alive() and time.monotonic() < until:
            pass
        if self._session is None:
            raise self._failed or GatekeeperError("the watch does not begin", hint="start the server, then the proxy")
        return self._session

    def stop(self) -> None:
        """End the watch; its overlay says why."""
        self._clock.stopped.set()
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        try:
            with open_session(
                self._config, say=self._say, write=lambda _entry: None, clock=self._clock, traffic=self._traffic
            ) as session:
                proxy = session.routes.policy.proxy
                if proxy.default is None and not proxy.rule:
                    self._say(f"the policy has no [proxy]: only requests with {WORKLOAD_HEADER} speculate", WARNING)
                self._say(proof_of_gain(session.routes.policy), {})
                self._session = session
                self._opened.set()
                session.run(None)
        except KeyboardInterrupt:
            pass
        except BaseException as error:  # noqa: BLE001 (the proxy goes on, plainly)
            self._failed = error
            if self._opened.is_set():
                self._say(f"the watch has failed, requests will be decoded plainly: {error}", {"fg": "red"})


def proof_of_gain(policy: Policy) -> str:
    """Say when the gain is proven on live requests, and what clients send so that their answers count."""
    conversations = round(LEAST_CONVERSATIONS / policy.proxy.holdout)
    whole = "; of others whole answers are timed" if whole_answers_count(policy) else ""
    return (
        f"proof of gain: after about {conversations} conversations at a holdout of {percent(policy.proxy.holdout)}, "
        f"from clients that send {STREAM}{whole}"
    )


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """The arguments and options of `gatekeeper proxy`."""

    watch: WatchConfig
    host: str
    port: int
    keep_prompts: Path | None = None
    records: Path | None = None
    hosts: tuple[str, ...] = ()
    drain_s: float = 60.0


def run(config: ProxyConfig, *, say: Say, listening: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then let requests end; *listening* gets the address."""
    watch = config.watch
    if watch.url is None:
        raise InputError("the proxy needs --url, the address of the server", hint="--url http://127.0.0.1:8080")
    watch.check()
    check_address(config.host, config.port)
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL + 1)  # it would quote requests
    routes = RequestRoutes()

    def tell(text: str) -> None:
        say(text, {})

    path = config.records or watch.policy.with_name(RECORDS)
    owner = {"since": stamp(SystemClock().wall()), "policy": str(watch.policy)}
    with ExitStack() as stack:
        stack.enter_context(hold_lock(path, owner=owner, option="--records"))
        thread = WatchThread(watch, routes, say)
        stack.callback(thread.stop)
        session = thread.start()
        records = LiveRecords(path, config.keep_prompts, tell)
        stack.callback(records.close)
        server = ProxyServer(
            routes,
            records,
            url=watch.url,
            plain_url=watch.plain_url,
            hosts=(*config.hosts, config.host),
            say=tell,
            watch_text=session.metrics,
        )
        reports = HoldoutReports(
            session.certified, routes, records, tell, exposition=server.exposition, folder=watch.textfile
        )
        stack.callback(reports.stop)
        reports.start()
        import uvloop  # noqa: PLC0415 (the extra `proxy`)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, server, records, tell, listening))


def check_address(host: str, port: int) -> None:
    """Raise InputError where the address is taken: before canaries are sent, which cost the server time.

    A name that does not resolve here may do so as an address of the other family.
    """
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except socket.gaierror:
        return
    except OSError as error:
        raise _cannot_listen(host, port, error) from error


def _cannot_listen(host: str, port: int, error: OSError) -> InputError:
    reason = error.strerror if isinstance(error, socket.gaierror) or not error.errno else os.strerror(error.errno)
    return InputError(f"cannot listen on {host}:{port}: {reason or error}", hint="choose another --listen")


async def _serve(
    config: ProxyConfig,
    server: ProxyServer,
    records: LiveRecords,
    tell: Callable[[str], None],
    listening: Callable[[str], None],
) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    try:
        port = await server.start(config.host, config.port, drain_s=config.drain_s)
    except OSError as error:
        await server.stop()
        raise _cannot_listen(config.host, config.port, error) from error
    host = f"[{config.host}]" if ":" in config.host else config.host
    address = Address(f"http://{host}:{port}")
    records.write("begun", url=str(address))
    gc.collect()
    gc.freeze()  # a full collection would walk all that was loaded, while no token is passed on
    gc.set_threshold(700, 10, 10)  # as does a collection after the 200,000 objects that a command may hold
    listening(str(address))
    await ended.wait()
    waiting = server.routes.in_flight
    tell(f"stopping: {waiting} requests in flight have up to {config.drain_s:g} s to end; once more stops at once")
    stopping = asyncio.ensure_future(server.stop())
    ended.clear()
    second_signal = asyncio.ensure_future(ended.wait())
    # By itself aiohttp waits as long once more for handlers that it has told to end.
    await asyncio.wait((stopping, second_signal), timeout=config.drain_s, return_when=asyncio.FIRST_COMPLETED)
    second_signal.cancel()
    if not stopping.done():
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
    records.write("ended", because="stopped by a signal")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
