"""The end of a run: its verdict, its policy where the verdict allows one, the reports and the checksums."""

from dataclasses import dataclass
from pathlib import Path

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.verdict.policy.certified_policy import allows_policy, issue_policy
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.clock import stamp
from gatekeeper.core.document import text_of
from gatekeeper.core.manifest import sha256
from gatekeeper.core.records import Event, EventKind
from gatekeeper.core.system import record_files
from gatekeeper.core.system.run_directory import EVENTS_FILE, JUNIT, POLICY, REPORT, VERDICT
from gatekeeper.core.text import json_text
from gatekeeper.report import junit
from gatekeeper.report.attestation import CERTIFICATE, CHAIN
from gatekeeper.report.data.decision import Decision
from gatekeeper.report.data.page_data import page_data
from gatekeeper.report.html import page
from gatekeeper.report.policy_toml import render
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.stored import tries, verify


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a run."""

    decision: Decision
    text: str
    """The content of verdict.json."""
    path: Path
    telemetry: str | None = None
    """Why the collector does not have all telemetry of the run; None where it has, or none is configured."""
    tries: str | None = None
    """Why the record of tries on this host is not complete; None where it is."""

    @property
    def verdict(self) -> Verdict:
        """Return the verdict that was decided."""
        return self.decision.verdict


def publish(run: ActiveRun) -> Finished:
    """Judge the records; write the verdict, the policy where the verdict allows one, the reports and the checksums."""
    case, directory, manifest = run.case(), run.directory, run.prepared.manifest
    verdict = conclude(case).verdict
    text = text_of(verdict)
    directory.write(VERDICT, text)
    events = record_files.read_records(directory.path / EVENTS_FILE, record_files.EVENTS).records
    now = run.backend.clock.wall()
    policy = None
    if allows_policy(case.plan, verdict):
        content = issue_policy(run.slo, verdict, manifest, events, verdict_sha256=sha256(text), issued=now)
        policy = render(content)
        directory.write(POLICY, policy)
        directory.write(CHAIN, json_text(verify.chain_of(directory, manifest, events)))
        certificate = verify.certificate_of(directory, manifest, verdict, content, events)
        directory.write(CERTIFICATE, json_text(certificate))
    else:  # killed between these files, and resumed to another verdict
        for name in (POLICY, CHAIN, CERTIFICATE):
            directory.remove(name)
    directory.write(JUNIT, junit.render(verdict))
    report = page_data(case, verdict, events, finished=True, manifest=manifest, policy=policy)
    directory.write(REPORT, page.render(report))
    directory.write_checksums()
    gap = tries.add_run(directory, manifest, run.slo, verdict.exit_code)
    for observer in run.observers:
        observer(Event(stamp(now), EventKind.VERDICT, {"outcome": verdict.outcome, "exit_code": verdict.exit_code}))
    return Finished(report.decision, text, directory.path, run.telemetry.trouble, gap)
