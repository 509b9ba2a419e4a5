"""The homecoming of a far run: what was fetched is verified and judged again here, and nothing else decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper import casefile, proof, store
from gatekeeper.reports import machine
from gatekeeper.stages.promote import POLICY
from gatekeeper.terms.errors import GatekeeperError, HostLacksError, InputError, NoProofError
from gatekeeper.terms.outcome import Verdict

INTERRUPTED = 130
VERDICTS = (0, 1, 3)
"""Exit codes a run that reached its verdict may end with."""
LOST = {
    "died": "gatekeeper there died without a word (killed, or out of memory)",
    "rebooted": "the machine was restarted during the run",
}


@dataclass(frozen=True, slots=True)
class Homecoming:
    """What came of a run."""

    path: Path
    verdict: Verdict | None
    """By this machine's judgement; None where too little came home to judge."""
    text: str = ""
    """The content of verdict.json."""
    promoted: bool = False
    exact: bool = False
    """The two verdicts agree byte for byte; False with other versions, where only the outcomes have to."""
    document: dict[str, Any] | None = None
    """What a sweep or a probe answers; they have no verdict."""
    trouble: GatekeeperError | None = None
    """Why the verdict does not stand: the run did not end by itself, was changed on its way, or the judges disagree."""

    @property
    def outcome(self) -> str:
        """Return it in one word."""
        if self.trouble is not None:
            return str(getattr(self.trouble, "reason", "unproven"))
        return self.verdict.outcome if self.verdict is not None else "finished"


def receive(out: Path, job: Mapping[str, Any], verb: str) -> Homecoming:
    """Judge what lies in *out* again; *job* is what the far side says of how the run of *verb* ended."""
    trouble = ending(job)
    if _ended_unwatched(out, job):
        trouble = None
    if trouble is None:
        try:
            if verb == "sweep":
                return Homecoming(out, None, document=casefile.swept(out))
            if verb == "probe":
                return Homecoming(out, None, document=_probed(out))
            return _verified(out, job.get("exit"), verb)
        except NoProofError as error:
            trouble = NoProofError(error.reason, f"{out}: {error.message}", hint=error.next(None, out))
    return _partial(out, trouble)


def ending(job: Mapping[str, Any]) -> GatekeeperError | None:
    """Return why a run has no verdict of its own; None where it came to its end."""
    state, ended = str(job.get("state")), job.get("exit") or {}
    said = str(job.get("log") or "").strip()
    log = f"; its last words:\n{_last(said)}" if said else ""
    run = str(job.get("run_id"))
    again = "what was measured came home; go on with it there by --resume, or run the same command anew"
    if state in LOST and not (state == "died" and job.get("cancelled")):
        since = f" (started {job.get('started')})"
        return NoProofError(state, f"run {run}{since} is not finished: {LOST[state]}{log}", hint=again)
    if job.get("cancelled"):
        by = job["cancelled"]
        told = f"run {run} was cancelled by {by.get('who') or 'somebody'} at {by.get('at')}"
        return NoProofError("cancelled", told, hint=again)
    if ended.get("signal"):
        return NoProofError(
            "killed", f"run {run}: gatekeeper there was killed by signal {ended['signal']}{log}", hint=again
        )
    code = ended.get("code")
    if code in VERDICTS and not (code == 3 and not _began(job)):
        return None
    if code == INTERRUPTED:
        return NoProofError("interrupted", f"run {run} was interrupted there", hint=again)
    kinds: dict[Any, type[GatekeeperError]] = {2: InputError, 3: HostLacksError}
    told = f"gatekeeper there ended with {code}"
    return kinds.get(code, GatekeeperError)(f"run {run}: {told}{log}", hint="its words above say what to do there")


def _ended_unwatched(out: Path, job: Mapping[str, Any]) -> bool:
    """Tell whether a run whose supervisor was killed came to its end without it: it seals itself, last of all."""
    return str(job.get("state")) in LOST and not job.get("cancelled") and (out / store.SUMS).is_file()


def _began(job: Mapping[str, Any]) -> bool:
    """Tell whether a run wrote events: one that was refused before its first token ends with 3, too."""
    return int(job.get("progress_bytes") or 0) > 0


def _last(said: str, lines: int = 12) -> str:
    return "\n".join(f"  {line}" for line in said.splitlines()[-lines:])


def _verified(out: Path, ended: Mapping[str, Any] | None, verb: str) -> Homecoming:
    """Check the seals, judge again, and refuse what is not, byte for byte, what the far side says."""
    directory = store.RunDirectory(out)
    proof.sealed(directory)
    run = proof.judged(directory, proof.read_manifest(directory))
    promoted = (out / POLICY).is_file()
    if promoted:
        proof.papers(run)
    # A soak alone ends with 0, whatever it saw; and nobody was there to see how an unwatched run ended.
    if verb == "certify" and ended is not None and run.verdict.exit_code != ended["code"]:
        raise NoProofError(
            "disagreement",
            f"gatekeeper there ended with {ended['code']}, its records give {run.verdict.exit_code}",
            hint="update gatekeeper on both machines and certify again",
        )
    return Homecoming(out, run.verdict, directory.read("verdict.json").decode(), promoted, run.exact)


def _probed(out: Path) -> dict[str, Any]:
    return store.document(store.RunDirectory(out).read("probe.json"), "probe.json")


def _partial(out: Path, trouble: GatekeeperError) -> Homecoming:
    try:
        verdict = casefile.judge(out)
    except (GatekeeperError, ValueError):
        return Homecoming(out, None, trouble=trouble)
    if verdict.exit_code == 0:  # good news of records that do not stand is none
        return Homecoming(out, None, trouble=trouble)
    return Homecoming(out, verdict, machine.render(verdict), promoted=False, trouble=trouble)
