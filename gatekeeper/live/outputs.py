"""Outputs of a watch: the log, the overlay, the user's commands, a telemetry collector, the terminal."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import IO, Annotated, Any, Self

from pydantic import PlainSerializer

from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.document import document_of
from gatekeeper.core.policy import Policy
from gatekeeper.core.system import child_process
from gatekeeper.live import exposition, terminal_lines
from gatekeeper.live import overlay as overlay_file
from gatekeeper.live.overlay import Overlay, OverlayRoute
from gatekeeper.live.routes import CHANGE, RouteChange
from gatekeeper.live.running.certified_run import CertifiedRun
from gatekeeper.live.watch_config import HOOK_LIMIT_S, WatchConfig
from gatekeeper.live.watch_log import Log
from gatekeeper.report.otel import live_export

HOOK_GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL for a command that exceeds its limit."""
OUTPUT_KEPT = 2000
"""Characters kept of a command's output."""
Say = Callable[[str, terminal_lines.Style], None]
"""Shows a line on the terminal."""
Write = Callable[[Mapping[str, Any]], None]
"""Prints an entry of the log as JSON."""


@dataclass(frozen=True, slots=True)
class HookResult:
    """How one command ended."""

    argv: tuple[str, ...]
    code: int | None
    """None: it did not start, or was stopped at the limit."""
    seconds: Annotated[float, PlainSerializer(lambda seconds: round(seconds, 3))]
    output: str
    """The end of its output, stdout and stderr."""
    fault: str | None
    """Why it failed; None for exit code 0."""


def run_hook(argv: Sequence[str], transition: Mapping[str, Any], *, limit: float = HOOK_LIMIT_S) -> HookResult:
    """Run *argv* with the transition in its environment and, as JSON, on its stdin; its failure is never raised.

    After *limit* seconds its process group is stopped. A program that it left in the background keeps running.
    """
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as stdin:
        # Files, not pipes: a server that the command starts may keep a pipe open.
        stdin.write(json.dumps(transition).encode() + b"\n")
        stdin.seek(0)
        try:
            environment = _environment(transition)
            process = subprocess.Popen(
                list(argv), stdin=stdin, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return HookResult(tuple(argv), None, 0.0, "", f"cannot be started: {reason}")
        try:
            code: int | None = _wait(process, limit)
        except BaseException:  # an interrupt ends the watch and the command
            child_process.end(process, grace=HOOK_GRACE_S)
            raise
        fault = None if code == 0 else f"exit code {code}"
        if code is None:
            child_process.end(process, grace=HOOK_GRACE_S)
            fault = f"stopped at its time limit of {limit:g} s"
        elif code < 0:
            fault = f"killed by signal {-code}"
        return HookResult(tuple(argv), code, time.monotonic() - begun, _tail(output), fault)


def _environment(transition: Mapping[str, Any]) -> dict[str, str]:
    """Return our environment plus each simple value of the transition as GATEKEEPER_NAME; long values are cut."""
    variables = {
        f"GATEKEEPER_{name.upper()}": (str(value).lower() if isinstance(value, bool) else str(value))[:OUTPUT_KEPT]
        for name, value in transition.items()
        if isinstance(value, str | int | float)
    }
    return {**os.environ, **variables}


def _wait(process: subprocess.Popen[bytes], limit: float) -> int | None:
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None


def _tail(out: IO[bytes]) -> str:
    size = out.seek(0, os.SEEK_END)
    out.seek(max(0, size - 4 * OUTPUT_KEPT))
    return out.read().decode("utf-8", "replace")[-OUTPUT_KEPT:]


class Outputs:
    """Holds the overlay and the log while it is entered. Only a failing log ends the watch, no other output does.

    A change that cannot be logged must not be made.
    """

    def __init__(
        self,
        config: WatchConfig,
        certified: CertifiedRun,
        clock: Clock,
        *,
        url: str,
        say: Say,
        write: Write,
        state: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Write with *clock*'s time; *state* returns the first entry of a new log file."""
        self._config, self._certified, self._clock, self._url = config, certified, clock, url
        self._say, self._write, self._state = say, write, state
        self._stack = ExitStack()
        self._overlay: Overlay | None = None
        self._expires: datetime | None = None
        self._textfile_fault: str | None = None
        self.overlay_fault: str | None = None
        """Why the last overlay could not be written; None if it was."""

    def __enter__(self) -> Self:
        """Take both locks and open the log."""
        config, wall = self._config, self._clock.wall
        owner = {"since": stamp(wall()), "policy": str(config.policy), "url": self._url}
        with ExitStack() as stack:
            stack.enter_context(overlay_file.hold_lock(config.overlay_path, owner=owner, option="--overlay"))
            overlay_file.check_writable(config.overlay_path)
            stack.enter_context(overlay_file.hold_lock(config.log_path, owner=owner, option="--log"))
            self._log = stack.enter_context(Log(config.log_path, wall=wall, state=self._state))
            self.has_new_log = self._log.is_new
            if config.listen is not None:
                address = stack.enter_context(
                    exposition.serve_metrics(*config.listen, self.metrics, names=config.host_names)
                )
                self.say(f"metrics: {address}", terminal_lines.GOOD)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def say(self, text: str, style: terminal_lines.Style = terminal_lines.QUIET) -> None:
        """Show a line on the terminal."""
        self._say(text, style)

    def note(self, kind: str, **detail: Any) -> None:
        """Write an entry to the log, and print it if --json is given."""
        self._write(self._log.write(kind, **detail))

    def publish(self, policy: Policy, policy_sha256: str, routes: Sequence[OverlayRoute], seconds: float) -> None:
        """Write an overlay that is valid for *seconds*; if it allows speculation, not longer than the policy is."""
        now, self._expires = self._clock.wall(), policy.expires
        until = now + timedelta(seconds=seconds)
        if any(route.speculation for route in routes):
            until = min(until, policy.expires)
        self._publish(Overlay(policy.slo, policy_sha256, policy.verdict_sha256, now, until, tuple(routes)))

    def end(self, reason: str) -> None:
        """Write a last overlay with the reason why no round follows."""
        if self._overlay is not None:
            self._publish(replace(self._overlay, ended=reason))
        self.note("ended", because=reason)

    def _publish(self, overlay: Overlay) -> None:
        self._overlay, path, before = overlay, self._config.overlay_path, self.overlay_fault
        self.overlay_fault = fault = overlay_file.write(path, overlay)
        if fault is not None and before is None:
            self.note("overlay_failed", because=fault)
            self.say(f"{fault}: readers fall back to plain decoding when the old overlay expires", terminal_lines.BAD)
        elif fault is None and before is not None:
            self.note("overlay_back")
            self.say(f"{path} can be written again", terminal_lines.GOOD)
        self._write_textfile(overlay)

    def metrics(self) -> str:
        """Return the state as Prometheus text: nothing before the first round, no speculation once one is overdue."""
        overlay, expires = self._overlay, self._expires
        if overlay is None or expires is None:
            return ""
        if overlay.next_look_before <= self._clock.wall():
            overlay = replace(overlay, routes=tuple(replace(route, speculation=False) for route in overlay.routes))
        return exposition.render_watch(overlay, expires)

    def _write_textfile(self, overlay: Overlay) -> None:
        """Write the node exporter's file, if one is wanted; that it fails is said once, and changes no route."""
        if self._config.textfile is None or self._expires is None:
            return
        before = self._textfile_fault
        path = self._config.textfile / f"gatekeeper-{overlay.slo}.prom"
        self._textfile_fault = exposition.replace_file(path, exposition.render_watch(overlay, self._expires))
        if self._textfile_fault is not None and before is None:
            self.note("textfile_failed", because=self._textfile_fault)
            self.say(self._textfile_fault, terminal_lines.WARNING)

    def announce_change(self, change: RouteChange) -> None:
        """Log and show a change, before acting on it."""
        self.note(CHANGE, **document_of(change))
        self.say(*terminal_lines.route_changed(change))

    def act(self, change: RouteChange, route: OverlayRoute, commands: Sequence[Sequence[str]]) -> None:
        """Run the commands, unless the setting stays the same, and export the change to the collector."""
        path = str(self._config.overlay_path.absolute())
        facts = {
            **document_of(change),
            "speculation": route.speculation,
            "overlay": path,
            "request": dict(route.request),
        }
        if change.kind == "settled":
            commands = ()  # the setting stays the same
        for argv in commands:
            result = run_hook(argv, facts, limit=self._config.limit)
            self.note("command", workload=change.workload, **document_of(result))
            if result.fault is not None:
                self.say(f"{' '.join(argv)}: {result.fault}", terminal_lines.WARNING)
        if (fault := self._export(change)) is not None:
            self.note("telemetry_failed", because=fault)
            self.say(f"telemetry was not delivered: {fault}", terminal_lines.WARNING)

    def _export(self, change: RouteChange) -> str | None:
        """Send a change to the SLO's collector, linked to the certified run; return why that failed."""
        document = document_of(change)
        keys = ("workload", "change", "from_step", "to_step", "because")
        attributes = {key: document[key] for key in keys}
        attributes |= {f"setting.{knob}": value for knob, value in change.setting.items()}
        at_ns = round(datetime.fromisoformat(change.at).timestamp() * 1e9)
        return live_export.transition(
            self._certified.inputs.slo.telemetry, attributes, at_ns, self._certified.manifest_sha256
        )
