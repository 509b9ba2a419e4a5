"""How often the rules against misleading evidence refuse a sound run.

    python -m bench.sound --runs 240 --temperature 0    # prints a row a kind of server, and what refused a run
    python -m bench.sound --runs 64 --temperature 0.6 --processes 2

The last time: 0 of 304 runs refused by these rules, 6 unproven as their ratio did not settle, and 2 with a finding that
names an effect of order, or of the request before, and refuses nothing.

Every run is one of the real pipeline in memory (`bench.rehearsal`) on a simulated server without a vice, whose records
then look as those of an HTTP server do: a usage, with or without the stop token; pieces of a token or of a round, with
counts or with their text alone; the server's own count of tokens. Prompts differ in acceptance and length, answers in
noise that lasts; numerics turn a token now and then. Speculation is a fifth faster than it must be, so that a run that
is not promoted is refused: by a finding that voids or a check of `RULES`, or for another reason. Findings that refuse
nothing are counted as well: they name a fault that is none.
"""

import argparse
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from bench.rehearsal import Rehearsed, canaries, rehearse, slo
from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.core.judgement import FindingKind, Outcome
from gatekeeper.core.records import Answer, Generation, StoredRecords
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.slo import Slo

WORKLOADS = ("chat", "code")
CANARIES = 33
"""As many as the test for degenerate answers needs above temperature 0."""
BOUND, GAIN = 1.1, 1.2
RULES = frozenset({
    "answer_throughput_ratio", "numerics_harm_p_value", "sampled_answers_p_value", "truncation_rate",
    "token_agreement", "error_rate", "speculation_engaged",
})  # fmt: skip
"""Checks that hold the words, the counts and the faults of answers against each other."""
FINDINGS = frozenset({
    FindingKind.ACCEPTANCE_COLLAPSED, FindingKind.DRAFTED_FAILED, FindingKind.BUNDLED_FIRST_PIECE,
    FindingKind.CARRIED_OVER, FindingKind.CONTRADICTION, FindingKind.COUNTER_LIE, FindingKind.LENGTH_SHIFT,
    FindingKind.ORDER_EFFECT, FindingKind.PLAIN_SWINGS, FindingKind.SILENT_SPECULATION,
})  # fmt: skip
SHOWN = ("arrivals", "token_count", "text", "claimed_rounds", "memory", "plain")
CHARACTERS = 4
"""Of a token of the simulated server's text."""


@dataclass(frozen=True, slots=True)
class Server:
    """A kind of sound server."""

    temperature: float
    pieces: str
    """`token`, or `round`: what a piece of its stream holds."""
    counted: bool
    """Its pieces carry the number of their tokens."""
    one_process: bool
    """One process serves both arms."""

    @property
    def label(self) -> str:
        """Name it in the table."""
        counts = "counted" if self.counted else "text alone"
        process = "one process" if self.one_process else "a process an arm"
        return f"temperature {self.temperature:g}, a {self.pieces} a piece, {counts}, {process}"


SERVERS = tuple(Server(*kind) for kind in product((0.0, 0.6), ("token", "round"), (True, False), (True, False)))


def slo_of(server: Server) -> Slo:
    """Return an SLO as for a server: two workloads that may decode plainly, and a soak of ten minutes."""
    return slo(
        sampling={"temperature": server.temperature, "max_tokens": 128},
        workload=[{"name": name, "canaries": f"{name}.jsonl", "speculation": "optional"} for name in WORKLOADS],
        sweep={"repeats": 2, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}},
        soak={"duration": 600.0, "max_duration": 2400.0, "until": "decided", "baseline_share": 0.5},
        objective=[{"metric": "throughput_ratio", "at_least": BOUND, "why": "it must pay"}],
    )


def script_of(server: Server, seed: int) -> dict[str, Any]:
    """Return a server whose prompts differ in length and acceptance, at a gain that all of them share."""
    draw = random.Random(seed)
    prompts = {
        f"{name}-{number:03}": {"acceptance": draw.uniform(0.5, 0.95), "tokens": draw.randint(30, 90)}
        for name in WORKLOADS
        for number in range(CANARIES)
    }
    return {
        "seed": seed,
        "sight": SHOWN,
        "shares_process": server.one_process,
        "arrivals": server.pieces,
        "token": 0.04,
        "ratio": {"2": BOUND * GAIN * 0.95, "4": BOUND * GAIN},
        "flips": draw.choice((0.0, 0.001)) if server.temperature == 0 else 0.0,
        "noise": {"answer": draw.choice((0.02, 0.05)), "autocorrelation": 0.5, "token": 0.1},
        "canaries": prompts,
    }


def as_over_http(case: Case, server: Server, seed: int) -> Case:
    """Return the case with the records that an HTTP server of this kind leaves."""
    with_stop = random.Random(seed).random() < 0.5

    def stored(by_name: Mapping[str, StoredRecords[Any]]) -> dict[str, StoredRecords[Any]]:
        return {
            name: replace(
                recorded,
                records=tuple(
                    replace(record, answer=_over_http(record.answer, server, with_stop=with_stop))
                    if isinstance(record, Generation)
                    else record
                    for record in recorded.records
                ),
            )
            for name, recorded in by_name.items()
        }

    return replace(case, sweep=stored(case.sweep), soaks=stored(case.soaks), after_soak=stored(case.after_soak))


def _over_http(answer: Answer, server: Server, *, with_stop: bool) -> Answer:
    tokens = answer.output_tokens
    if tokens is None:
        return answer
    usage = tokens + (with_stop and answer.finish == "stop")
    claims = replace(answer.claims, completion_tokens=usage, decode_tokens=tokens)
    pieces: Sequence[Arrival] = answer.arrivals
    if not server.counted:
        pieces = tuple(
            piece._replace(tokens=None, characters=CHARACTERS * (piece.tokens or 1)) for piece in answer.arrivals
        )
    return replace(answer, output_tokens=usage, claims=claims, arrivals=pieces)


def run(server: Server, seed: int) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return how a sound run ends, what refused it, and which findings name a fault."""
    prompts = {name: canaries(name, CANARIES) for name in WORKLOADS}
    ran: Rehearsed = rehearse(slo_of(server), prompts, script_of(server, seed), seed)
    verdict = conclude(as_over_http(ran.case, server, seed)).verdict
    checks = {
        check.metric
        for workload in verdict.workloads
        for check in (*workload.checks, *(check for step in workload.steps for check in step.checks))
        if check.outcome is not Outcome.PASS
    }
    named = tuple(sorted({str(finding.kind) for finding in verdict.findings if finding.kind in FINDINGS}))
    gained = all(workload.outcome == "promoted" for workload in verdict.workloads)
    return "promoted" if gained else verdict.outcome, () if gained else tuple(sorted(checks)), named


def main() -> None:
    """Print a row a kind of server, and the rules that refused or named something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="in all, spread over the kinds of servers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--temperature", type=float, choices=(0.0, 0.6), help="of all servers; default: of both")
    arguments = parser.parse_args()
    servers = [server for server in SERVERS if arguments.temperature in {None, server.temperature}]
    jobs = [(servers[number % len(servers)], arguments.seed + number) for number in range(arguments.runs)]
    if arguments.processes > 1:
        with ProcessPoolExecutor(arguments.processes) as pool:
            results = list(pool.map(run, *zip(*jobs, strict=True)))
    else:
        results = [run(*job) for job in jobs]
    refusals, names = Counter[str](), Counter[str]()
    for server in servers:
        ended = [result for (kind, _), result in zip(jobs, results, strict=True) if kind == server]
        promoted = sum(outcome == "promoted" for outcome, _, _ in ended)
        print(f"{server.label}: {promoted} of {len(ended)} promoted")
    for _, refused_by, named in results:
        refusals.update(refused_by)
        names.update(named)
    # A ratio that is open takes that of whole answers with it.
    refused = sum(
        bool(checks and named) or ("throughput_ratio" not in checks and bool(RULES & {*checks}))
        for _, checks, named in results
    )
    print(f"refused by these rules: {refused} of {len(results)}")
    print(f"not promoted, by open or failed check: {dict(refusals.most_common())}")
    print(f"findings that name a fault: {dict(names.most_common())}")


if __name__ == "__main__":
    main()
