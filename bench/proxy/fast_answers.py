"""How long others wait while one answer comes as fast as it can: `python -m bench.proxy.fast_answers [SECONDS]`.

A server sends one answer without a pause, in a form that is costly to read: in chunks of one byte, as many short texts,
as a line without an end. Meanwhile another client fetches a document of the server and, of our proxy, `/metrics`, again
and again. Printed are the median and the longest wait of each, beside those of the same proxy without the fast answer;
nginx, where it is installed, before the same server.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median

from bench.proxy.figures import command_of, free_port

SECONDS = 6.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DOCUMENT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"
EVENT = b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n'
WORDS = EVENT % b"ordinary words of an answer"


def chunked(text: bytes, size: int) -> bytes:
    """Return *text* in chunks of *size* bytes."""
    pieces = [text[begin : begin + size] for begin in range(0, len(text), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


FORMS = {
    "nothing": b"",
    "ordinary words": chunked(WORDS * 100, len(WORDS)),
    "many short texts": chunked(EVENT % b"a" * 1000, len(EVENT % b"a") * 10),
    "chunks of one byte": chunked(WORDS * 100, 1),
    "a line without an end": chunked(b"a" * 10_000, 1),
}
"""What is sent again and again."""


def serve(port: int) -> None:
    """Answer GET with a short document, and POST to `/FORM` with that form until the client leaves."""
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with suppress(OSError), connection:
        while head := _read_head(connection):
            method, path, *_ = head.split()
            if method == b"GET":
                connection.sendall(DOCUMENT)
                continue
            connection.sendall(HEAD)
            block = list(FORMS.values())[int(path.rpartition(b"/")[2])] * 20
            while True:
                connection.sendall(block)


def _read_head(connection: socket.socket) -> bytes:
    """Read a request's head; its body, of two bytes, is in it or is not needed."""
    head = b""
    while b"\r\n\r\n" not in head:
        if not (piece := connection.recv(1 << 16)):
            return b""
        head += piece
    return head


@contextmanager
def fast_answer(port: int, number: int) -> Iterator[None]:
    """Read the fast answer of a form in another process, as fast as it comes; none for the first form."""
    if not number:
        yield
        return
    command = [sys.executable, "-m", "bench.proxy.fast_answers", "read", str(port), str(number)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # the answer has begun
        yield
    finally:
        process.kill()
        process.wait()


def read(port: int, number: int) -> None:
    """Read an answer and drop it."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = (
            f"POST /{number} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
        )
        connection.sendall(head.encode() + b"{}")
        connection.recv(1 << 16)
        print(flush=True)
        while connection.recv(1 << 20):
            pass


def waits(port: int, path: str, seconds: float) -> list[float]:
    """Return how long each fetch of *path* took, on connections of their own."""
    taken, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        begun = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            while connection.recv(1 << 16):
                pass
        taken.append(time.perf_counter() - begun)
        time.sleep(0.02)
    return taken


def main(seconds: float) -> None:
    """Print a table of waits by form and proxy."""
    print("| while one answer is | proxy | fetched | median, ms | longest, ms | times that of none |")
    print("|---" * 6 + "|")
    with ExitStack() as stack:
        folder, upstream = Path(stack.enter_context(tempfile.TemporaryDirectory())), free_port()
        commands = {"server": [sys.executable, "-m", "bench.proxy.fast_answers", "serve", str(upstream)]}
        ports = {name: free_port() for name in ("gatekeeper", "nginx")}
        for name, port in ports.items():
            command = command_of(name, port, upstream, folder)
            if command is not None:
                commands[name] = command
        for name, command in commands.items():
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            _wait_for(ports.get(name, upstream))
        for name in ports.keys() & commands:
            for path in ("/metrics", "/v1/models") if name == "gatekeeper" else ("/v1/models",):
                quiet = 0.0
                for number, form in enumerate(FORMS):
                    with fast_answer(ports[name], number):
                        taken = waits(ports[name], path, seconds)
                    quiet = quiet or max(taken)
                    figures = f"{1e3 * median(taken):.1f} | {1e3 * max(taken):.1f} | {max(taken) / quiet:.1f}"
                    print(f"| {form} | {name} | {path} | {figures} |", flush=True)


def _wait_for(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", port]:
            serve(int(port))
        case ["read", port, number]:
            read(int(port), int(number))
        case words:
            main(float(words[0]) if words else SECONDS)
