"""The watch, in a thread of the proxy: the same rounds, guards, log and overlay as `gatekeeper watch`."""

import threading
import time

from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.policy import WORKLOAD_HEADER, Policy
from gatekeeper.core.units import percent
from gatekeeper.live.live_evidence import LEAST_CONVERSATIONS, STREAM, whole_answers_count
from gatekeeper.live.open_session import open_session
from gatekeeper.live.outputs import Say
from gatekeeper.live.routes import LiveTraffic
from gatekeeper.live.terminal_lines import WARNING
from gatekeeper.live.watch_config import WatchConfig

JOIN_S = 10.0
"""Longest wait for a round to end: one that takes longer leaves an overlay that expires as it says."""
OPEN_S = 120.0
"""Longest wait for the locks and the digests of the models."""


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

    def __init__(self, config: WatchConfig, traffic: LiveTraffic, say: Say) -> None:
        self._config, self._traffic, self._say, self._clock = config, traffic, say, _Clock()
        self._opened = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Take the locks and begin; raise what keeps the watch from beginning."""
        self._thread.start()
        until = time.monotonic() + OPEN_S
        while not self._opened.wait(0.05) and self._thread.is_alive() and time.monotonic() < until:
            pass
        if not self._opened.is_set():
            raise self._failed or GatekeeperError("the watch does not begin", hint="start the server, then the proxy")

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
