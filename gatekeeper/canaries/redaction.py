"""Redaction by a program of the user's: each text of a request goes through it, from stdin to stdout."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import replace
from subprocess import PIPE
from typing import Any

from gatekeeper.canaries.logged_request import LoggedAnswer, LoggedRequest
from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.system import child_process
from gatekeeper.core.text import quote_lines
from gatekeeper.core.units import show_bytes

TIMEOUT_S = 60.0
"""Seconds that the program may take for one text; a language model on a busy machine takes some."""
MOST_GROWTH, MOST_ADDED = 16, 1 << 20
"""A redacted text has at most so many times its bytes, and so many more: a placeholder may stand for each word."""
STDERR_KEPT = 1 << 16
"""The last bytes of its stderr, for an error."""
STRUCTURE = ("role", "tool_call_id")
"""Texts of a message that are no prose: changed, they would fit nothing."""


class Redactor:
    """Pipes texts through one program; equal texts go through it once, so that they stay equal."""

    def __init__(self, command: str) -> None:
        """Split *command* as a shell would, without starting one; raise InputError where its program is missing."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"--redact-with {command}: {error}", hint="close the quote") from error
        self._command = command
        self._redacted_by_text: dict[str, str] = {}
        if not self._words or shutil.which(self._words[0]) is None:
            hint = "name a program that reads a text from stdin and writes it to stdout; no shell runs it"
            raise InputError(f"--redact-with {command}: there is no such program", hint=hint)

    def redact_request(self, request: LoggedRequest) -> LoggedRequest:
        """Return the request with the texts of its messages, calls and descriptions, and its answer's calls."""
        answer = request.answer
        if answer is not None:
            answer = LoggedAnswer(answer.text, tuple(self._redact_call(call) for call in answer.calls), answer.tokens)
        return replace(
            request,
            messages=tuple(self._redact_message(message) for message in request.messages),
            tools=tuple(self._redact_descriptions(tool) for tool in request.tools),
            options=self._redact_descriptions(dict(request.options)),
            answer=answer,
        )

    def _redact_message(self, message: dict[str, Any]) -> dict[str, Any]:
        kept = (*STRUCTURE, "name") if message["role"] in {"tool", "function"} else STRUCTURE
        redacted = {}
        for name, value in message.items():
            if name == "tool_calls":
                redacted[name] = [self._redact_call(call) for call in value or ()]
            else:
                redacted[name] = value if name in kept else self._redact_all(value)
        return redacted

    def _redact_all(self, value: Any) -> Any:
        """Return a value with each text in it redacted."""
        if isinstance(value, list):
            return [self._redact_all(item) for item in value]
        if isinstance(value, dict):
            return {name: self._redact_all(item) for name, item in value.items()}
        return self._redact(value) if isinstance(value, str) else value

    def _redact_call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        arguments = self._redact(function["arguments"])
        try:
            json_value(arguments)
        except ParseError as error:
            if arguments != function["arguments"]:
                message = (
                    f"--redact-with {self._command}: the arguments of a call to {function['name']} are no longer JSON"
                )
                raise InputError(message, hint="let the program keep quotes, braces and backslashes") from error
        return {**call, "function": {**function, "arguments": arguments}}

    def _redact_descriptions(self, value: Any) -> Any:
        """Return a tool or an option with its descriptions redacted: other texts in a schema are names and patterns."""
        if isinstance(value, list):
            return [self._redact_descriptions(item) for item in value]
        if not isinstance(value, dict):
            return value
        redacted = {}
        for name, item in value.items():
            is_prose = name == "description" and isinstance(item, str)
            redacted[name] = self._redact(item) if is_prose else self._redact_descriptions(item)
        return redacted

    def _redact(self, text: str) -> str:
        if text.strip() and text not in self._redacted_by_text:
            self._redacted_by_text[text] = self._run(text)
        return self._redacted_by_text.get(text, text)

    def _run(self, text: str) -> str:
        about = f"--redact-with {self._command}"
        hint = "nothing was written; try the command on one text: printf 'a text' | COMMAND"
        content = text.encode("utf-8", "replace")
        most = MOST_ADDED + MOST_GROWTH * len(content)
        try:
            ran = _pipe(self._words, content, most)
            if len(ran.stdout) > most:
                raise InputError(f"{about}: it made more than {show_bytes(most)} of a text", hint=hint)
            redacted = ran.stdout.decode("utf-8")
        except subprocess.TimeoutExpired:
            raise InputError(f"{about}: one text took longer than {TIMEOUT_S:.0f} s", hint=hint) from None
        except UnicodeDecodeError as error:
            raise InputError(f"{about}: its output is not UTF-8", hint=hint) from error
        except OSError as error:
            raise InputError(f"{about}: it cannot be started: {error.strerror}", hint=hint) from error
        if ran.returncode != 0:
            reason = quote_lines(ran.stderr.decode("utf-8", "replace"))
            raise InputError(f"{about}: it ended with code {ran.returncode}", hint=f"{hint}\n{reason}".rstrip())
        if not redacted.strip():  # a program that was meant to read a file, or failed without saying so
            raise InputError(f"{about}: it left nothing of a text", hint=hint)
        # Many a program ends its last line, which the text need not have done.
        return redacted if text.endswith("\n") else redacted.removesuffix("\n")


def _pipe(words: list[str], content: bytes, most: int) -> subprocess.CompletedProcess[bytes]:
    """Run a program with *content* on its stdin, and end it, and what it started, where it writes more than *most*.

    Raise TimeoutExpired where it takes too long, or what it started keeps its output open for so long.
    """
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as complaints:
        stdin.write(content)  # a file: a pipe that nothing reads would hold us up
        stdin.seek(0)
        process = subprocess.Popen(words, stdin=stdin, stdout=PIPE, stderr=complaints, start_new_session=True)
        is_late = threading.Event()

        def stop() -> None:
            is_late.set()
            child_process.signal_group(process, signal.SIGKILL)

        timer = threading.Timer(TIMEOUT_S, stop)
        timer.start()
        try:
            assert process.stdout is not None
            with process.stdout:
                output = process.stdout.read(most + 1)
            code = 0 if len(output) > most else process.wait()
        finally:
            timer.cancel()
            child_process.end(process, grace=0)
        if is_late.is_set():
            raise subprocess.TimeoutExpired(words, TIMEOUT_S)
        complaints.seek(max(0, complaints.seek(0, os.SEEK_END) - STDERR_KEPT))
        return subprocess.CompletedProcess(words, code, output, complaints.read())
