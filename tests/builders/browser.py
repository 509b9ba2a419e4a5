"""A headless Chromium, spoken to over the pipe of its own debugging protocol: no driver, no client library."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from select import select
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
TRAMPOLINE = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
"""The protocol is spoken on descriptors 3 and 4."""
PATIENCE_S = 120


def found() -> str | None:
    """Return the browser on PATH, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """One page, and everything it complained about."""

    _write: int
    _read: int
    session: str | None = None
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _rest: bytes = b""
    _number: int = 0
    _seen: list[str] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def wait_for(self, event: str) -> None:
        """Wait until *event* was seen since the last load."""
        while event not in self._seen:
            self._next()

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            assert select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0], "the browser fell silent"
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser went away"
            self._rest += piece
        line, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method:
            self._seen.append(method)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
            self.complaints.append(str([arg.get("value", arg.get("description")) for arg in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"a dialog opened: {params['message']}")
            os.write(self._write, b"")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(
        self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False, script: bool = True
    ) -> None:
        """Load a file at a size, light or dark."""
        mobile = width < 600
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media="", features=features)
        self._seen.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript; an exception fails the test."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def move(self, x: float, y: float) -> None:
        """Rest the pointer somewhere."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path, *, full_page: bool = False) -> None:
        """Write a screenshot: of the whole page, or of what is seen."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full_page)
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self, path: Path) -> None:
        """Write the page as it would be printed on A4."""
        done = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(done["data"]))


def _pipe() -> tuple[int, int]:
    """Return a pipe whose ends do not lie on the numbers the protocol wants."""
    read, write = os.pipe()
    ends = fcntl(read, F_DUPFD_CLOEXEC, 10), fcntl(write, F_DUPFD_CLOEXEC, 10)
    os.close(read)
    os.close(write)
    return ends


@contextmanager
def browser(program: str) -> Iterator[Tab]:
    """Start a browser with an empty profile, give one tab, and end it."""
    (to_read, to_write), (from_read, from_write) = _pipe(), _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        launch = [sys.executable, "-c", TRAMPOLINE, str(to_read), str(from_write)]
        process = subprocess.Popen(
            [*launch, program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        try:
            tab = Tab(to_write, from_read)
            target = tab.call("Target.createTarget", url="about:blank")["targetId"]
            tab.session = tab.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                tab.call(f"{domain}.enable")
            yield tab
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE_S)
            os.close(to_write)
            os.close(from_read)
