"""The aftermath of a soak: what is read and asked when its clock has stopped, and what a warm cache shows."""

from collections.abc import Mapping

from gatekeeper.terms.outcome import Finding, Outcome, WorkloadVerdict
from gatekeeper.terms.records import Setting
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict import agreement
from gatekeeper.verdict.agreement import Parting
from gatekeeper.verdict.evidence import Evidence
from gatekeeper.verdict.judge import promises
from gatekeeper.verdict.ladder import speculates

WAY_OUT = {"mlx-server": 'deploy mlx_lm.server with `--prompt-cache-size 0` (args = ["--prompt-cache-size", "0"])'}
"""How a backend's prompt cache is switched off."""


REPEATS = 3
"""Times a canary is sent with the cache on: what is stored wrongly shows at the second, what is then stored at the
third."""


def beside(what: str, soak: str) -> str:
    """Name the file of *what* was recorded after a soak: `soak-1` has `ties-1.jsonl` and `warm-1.jsonl`."""
    return f"{what}-{soak.removeprefix('soak-')}.jsonl"


def promised(slo: Slo, settings: Mapping[str, Setting], metric: str) -> tuple[str, ...]:
    """Return the speculating workloads to which *metric* is promised."""
    return tuple(
        name
        for name, knobs in settings.items()
        if speculates(knobs) and any(one.metric == metric for one in promises(slo, name, speculating=True))
    )


def warmed(slo: Slo, settings: Mapping[str, Setting]) -> tuple[str, ...]:
    """Return the workloads that are asked again with the prompt cache on."""
    return promised(slo, settings, "warm_cache_agreement") if slo.subject.prompt_cache == "as-deployed" else ()


def sampled(slo: Slo, settings: Mapping[str, Setting]) -> tuple[str, ...]:
    """Return the workloads whose first tokens are sampled in both arms."""
    return promised(slo, settings, "first_tokens_p_value") if slo.sampling.distribution_check else ()


def parted(seen: Mapping[str, Evidence]) -> dict[str, tuple[Parting, ...]]:
    """Return, by workload, where greedy answers part from plain decoding's."""
    found = {
        name: agreement.partings(evidence.answers, evidence.plain) for name, evidence in seen.items() if evidence.greedy
    }
    return {name: where for name, where in found.items() if where}


def cache_findings(slo: Slo, soak: str, verdicts: Mapping[str, WorkloadVerdict]) -> list[Finding]:
    """Return a finding for each workload whose answers a warm prompt cache changes, with the way out."""
    return [
        Finding(
            "warm_cache_changes_answers",
            f"{soak}, {name}",
            f"with the prompt cache on, as deployed, greedy answers change: {one.because}",
            f"{WAY_OUT.get(slo.subject.backend, 'deploy it with the prompt cache off')}, or decode plainly",
        )
        for name, verdict in verdicts.items()
        for one in verdict.checks
        if one.metric == "warm_cache_agreement" and one.outcome is Outcome.FAIL
    ]
