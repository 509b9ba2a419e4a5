"""Outputs of a watch: the log, the overlay, the user's commands, a telemetry collector, the terminal."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Self

from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.policy import Policy
from gatekeeper.live import overlay as overlay_file
from gatekeeper.live import prometheus_text, restore, terminal_lines
from gatekeeper.live.hooks import run_hook
from gatekeeper.live.overlay import Overlay, OverlayRoute
from gatekeeper.live.route_moves import RouteChange
from gatekeeper.live.running.certified_run import CertifiedRun
from gatekeeper.live.watch_config import WatchConfig
from gatekeeper.live.watch_log import Log
from gatekeeper.report.otel import live_export

Say = Callable[[str, terminal_lines.Style], None]
"""Shows a line on the terminal."""
Write = Callable[[Mapping[str, Any]], None]
"""Prints an entry of the log as JSON."""


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
        self._metrics = ""
        self._textfile_fault: str | None = None
        self.overlay_fault: str | None = None
        """Why the last overlay could not be written; None if it was."""

    def __enter__(self) -> Self:
        """Take both locks and open the log."""
        config, wall = self._config, self._clock.wall
        owner = {"since": stamp(wall()), "policy": str(config.policy), "url": self._url}
        with ExitStack() as stack:
            stack.enter_context(overlay_file.locked(config.overlay_path, owner=owner, option="--overlay"))
            overlay_file.check_writable(config.overlay_path)
            stack.enter_context(overlay_file.locked(config.log_path, owner=owner, option="--log"))
            self._log = stack.enter_context(Log(config.log_path, wall=wall, state=self._state))
            self.has_new_log = self._log.is_new
            if config.listen is not None:
                address = stack.enter_context(
                    prometheus_text.served(*config.listen, lambda: self._metrics, names=config.host_names)
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
        if self._expires is not None:
            self._metrics = prometheus_text.render(overlay, self._expires)
        self._write_textfile(overlay)

    def _write_textfile(self, overlay: Overlay) -> None:
        """Write the node exporter's file, if one is wanted; that it fails is said once, and changes no route."""
        if self._config.textfile is None or self._expires is None:
            return
        before = self._textfile_fault
        self._textfile_fault = prometheus_text.write(self._config.textfile, overlay, self._expires)
        if self._textfile_fault is not None and before is None:
            self.note("textfile_failed", because=self._textfile_fault)
            self.say(self._textfile_fault, terminal_lines.WARNING)

    def changed(self, change: RouteChange) -> None:
        """Log and show a change, before acting on it."""
        self.note(restore.CHANGE, **change.document())
        self.say(*terminal_lines.route_changed(change))

    def act(self, change: RouteChange, route: OverlayRoute, commands: Sequence[Sequence[str]]) -> None:
        """Run the commands, unless the setting stays the same, and export the change to the collector."""
        path = str(self._config.overlay_path.absolute())
        facts = {**change.document(), "speculation": route.speculation, "overlay": path, "request": dict(route.request)}
        for argv in commands if change.kind != "settled" else ():
            result = run_hook(argv, facts, limit=self._config.limit)
            self.note("command", workload=change.workload, **result.document())
            if result.fault is not None:
                self.say(f"{' '.join(argv)}: {result.fault}", terminal_lines.WARNING)
        if (fault := self._export(change)) is not None:
            self.note("telemetry_failed", because=fault)
            self.say(f"telemetry was not delivered: {fault}", terminal_lines.WARNING)

    def _export(self, change: RouteChange) -> str | None:
        """Send a change to the SLO's collector, linked to the certified run; return why that failed."""
        document = change.document()
        keys = ("workload", "change", "from_step", "to_step", "because")
        attributes = {key: document[key] for key in keys}
        attributes |= {f"setting.{knob}": value for knob, value in change.setting.items()}
        at_ns = round(datetime.fromisoformat(change.at).timestamp() * 1e9)
        return live_export.transition(
            self._certified.inputs.slo.telemetry, attributes, at_ns, self._certified.manifest_sha256
        )
