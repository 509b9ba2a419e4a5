"""What each word of a verdict means, how it is computed and what to do: metrics, outcomes, findings, reasons.

`gatekeeper explain` prints it, reports take remedies from it, and `tools/write_reference.py` writes it to the docs.
"""

from dataclasses import dataclass

from gatekeeper.core.metrics import ALL, BY_NAME
from gatekeeper.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """One word."""

    word: str
    kind: str
    """metric | outcome | finding | reason"""
    means: str
    formula: str = ""
    remedy: str = ""

    def document(self) -> dict[str, str]:
        """Return it as `explain --json` prints it."""
        return {"word": self.word, "kind": self.kind, "means": self.means} | {
            name: text for name, text in (("formula", self.formula), ("what_to_do", self.remedy)) if text
        }


_WRONG, _FAILS, _MEMORY, _COOL, _LEAK = (
    BY_NAME[name].remedy
    for name in ("token_agreement", "error_rate", "memory_headroom", "throttle_time", "footprint_growth")
)
"""A finding about the same thing as a metric has the same remedy."""

OUTCOMES: dict[str, tuple[str, str]] = {
    "pass": ("the whole interval meets the bound", ""),
    "fail": ("the whole interval misses the bound", "see `gatekeeper explain METRIC`"),
    "unproven": (
        "the evidence does not decide it: the bound lies inside the interval, or something was not measured",
        "do what the report says under “What to do”; often `gatekeeper certify SLO --extend 30m --output RUN`",
    ),
    "promoted": ("drafting passes every check: the policy turns it on", "`gatekeeper admit`, then deploy policy.toml"),
    "graded_back": (
        "drafting is off and plain decoding passes its checks; exit code 1 where the workload requires speculation",
        'see which objective the settings given up did not meet, or set speculation = "optional"',
    ),
    "failed": ("even the last setting misses an objective", "change the setting, the model or the bound"),
    "demo": ("a soak under 600 s: it shows that everything works, but is not a certificate", 'soak.duration = "600 s"'),
    "certification": ("a soak of 600 s or more", ""),
}
"""Words of checks, workloads, runs and grades: the meaning, and what to do."""

FINDINGS: dict[str, tuple[str, str]] = {
    "answers_differ": ("greedy answers have other words than plain decoding's", _WRONG),
    "background_busy": ("background jobs of the system used the processor", "wait until they have finished"),
    "clock_set": ("the time of day was set back during the soak", "leave the clock alone during a run"),
    "counter_backwards": ("a counter of the host fell", "run the soak again"),
    "counter_lie": (
        "counts of drafted and accepted tokens cannot be true, so acceptance is void",
        "do not rely on the server's counters; report them to its developers",
    ),
    "damaged_records": ("lines of a record file were damaged; they are left out", "check the disk; run again"),
    "drafting_not_shown": ("the server does not show whether it drafts", "see the backend's page in docs/servers.md"),
    "first_answer_failed": ("the short request before the run failed", _FAILS),
    "gpu_reset": ("the GPU was reset during the soak", "update the system; run the soak again"),
    "host_restarted": ("the host was restarted or updated during the soak", "run the soak again"),
    "host_slept": ("the host slept during the soak", "keep the lid open and prevent sleep, then run the soak again"),
    "length_mismatch": ("answers of the two arms differ in length", "check for truncated answers or early stops"),
    "low_power_mode": ("the speeds apply to low-power mode only", "switch it off for the deployed mode"),
    "memory_contradiction": ("two sensors disagree on the memory", "use a native Python and system tools"),
    "memory_exhaustion": ("memory grows, and would be used up before the certificate expires", _LEAK),
    "model_swapped": ("answers of one arm came from different models", "keep one model loaded in the server"),
    "oom_kill": ("processes were killed for lack of memory", _MEMORY),
    "on_battery": ("the host ran on battery", 'connect the charger, or set power = "any"'),
    "other_model": ("the two arms are served by different models", "serve the same target in both arms"),
    "power_lost": ("the power source changed during the soak", "connect the charger, then run the soak again"),
    "power_mode_changed": ("the power mode changed during the soak", "keep one power mode and run the soak again"),
    "quantisation_mismatch": ("draft and target are quantised differently", "try a draft quantised like the target"),
    "replayed": (
        "repeats of a request are answered faster in one arm only, as from a cache",
        "switch the server's answer cache off",
    ),
    "silent_speculation": ("a draft is set, and proposes nothing", "check the server's log and both vocabularies"),
    "swapped_in": ("memory was read from swap, and none written", _MEMORY),
    "swapped_out": ("memory was written to swap", _MEMORY),
    "thermal_contradiction": ("no sensor reports throttling, but the GPU slowed down", _COOL),
    "thermally_degraded": ("the thermal level was 1 in some samples", _COOL),
    "thermally_throttled": ("the thermal level was 2 or more in some samples", _COOL),
    "translated": ("gatekeeper runs under Rosetta", "install a native Python"),
    "unstable_arm": (
        "plain decoding varies too much, or in two groups, to compare with",
        "close other programs, cool the host, and run again",
    ),
    "virtual_mac": ("a virtual Mac: its sensors show no real machine", "certify on the physical machine"),
    "virtual_machine": ("other guests share the processor, and sensors are missing", "certify on a physical machine"),
    "vocabulary_padding": ("the vocabularies differ in padding alone", ""),
    "warm_cache_changes_answers": (
        "greedy answers change with the prompt cache on, as deployed",
        "deploy with the prompt cache off, or decode plainly",
    ),
    "warm_prompt": ("prompts were cached although the cache should be off", "switch the server's prompt cache off"),
}
"""By the kind of a finding: what was seen, and what to do."""

REASONS: dict[Reason, tuple[str, str]] = {
    Reason.ADMITTED: ("the newest matching run passes", "deploy the policy.toml it names"),
    Reason.BROKEN_PROMISE: ("the newest matching run failed an objective", "see its report"),
    Reason.NO_RUN: ("there is no run of this SLO file and these models", "gatekeeper certify SLO"),
    Reason.UNFINISHED: ("the run has not ended", "wait, or continue it with --resume"),
    Reason.TAMPERED: (
        "a file of the run differs from its checksum or its records",
        "restore the run, or certify again",
    ),
    Reason.UNREADABLE: ("the run cannot be read", "restore the run, or update gatekeeper"),
    Reason.UNPROVEN: ("the run did not decide every objective", "gatekeeper judge RUN, then certify again"),
    Reason.EXPIRED: ("the certificate has ended", "gatekeeper certify SLO"),
    Reason.NOT_YET_VALID: (
        "the certificate was issued in the future",
        "set the clock of this machine, or of the one that certified",
    ),
    Reason.DEMO: ("the soak was shorter than 600 s", "certify with a longer soak, or accept it with --grade demo"),
    Reason.OTHER_SLO: ("the run is of another SLO, or of another version of it", "gatekeeper certify SLO"),
    Reason.OTHER_INPUTS: ("canaries or profile changed since the run", "gatekeeper certify SLO"),
    Reason.OTHER_ARTIFACTS: ("the models here are not the certified ones", "gatekeeper certify SLO"),
    Reason.OTHER_HOST: ("the run's host is not the one of [host]", "certify on a host that matches"),
    Reason.OTHER_SERVER: (
        "the running server does not meet the conditions of the policy",
        "start it as the policy's launch line says",
    ),
    Reason.UNSIGNED: ("no allowed signer signed the certificate", "gatekeeper sign RUN --key KEY"),
    Reason.NO_ARTIFACTS: ("the models are not on this machine to hash", "download them, or run admit where they are"),
    Reason.CANCELLED: ("the remote run was cancelled", "start it again"),
    Reason.DAMAGED: ("the remote run's files are damaged", "check that host's disk; start the run again"),
    Reason.DIED: ("the remote run ended without a verdict", "read its log: gatekeeper remote fetch"),
    Reason.DISAGREEMENT: (
        "the records give another verdict than the remote host reported",
        "use the same version there",
    ),
    Reason.INTERRUPTED: ("the remote run was interrupted", "continue it with --resume"),
    Reason.KILLED: ("the remote run was killed", "check that host's memory; continue it with --resume"),
    Reason.REBOOTED: ("the remote host was restarted during the run", "continue it with --resume"),
}
"""By the reason word of `admit` and of remote runs: the meaning, and what to do."""


def entries() -> tuple[GlossaryEntry, ...]:
    """Return every word, by kind."""
    return (
        *(GlossaryEntry(metric.name, "metric", metric.description, metric.formula, metric.remedy) for metric in ALL),
        *(GlossaryEntry(word, "outcome", means, "", remedy) for word, (means, remedy) in OUTCOMES.items()),
        *(GlossaryEntry(word, "finding", means, "", remedy) for word, (means, remedy) in FINDINGS.items()),
        *(GlossaryEntry(reason.value, "reason", means, "", remedy) for reason, (means, remedy) in REASONS.items()),
    )


def explained(word: str) -> list[GlossaryEntry]:
    """Return the entries of *word*, as people write it: with spaces, hyphens or capitals."""
    normalised = word.strip().lower().replace(" ", "_").replace("-", "_")
    return [entry for entry in entries() if entry.word == normalised]
