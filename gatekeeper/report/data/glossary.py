"""What each word of a verdict means, how it is computed and what to do: metrics, outcomes, exit codes, findings.

`gatekeeper explain` prints it, and reports take remedies from it.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from gatekeeper.core.document import IF_ANY, UNWRITTEN
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import FindingKind
from gatekeeper.core.metrics import ALL
from gatekeeper.core.reasons import CERTIFICATION, Reason


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """One word."""

    word: str
    kind: str
    """metric | outcome | exit code | finding | reason | term"""
    means: str
    formula: Annotated[str, IF_ANY] = ""
    remedy: Annotated[str, IF_ANY, Field(alias="what_to_do")] = ""
    title: Annotated[str, UNWRITTEN] = ""
    """What reports call it, where that is another name."""
    aliases: Annotated[tuple[str, ...], UNWRITTEN] = ()
    """What else people call it."""

    @property
    def names(self) -> list[str]:
        """Return each name that it explains, as `explained` compares them: *draft, target* has two."""
        return [_normalise_name(name) for name in (*re.split(r", | \(|\)", self.word), self.title) if name]


TITLES = {
    FindingKind.DRAFTED_FAILED: "drafted answers that failed",
    FindingKind.ANSWERS_DIFFER: "answers differ from plain decoding",
    FindingKind.BACKGROUND_BUSY: "background jobs",
    FindingKind.CARRIED_OVER: "acceptance that depends on the request before",
    FindingKind.CLOCK_SET: "the clock was set back",
    FindingKind.CONTRADICTION: "answers that contradict themselves",
    FindingKind.COUNTER_BACKWARDS: "a counter fell",
    FindingKind.COUNTER_LIE: "impossible counts",
    FindingKind.LENGTH_MISMATCH: "lengths of a pair differ",
    FindingKind.LENGTH_SHIFT: "answers of another length",
    FindingKind.OOM_KILL: "killed for lack of memory",
    FindingKind.PLAIN_SWINGS: "plain decoding that swings",
    FindingKind.SILENT_SPECULATION: "a draft that proposes nothing",
    FindingKind.UNSTABLE_ARM: "unsteady plain decoding",
    FindingKind.WARM_CACHE_CHANGES_ANSWERS: "the warm cache changes answers",
}
"""What a finding is called in a report, where the word of verdict.json is not for readers."""


def finding_title(kind: str) -> str:
    """Write the kind of a finding."""
    return next((title for known, title in TITLES.items() if known == kind), kind.replace("_", " "))


_KIND = re.compile(rf"(?<!\w)(?:{'|'.join(FindingKind)}): ")


def in_words(reason: str) -> str:
    """Return a reason of verdict.json without the kinds of findings in it: what follows them says it in words."""
    return _KIND.sub("", reason)


EXIT_CODE = "exit code"
"""The kind of an entry for what a command ends with."""
OUTCOMES: dict[str, tuple[str, str]] = {
    "pass": ("the whole interval meets the bound", ""),
    "fail": ("the whole interval misses the bound", "see `gatekeeper explain METRIC`"),
    "unproven": (
        "the evidence does not decide it: the bound lies inside the interval, or something is missing",
        "do what the report says under “What to do”; often `gatekeeper certify SLO --extend 30m --output RUN`",
    ),
    "promoted": (
        (
            "drafting passes every check: the policy turns it on; a run in which no workload drafts, and none must, is "
            "called “promoted, keep plain”"
        ),
        "`gatekeeper admit SLO --run RUN`, then deploy its policy.toml",
    ),
    "graded_back": (
        "drafting is off, plain decoding passes; exit code 1 where speculation is required",
        'see which objective was not met, or set speculation = "optional"',
    ),
    "failed": ("even the last setting misses an objective", "change the setting, the model or the bound"),
    "demo": (f"a soak under {CERTIFICATION}: not a certificate", f'soak.duration = "{CERTIFICATION}"'),
    "certification": (f"a soak of {CERTIFICATION} or more", ""),
}
"""Words of checks, workloads, runs and grades: the meaning, and what to do."""

REASONS: dict[Reason, tuple[str, str]] = {
    Reason.ADMITTED: ("the newest matching run passes", "deploy the policy.toml it names"),
    Reason.FAILED_OBJECTIVE: ("the newest matching run failed an objective", "see its report"),
    Reason.NO_RUN: ("there is no run of this SLO file and these models", "gatekeeper certify SLO"),
    Reason.UNFINISHED: ("the run has not ended", "wait, or continue it with --resume"),
    Reason.TAMPERED: (
        "a file differs from its checksum or its records",
        "restore the run, or certify again",
    ),
    Reason.UNREADABLE: ("the run cannot be read", "restore the run, or update gatekeeper"),
    Reason.UNPROVEN: ("the run did not decide every objective", "gatekeeper judge RUN, then certify again"),
    Reason.EXPIRED: ("the certificate has ended", "gatekeeper certify SLO"),
    Reason.NOT_YET_VALID: (
        "the certificate was issued in the future",
        "set the clock",
    ),
    Reason.DEMO: (
        f"the soak was shorter than {CERTIFICATION}",
        "certify with a longer soak, or accept it with --grade demo",
    ),
    Reason.OTHER_RULES: ("the run was planned by other rules than these", "gatekeeper certify SLO"),
    Reason.OTHER_SLO: ("the run is of another SLO or version of it", "gatekeeper certify SLO"),
    Reason.OTHER_INPUTS: ("canaries or profile changed since the run", "gatekeeper certify SLO"),
    Reason.OTHER_ARTIFACTS: ("the models here are not the certified ones", "gatekeeper certify SLO"),
    Reason.OTHER_HOST: ("the run's host is not the one of [host]", "certify on a host that matches"),
    Reason.OTHER_SERVER: (
        "the running server differs from the policy",
        "start it by the policy's launch line",
    ),
    Reason.UNSIGNED: ("no allowed signer signed the certificate", "gatekeeper sign RUN --key KEY"),
    Reason.NO_ARTIFACTS: ("the models are not on this machine to hash", "download them, or run admit where they are"),
    Reason.CANCELLED: ("the remote run was cancelled", "start it again"),
    Reason.DAMAGED: ("the remote run's files are damaged", "check that host's disk; start the run again"),
    Reason.DIED: (
        "the remote run was killed, or its host restarted",
        "check that host's memory; continue it with --resume",
    ),
    Reason.DISAGREEMENT: (
        "the records give another verdict than the remote host reported",
        "use the same version there",
    ),
    Reason.INTERRUPTED: ("the remote run was interrupted", "continue it with --resume"),
    Reason.KILLED: ("the remote run was killed", "check that host's memory; continue it with --resume"),
}
"""What each reason word of `admit` and of remote runs means, and what to do."""

TERMS: dict[str, str] = {
    "arm": "a way to decode in a comparison: plain, or speculative",
    "answer": "the text a model wrote for one request, with its times",
    "baseline request": "a plain request paired with a speculative one of the same canary",
    "canary": "a fixed prompt that is measured; not a canary release",
    "certificate": "an in-toto statement: what was certified, by which records",
    "check": "the result of one objective: pass, fail or unproven",
    "draft, target": "the small model that proposes tokens; the model that verifies them",
    "draft length": "how many tokens the draft proposes in one round (`num_draft_tokens`)",
    "fallback ladder, step": (
        "what is tried after an objective failed: a shorter draft, a lighter draft, plain decoding"
    ),
    "follow-up": "a further measurement after a soak, such as a warm cache, near-ties or first tokens after pauses",
    "frozen, population": "the scope of an interval: these canaries, or prompts like them",
    "guard": "a bound that `watch` checks after the promotion",
    "inter-token latency (ITL)": ("the time between tokens: a burst of m tokens after a gap g counts m times g/m"),
    "knob, setting": "one parameter that is swept; one combination of their values",
    "manifest": "what was frozen before the run: digests, versions, host, sampling",
    "near-tie": "two tokens so close that rounding decides between them",
    "objective": "one `[[objective]]` of an SLO file: a metric, a bound, a reason",
    "optional, required": "whether a workload may decode plainly without failing the run",
    "plain decoding": "decoding without a draft",
    "policy": "`policy.toml`: what may be deployed, a route for each workload, guards",
    "profile": "how a soak's requests arrive, and what else keeps the machine busy",
    "round": "one proposal of the draft and one verify pass of the target",
    "route": "what the policy says for one workload",
    "SLO file": "the system under test, the workloads, the objectives",
    "soak": "the long measurement of the chosen setting, on which the verdict rests",
    "sweep": "the short measurement of every setting, which chooses and proves nothing",
    "TTFT": "time to first token",
    "workload": "a class of prompts with its own verdict and route",
}
"""The field's terms and ours, as the documents use them."""
ALIASES = {
    "promoted": ("keep plain", "kept plain"),
    "graded_back": ("grade back",),
    "pass": ("passed",),
    "fail": ("fails",),
    "draft length": ("num_draft_tokens",),
    "fallback ladder, step": ("ladder",),
    "frozen, population": ("scope",),
    "knob, setting": ("knobs", "settings"),
}
"""What else people look for, by the word that it is."""


def entries() -> tuple[GlossaryEntry, ...]:
    """Return every word, by kind."""
    return (
        *(
            GlossaryEntry(metric.name, "metric", metric.description, metric.formula, metric.remedy, "", metric.aliases)
            for metric in ALL
        ),
        *(
            GlossaryEntry(word, "outcome", means, "", remedy, "", ALIASES.get(word, ()))
            for word, (means, remedy) in OUTCOMES.items()
        ),
        *(_exit_code_entry(code) for code in ExitCode),
        *(
            GlossaryEntry(kind.value, "finding", kind.means, "", kind.remedy, TITLES.get(kind, ""))
            for kind in FindingKind
        ),
        *(GlossaryEntry(reason.value, "reason", means, "", remedy) for reason, (means, remedy) in REASONS.items()),
        *(GlossaryEntry(word, "term", means, "", "", "", ALIASES.get(word, ())) for word, means in TERMS.items()),
    )


def _exit_code_entry(code: ExitCode) -> GlossaryEntry:
    number = str(code.value)
    aliases = (f"exit {number}", f"exit code {number}", f"code {number}", "exit code", "exit codes")
    return GlossaryEntry(number, EXIT_CODE, code.means, remedy=code.remedy, aliases=aliases)


def find_entries(word: str) -> list[GlossaryEntry]:
    """Return the entries of *word*, as people write it: with spaces, hyphens or capitals; else what they mean by it."""
    name, every = _normalise_name(word), entries()
    named = [entry for entry in every if name in entry.names]
    return named or [entry for entry in every if name in map(_normalise_name, entry.aliases)]


def _normalise_name(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")
