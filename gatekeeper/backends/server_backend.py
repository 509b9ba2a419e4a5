"""The server backend: servers over HTTP, started or attached to, one for each setting that needs its own."""

import json
import os
import sys
from collections.abc import Mapping
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

from gatekeeper.backends.answer_limits import AnswerLimits
from gatekeeper.backends.dialect import CONDITIONS, Dialect, Start
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.http import control_requests, refusal_hints
from gatekeeper.backends.http.chat_request import PLAIN
from gatekeeper.backends.launch_line import shown_command, shown_environment, without_keys
from gatekeeper.backends.listening_process import (
    HOST,
    PortTakenError,
    find_lossy_process,
    find_process,
    free_port,
    is_own_port,
    process_tree,
)
from gatekeeper.backends.lossy_options import Lossy, find_lossy_setting
from gatekeeper.backends.models.artifacts import local_path
from gatekeeper.backends.server_process import (
    ServerProcess,
    check_commands,
    environment,
    installed_versions,
    launch,
    output_of,
    quoted_log,
    version_in,
)
from gatekeeper.backends.server_requests import RequestFormat, Server, shortest_request
from gatekeeper.core.clock import Clock, SystemClock
from gatekeeper.core.errors import InputError, UnresponsiveError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import TIMEOUT, Setting
from gatekeeper.core.slo import CHOSEN, process_name
from gatekeeper.core.slo.subject_table import Subject

PORT = "{port}"
"""The port in a launch line: it differs with every start."""
_PLAIN: Setting = (("draft", None),)


def open_server(
    subject: Subject,
    *,
    models: Mapping[str, Path],
    base: Path,  # noqa: ARG001 (every kind of backend is opened with it)
    logs: Path,
) -> "ServerBackend":
    """Return the backend of a server; raise InputError for one that could not be started."""
    dialect = dialect_of(subject.backend)
    lossy = dialect.find_lossy(subject) or (dialect.find_lossy_variable() if subject.url is None else None)
    if lossy is not None:
        raise InputError(f"cannot certify {dialect.name}: {lossy.message}", hint=lossy.hint)
    for key, address in (("url", subject.url), ("plain_url", subject.plain_url)):
        if address is not None and address.is_incomplete:
            message = f"subject.{key} = {address}: its key is missing, since gatekeeper stores none"
            raise InputError(message, hint="put the key back (for watch: --url), or set subject.api_key_env")
    backend = ServerBackend(subject, models, logs, dialect)
    if subject.url is None:
        check_commands(subject, dialect)
    return backend


class ServerBackend:
    """Starts or attaches to a server, one process per setting that needs its own."""

    realtime = True

    def __init__(self, subject: Subject, models: Mapping[str, Path], logs: Path, dialect: Dialect) -> None:
        self.clock: Clock = SystemClock()
        self.name, self.streams = dialect.name, dialect.streams
        # Where a plain server is named, plain requests go there, although the other one could answer them too.
        self.shares_process = dialect.switches and subject.plain_url is None
        self._subject, self._models, self._logs, self._dialect = subject, models, logs, dialect
        self._limits = AnswerLimits(subject)
        self._starts = count(1)
        self._help = cache(lambda program: output_of((*program, dialect.help)))
        self._headers = {**dialect.headers, **_authorization(subject)}
        command = " ".join(subject.command or ())
        placeholders = {name for name in CHOSEN if f"{{{name}}}" in command} - {"draft"}
        taken = {"draft", *CONDITIONS, *dialect.knobs, *subject.knobs, *placeholders}
        restarting = {
            *dialect.restart_knobs,
            *placeholders,
            *(name for name, place in subject.knobs.items() if place.argv),
        }
        self.knobs = frozenset(taken - (restarting - self._settable(restarting)))
        keeps_server = subject.url is not None and dialect.switches
        self.restart_knobs = () if keeps_server else tuple(sorted(restarting & self.knobs))
        self.sight = self._forecast()
        our_command = subject.url is None and subject.command is None
        self.caches = dialect.caches_by_request or (bool(dialect.cache_off) and our_command)
        self.uncached = self.caches
        self.options = dialect.options
        self.draft_hint = dialect.draft_hint
        words = (*subject.args, *(subject.command or ()))
        self.maps_weights = dialect.maps_weights is not None and dialect.maps_weights(words)
        self.greedy_only, self.any_server = dialect.greedy_only, dialect.any_server

    def _settable(self, restarting: set[str]) -> set[str]:
        """Return which of the knobs that need a restart can be set; for a command of the SLO's, its placeholders."""
        subject = self._subject
        if subject.url is not None:
            return {"draft", *self._dialect.by_request}
        if subject.command is None:
            return restarting
        command = " ".join(subject.command)
        return {name for name in restarting if f"{{{name}}}" in command or name in subject.knobs} | {"draft"}

    def _forecast(self) -> Sight:
        subject, sight = self._subject, self._dialect.sight
        if any(part is not None for part in (subject.url, subject.command, subject.program)):
            sight &= ~Sight.ROUNDS  # we can count them only with our patch in the server
        if subject.url is None:
            sight |= Sight.MEMORY
        if self.shares_process or subject.url is None or subject.plain_url is not None:
            sight |= Sight.PLAIN
        return sight

    def residence(self, setting: Setting) -> str:
        """Name the server that can answer *setting*."""
        knobs = dict(setting)
        if knobs.get("draft") is None and not self.shares_process:
            return PLAIN
        return process_name(knobs, self.restart_knobs)

    def start(self, setting: Setting, *, cache: bool = False) -> Server:
        """Start a server, or attach to the running one, and wait until its models are loaded.

        *cache* leaves its prompt cache on, as deployed. Raise InputError with the last lines of its log where it does
        not start.
        """
        subject, draft = self._subject, dict(setting).get("draft")
        if subject.url is not None:
            root = subject.plain_url if draft is None and subject.plain_url is not None else subject.url
            return self._ready(Server(None, root, setting, self._request_format(root, cache=cache)))
        try:
            process, root = self._launch_server(setting, free_port(), cache=cache)
        except PortTakenError:  # between the moment it was free and that in which the server wanted it
            process, root = self._launch_server(setting, free_port(), cache=cache)
        try:
            self._refuse_lossy(find_lossy_process(process_tree(process.pid), self._dialect.lossy))
            return self._ready(Server(process, root, setting, self._request_format(root, cache=cache)))
        except BaseException:
            process.close()
            raise

    def _launch_server(self, setting: Setting, port: int, *, cache: bool) -> tuple[ServerProcess, Address]:
        """Start a server on *port* and wait until it is healthy; return it and its address."""
        root, arm = Address(f"http://{HOST}:{port}"), PLAIN if dict(setting).get("draft") is None else "draft"
        command = self.command(setting, port, cache=cache)
        process = launch(
            command,
            log=self._logs / f"{self.name}-{next(self._starts)}-{arm}.log",
            ready=lambda pid: (
                is_own_port(pid, port)
                and control_requests.status(root.at(self._dialect.health), self._headers)
                not in {None, self._dialect.loading}
            ),
            start_timeout=self._subject.start_timeout,
            install=self._dialect.install,
            with_package=command[0] == sys.executable,
        )
        return process, root

    def check_running(self) -> None:
        """Raise InputError where a server that is already running shows that its speculation is lossy."""
        for url in filter(None, (self._subject.url, self._subject.plain_url)):
            self._refuse_lossy(self.find_lossy_at(url))

    def find_lossy_at(self, url: Address) -> Lossy | None:
        """Return what makes the speculation of the running server at *url* lossy, as far as it is visible from here."""
        dialect = self._dialect
        if dialect.lossy and (process := find_process(url)) is not None:
            lossy = find_lossy_process((process.pid,), dialect.lossy)
            if lossy is not None:
                return lossy
        if dialect.settings_path is None:
            return None
        text = control_requests.fetch(url.at(dialect.settings_path), self._headers)
        return find_lossy_setting(text, dialect.settings_path, dialect.lossy)

    def _refuse_lossy(self, lossy: Lossy | None) -> None:
        if lossy is not None:
            message = f"cannot certify {self.name}: {lossy.message}"
            raise InputError(message, hint=f"{lossy.hint}, and start the server again")

    def _ready(self, server: Server) -> Server:
        """Wait until a request is answered: some servers are healthy before, or without, loaded models.

        Raise InputError where there is no server, UnresponsiveError where there is one that does not answer.
        """
        fault = server.ping(self._subject.start_timeout).fault
        late, mistake = (fault or "").startswith(TIMEOUT), self._mistake(server, fault)
        if fault is None or (
            not (late or mistake)
            and control_requests.status(server.root.at(self._dialect.health), self._headers) == 200
        ):
            # A fault of the answer is a result: the records will show that the draft does not work.
            return server
        process = server.process
        ended = process.ending(0.0) if process is not None else None
        where = f" at {server.root}" if process is None else ""
        message = f"{self.name}{where} cannot serve {self._subject.target}: {f'it exited: {ended}' if ended else fault}"
        log = "" if process is None else f"\n{quoted_log(process.log)}"
        if late and ended is None:
            hint = f"restart it, look in its log, or raise start_timeout in [subject] if it is still loading{log}"
            raise UnresponsiveError(message, hint=hint)
        hint = mistake or refusal_hints.start_hint(str(fault)) if process is None else quoted_log(process.log)
        raise InputError(message, hint=hint)

    def _mistake(self, server: Server, fault: str | None) -> str:
        """Return the hint for a fault that the SLO file causes: a running server with another key, model or address."""
        if fault is None or server.process is not None:
            return ""
        listed = refusal_hints.listed_models(server.root, self._headers)
        return refusal_hints.certain_mistake(fault, server.model, listed, self._subject.api_key_env)

    def launch(self, setting: Setting) -> dict[str, Any] | None:
        """Return the command and the environment of the server for *setting*, as it is to be deployed."""
        if self._subject.url is not None:
            return None
        cache = self._subject.prompt_cache == "as-deployed"
        words = self.command(setting, PORT, cache=cache)
        variables = shown_environment(environment(with_package=words[0] == sys.executable))
        return {"command": shown_command(words, self._models), "environment": variables}

    def required_fields(self) -> dict[str, Any]:
        """Return the fields that keep the prompt cache off, where the request says so."""
        if not self._dialect.caches_by_request or self._subject.prompt_cache == "as-deployed":
            return {}
        uncached, cached = (_shortest_body(self._format({}, None, cache=cache), _PLAIN) for cache in (False, True))
        return _difference(uncached, cached)

    def command(self, setting: Setting, port: int | str, *, cache: bool) -> tuple[str, ...]:
        """Return the command line of the server that can answer *setting*."""
        subject, knobs = self._subject, dict(setting)
        draft = knobs.get("draft")
        command = subject.plain_command if draft is None else subject.command
        if draft is None and self.shares_process:
            command, draft = subject.plain_command or subject.command, next(iter(subject.drafts), None)
        target, path = self._place(subject.target), None if draft is None else self._place(draft)
        if command is not None:
            values = {name: str(value) for name, value in knobs.items()}
            values |= {"target": target, "draft": path or "", "port": str(port)}
            words = [_fill_placeholders(word, values) for word in command]
        else:
            assert self._dialect.argv is not None
            program = subject.program or self._dialect.program
            print_help = partial(self._help, program)
            start = Start(
                subject, target, path, knobs, port, cache=cache, program=program, help=print_help, place=self._place
            )
            words = [*self._dialect.argv(start), *(() if cache else self._dialect.cache_off)]
        for name, place in subject.knobs.items():
            if place.argv is not None and knobs.get(name) is not None:
                words += [word.replace("{value}", str(knobs[name])) for word in place.argv]
        return (*words, *subject.args)

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the server, and the SLO's own commands that start it; raise InputError without it."""
        subject, dialect = self._subject, self._dialect
        commands = {"program": subject.program, "command": subject.command, "plain_command": subject.plain_command}
        entries = {name: " ".join(without_keys(words)) for name, words in commands.items() if words is not None}
        if subject.url is not None:
            entries |= {"url": subject.url} | ({"plain_url": subject.plain_url} if subject.plain_url else {})
            path = dialect.version_path
            text = control_requests.fetch(subject.url.at(path), self._headers) if path else None
            return entries | {self.name: version_in(text or "", dialect.version_key)}
        return entries | installed_versions(subject, dialect) or {self.name: "unknown"}

    def _place(self, name: str) -> str:
        """Return where a model is stored; the name itself for a draft that is part of the server."""
        is_part = name in self._dialect.own_drafts and name not in self._models
        return name if is_part else str(local_path(self._models, name))

    def fields(self, setting: Setting, other_setting: Setting) -> dict[str, Any]:
        """Return the fields by which a request with *setting* differs from one with *other*; nothing is sent."""
        requests = self._format({}, self._subject.served_model_name or self._subject.target, cache=False)
        return _difference(_shortest_body(requests, setting), _shortest_body(requests, other_setting))

    def _request_format(self, root: Address, *, cache: bool) -> RequestFormat:
        subject, model_name = self._subject, self._dialect.model_name
        model = subject.served_model_name
        if model is None and model_name == "path":
            model = self._place(subject.target)
        elif model is None and model_name == "listed":
            listed = refusal_hints.listed_models(root, self._headers)
            model = listed[0] if len(listed) == 1 else subject.target
        return self._format(self._headers, model, cache=cache)

    def _format(self, headers: Mapping[str, str], model: str | None, *, cache: bool) -> RequestFormat:
        by_path = self._dialect.model_name == "path"
        drafts = {name: self._place(name) if by_path else name for name in self._subject.drafts}
        return RequestFormat(
            self._dialect,
            self._subject,
            headers,
            model=model,
            drafts=drafts,
            cache=cache,
            limits=self._limits,
            folder=self._models.get(self._subject.target),
        )


def _shortest_body(requests: RequestFormat, setting: Setting) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(requests.body(requests.server_request(shortest_request(setting))))
    return body


def _difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return what *first* holds and *second* does not, in nested tables too."""
    difference: dict[str, Any] = {}
    for name, value in first.items():
        opposite = second.get(name)
        if isinstance(value, dict) and isinstance(opposite, dict):
            difference |= {name: nested} if (nested := _difference(value, opposite)) else {}
        elif value != opposite:
            difference[name] = value
    return difference


def _fill_placeholders(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _authorization(subject: Subject) -> dict[str, str]:
    if subject.api_key_env is None:
        return {}
    key = os.environ.get(subject.api_key_env)
    if not key:
        hint = f"export {subject.api_key_env}=… before you start gatekeeper; keys are never read from a file"
        raise InputError(f"the variable {subject.api_key_env} (subject.api_key_env) is not set", hint=hint)
    return {"Authorization": f"Bearer {key}"}
