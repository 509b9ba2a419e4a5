"""A deployed policy: a run directory as far as a watch reads it, and a scripted system whose behaviour can be set."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import tomli_w

from gatekeeper.core.clock import stamp
from gatekeeper.core.manifest import File, sha256
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.live.request_routes import RequestRoutes
from gatekeeper.live.session import Session, open_session
from gatekeeper.live.watch_config import WatchConfig
from gatekeeper.report.attestation import describe_files
from tests.builders.background_server import BackgroundServer, QuietHandler
from tests.builders.manifest import manifest
from tests.builders.project_folder import canary_lines
from tests.builders.watch import CONDITIONS

WATCH = {
    "interval": 10.0,
    "duty": 0.2,
    "window": 1200.0,
    "missing_for": 120.0,
    "quiet_for": 300.0,
    "quiet_most": 2400.0,
}
GUARDS = (
    {"metric": "acceptance_rate", "at_least": 0.5, "for": 20.0, "why": "a draft that guesses so badly does not pay"},
    {"metric": "error_rate", "at_most": 0.2, "for": 20.0},
)
SETTING = {"draft": "heavy", "num_draft_tokens": 4}
LADDER = ({"step": "shrink-draft", "draft": "heavy", "num_draft_tokens": 2},)


@dataclass
class WatchOutput:
    """What a session printed: messages, and entries of the log."""

    messages: list[str] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if entry["kind"] == kind]

    @property
    def changes(self) -> list[str]:
        return [f"{change['change']} {change['from_step']}>{change['to_step']}" for change in self.of("change")]


def seal(run: Path) -> None:
    """Write what shows that a run's policy is the certified one: the certificate names it, and the checksums both."""
    subject = describe_files({"policy.toml": sha256((run / "policy.toml").read_text())})
    (run / "certificate.intoto.json").write_text(json.dumps({"subject": subject}))
    RunDirectory(run).write_checksums()


def write_run(run: Path, inputs: Mapping[str, str], at: datetime, setting: Mapping[str, Any], **frozen: Any) -> None:
    """Write what a watch reads of a run that froze these *inputs* and promoted its one workload with *setting*."""
    (run / "inputs").mkdir(parents=True)
    for name, text in inputs.items():
        (run / "inputs" / name).write_text(text)
    files = {name: File(name=name, sha256=sha256(text)) for name, text in inputs.items()}
    canaries = {
        name[len("canaries-") :].removesuffix(".jsonl"): file for name, file in files.items() if "canaries" in name
    }
    inputs_frozen = {
        "slo": files["slo.toml"],
        "profile": files["profile.toml"],
        "canaries": canaries,
        "frozen_at": stamp(at),
    }
    (run / "manifest.json").write_text(manifest(**inputs_frozen, **frozen).text())
    (run / "events.jsonl").write_text(json.dumps({"at": stamp(at), "kind": "stage"}) + "\n")
    workloads = [{"name": name, "outcome": "promoted", "setting": setting} for name in canaries]
    (run / "verdict.json").write_text(json.dumps({"schema": 1, "workloads": workloads}))


def policy_of(run: Path, issued: datetime) -> dict[str, Any]:
    """Return the head of a policy that *run* certifies, for 30 days."""
    return {
        "schema": 1,
        "grade": "demo",
        "manifest_sha256": sha256((run / "manifest.json").read_bytes()),
        "verdict_sha256": sha256((run / "verdict.json").read_bytes()),
        "issued": stamp(issued),
        "expires": stamp(issued + timedelta(days=30)),
        "conditions": CONDITIONS,
    }


CERTIFIED: dict[str, Any] = {
    "conditions": CONDITIONS | {"concurrency": 64},
    "route": {"longest_prompt": 1000, "models": ["org/target", "t"], "request": [{}]},
}
"""What a policy says of the requests that it routes to the draft."""


@dataclass(frozen=True)
class Deployed:
    """A folder with a run, its SLO and its policy."""

    path: Path
    subject: Mapping[str, Any]
    issued: datetime

    @classmethod
    def scripted(cls, path: Path, truth: Mapping[str, Any] | None = None) -> "Deployed":
        """Deploy a scripted system, whose clock begins in 2026."""
        subject = {"backend": "scripted", "target": "t", "drafts": ["heavy", "light"], "script": "truth.json"}
        deployed = cls(path, subject, datetime(2026, 1, 1, tzinfo=UTC))
        deployed.truth(**(truth or {}))
        return deployed._frozen()

    @classmethod
    def served(cls, path: Path, url: str, backend: str = "openai", **subject: Any) -> "Deployed":
        """Deploy what answers at *url*."""
        written = {"backend": backend, "target": "org/target", "drafts": ["heavy", "light"], "url": url, **subject}
        return cls(path, written, datetime.now(UTC) - timedelta(hours=1))._frozen()

    def _frozen(self) -> "Deployed":
        canaries = canary_lines("easy", 12)
        slo = {
            "schema": 1,
            "name": "deployed",
            "subject": dict(self.subject),
            "workload": [{"name": "easy", "canaries": "easy.jsonl"}],
            "sweep": {"num_draft_tokens": [2, 4]},
            "objective": [{"metric": "error_rate", "at_most": 0, "why": "no answer may fail"}],
        }
        profile = 'schema = 1\nname = "steady"\nmix = { "*" = 1 }\n'
        (self.path / "slo.toml").write_text(tomli_w.dumps(slo))
        write_run(
            self.path / "run",
            {"slo.toml": tomli_w.dumps(slo), "profile.toml": profile, "canaries-easy.jsonl": canaries},
            self.issued,
            SETTING,
            backend=self.subject["backend"],
            target=None,
            drafts=(),
        )
        self.policy()
        return self

    def truth(self, **truth: Any) -> None:
        """Write how a scripted system behaves from now on."""
        usual = {"seed": 3, "tokens": 24, "acceptance": 0.9, "noise": {"answer": 0.02}}
        (self.path / "truth.json").write_text(json.dumps({**usual, **truth}))

    def policy(self, **changes: Any) -> Path:
        """Write the policy that the run certified, and a copy of it outside of the run, to be watched and edited."""
        run = self.path / "run"
        (run / "policy.toml").write_text(self._policy_text(**changes))
        seal(run)
        return self.edited(**changes)

    def edited(self, **changes: Any) -> Path:
        """Write the copy alone."""
        path = self.path / "policy.toml"
        path.write_text(self._policy_text(**changes))
        return path

    def _policy_text(
        self,
        *,
        guards: Sequence[Mapping[str, Any]] = GUARDS,
        watch: Mapping[str, Any] | None = None,
        route: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        usual = {"workload": "easy", "speculation": True, "setting": SETTING, "ladder": list(LADDER)}
        policy = {
            **policy_of(self.path / "run", self.issued),
            "slo": "deployed",
            "watch": {**WATCH, **(watch or {})},
            "route": [{**usual, **(route or {})}],
            "guard": list(guards),
            **changes,
        }
        return tomli_w.dumps(policy)

    def session(
        self, output: WatchOutput, clock: Any = None, traffic: RequestRoutes | None = None, **options: Any
    ) -> AbstractContextManager[Session]:
        """Open a session as the command does, or with *traffic* as the proxy does."""
        config_options = {"run": self.path / "run", "slo": self.path / "slo.toml", **options}
        return open_session(
            WatchConfig(self.path / "policy.toml", **config_options),
            say=lambda text, _: output.messages.append(text),
            write=lambda entry: output.entries.append(dict(entry)),
            clock=clock,
            traffic=traffic,
        )

    def watch(self, rounds: int, **options: Any) -> tuple[int, WatchOutput]:
        """Run *rounds* rounds; return the exit code and the output."""
        output = WatchOutput()
        with self.session(output, **options) as session:
            return session.run(rounds), output

    @property
    def overlay(self) -> str:
        return (self.path / "policy.live.toml").read_text()


class Answering(BackgroundServer):
    """A server that answers every chat with the words its canary expects, as a model of some name."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(_Handler, port)
        self.model = "org/target"
        self.status = 200
        self.drafted, self.accepted = 10, 9
        self.cached: int | None = None
        """Prompt tokens that it says were cached; None: it says nothing."""


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    server: Answering

    def do_GET(self) -> None:
        document = {"data": [{"id": self.server.model}]} if self.path == "/v1/models" else {"status": "ok"}
        self.send(self.server.status, json.dumps(document).encode(), "application/json")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        deltas: list[dict[str, Any]] = [{"delta": {"content": f"word{number} "}} for number in range(8)]
        deltas.append({"delta": {}, "finish_reason": "stop"})
        pieces: list[dict[str, Any]] = [{"choices": [{"index": 0, **delta}]} for delta in deltas]
        usage: dict[str, Any] = {"prompt_tokens": 5, "completion_tokens": 8}
        if self.server.cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.server.cached}
        pieces.append({"choices": [], "usage": usage, "timings": self._timings()})
        lines = [f"data: {json.dumps({'id': 'x', 'model': self.server.model, **piece})}\n\n" for piece in pieces]
        body = "".join([*lines, "data: [DONE]\n\n"]).encode()
        self.send(self.server.status, body, "text/event-stream")

    def _timings(self) -> dict[str, Any]:
        return {"draft_n": self.server.drafted, "draft_n_accepted": self.server.accepted}
