"""How well the costs of rounds predict the speed of stored runs: the little pair in process and on two real servers.

    python -m bench.ceiling [--seconds 20] [--canaries 12] [--keep DIR] [--json] [mlx mlx-server llama-server]

Each backend sweeps draft lengths on workloads whose acceptance differs, each in a run directory with its records; right
before and after that, passes and rounds are timed as `gatekeeper ceiling --draft` does, with as many tokens cached as
the answers have before their middle. Of each setting the counted rounds (drafted and accepted) and the costs alone
predict the speed over plain decoding's; the sweep's ratio is the measured one. The rounds of llama-server are its
claims. The goal is an error of at most 10 %, and a setting whose measured ratio is known less exactly than that, as
beside other work, tests nothing: their number is printed. `--keep` keeps the runs, and predicts those that it finds
there with times of now.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import tomli_w

from gatekeeper.analysis.metrics.paired_answers import successful
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.sweep.ceiling import Ceiling, ceiling_of
from gatekeeper.analysis.sweep.setting_result import setting_results
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.records import Generation, PassTimes, Role, Rounds
from gatekeeper.core.system import inputs
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.core.verdict import Estimate, Missing
from gatekeeper.run.certify import sweep_alone
from gatekeeper.run.open_run import RunRequest
from gatekeeper.run.stages.timed_turns import CONFIDENCE
from gatekeeper.run.start.measured_ceiling import TimedTarget, time_target
from gatekeeper.run.stored.load import load_case
from tools import write_gguf

ROOT = Path(__file__).resolve().parents[1]
CONTEXTS = {"json": 68, "list": 39, "prose": 71, "random": 56}
"""By workload: the tokens before the middle of its answers, prompts included."""
LENGTHS = (1, 2, 4, 6, 8)
TOKENS = 64
GOAL = 0.1
LAYERS = 160
"""Of the target in llama-server; all but its own eight change no logit. Its weights are then more than the caches of
most processors hold, as those of a real model are: with fewer layers a token of plain decoding gets twice as fast
within an answer, as a cache fills, and no pass that is timed alone is as fast. Also what the server does besides
passes, 0.05 ms for each token, is then one part in a hundred."""
ARGS = {"llama-server": ("--threads", "1", "--parallel", "1")}
"""Two threads that wait for each other on two busy cores would be the noise of such a small model."""
BACKENDS = ("mlx", "mlx-server", "llama-server")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A setting on a workload: its speed over plain decoding's, as the costs of rounds predict it and as measured."""

    backend: str
    workload: str
    draft_length: int
    acceptance: float
    predicted_ratio: float
    measured_ratio: float
    measured_lo: float
    measured_hi: float

    @property
    def error(self) -> float:
        """Return by how much the prediction is above the measured ratio, as a share of it."""
        return self.predicted_ratio / self.measured_ratio - 1

    @property
    def vague(self) -> bool:
        """Return whether the measured ratio is known too roughly to tell an error of the goal's size."""
        return self.measured_hi / self.measured_lo > (1 + GOAL) ** 2


def write_slo(backend: str, workload: str, folder: Path, canaries: int, layers: int) -> Path:
    """Write the SLO of a sweep of the little pair into *folder*, and its models where they are files there."""
    names = ("little-target", "little-draft")
    models = [ROOT / "models" / name for name in names]
    if backend == "llama-server":
        for model, depth in zip(models, (layers, None), strict=True):
            write_gguf.write(model, folder / f"{model.name}.gguf", layers=depth, kind="F16")
        models = [folder / f"{name}.gguf" for name in names]
    target, draft = map(str, models)
    slo = {
        "schema": 1,
        "name": backend,
        "why": "Known rounds at several draft lengths.",
        "subject": {"backend": backend, "target": target, "drafts": [draft], "args": ARGS.get(backend, ())},
        "sampling": {"temperature": 0.0, "max_tokens": TOKENS},
        "sweep": {"repeats": 2, "num_draft_tokens": list(LENGTHS), "stop": "never", "budget": 2 * canaries},
        "workload": [{"name": workload, "canaries": f"little/{workload}", "first": canaries}],
        "objective": [{"metric": "throughput_ratio", "at_least": 1.0, "why": "It must help."}],
    }
    path = folder / "slo.toml"
    path.write_text(tomli_w.dumps(slo), encoding="utf-8")
    return path


def time_pair(backend: str, slo: Path, seconds: float, context: int) -> list[PassTimes]:
    """Return turns of the pair of *slo*, the first one left out; raise GatekeeperError where none can be timed."""
    subject = inputs.read(slo).slo.subject
    timed = TimedTarget(subject.target, backend, subject.drafts[0], args=subject.args)
    turns = time_target(timed, seconds=seconds, context=context)
    if isinstance(turns, Missing):
        raise GatekeeperError(f"{backend}: {turns.because}", hint="see docs/ceiling.md")
    return turns[1:]


def read_case(slo: Path, run: Path) -> Case:
    """Return the records of a stored run."""
    directory = RunDirectory(run)
    content = directory.read("manifest.json")
    return load_case(directory, inputs.read(slo), inputs.load_manifest(content), content.decode())


def total_rounds(answers: Sequence[Generation]) -> Rounds:
    """Return the rounds of all *answers* together, the server's claims where we counted none."""
    counted = [
        generation.answer.rounds
        for generation in successful(counted_or_claimed(tuple(answers))[0])
        if generation.role is Role.MEASURED and generation.answer.rounds is not None
    ]
    return Rounds(*(sum(getattr(rounds, name) for rounds in counted) for name in ("rounds", "drafted", "accepted")))


def predicted_ratio(ceiling: Ceiling, rounds: Rounds) -> float | None:
    """Return the speed over plain decoding's of an answer with known *rounds*; None beyond the measured lengths.

    A round costs what one of the mean drafted length does, between measured lengths by a straight line.
    """
    if not rounds.rounds:
        return None
    drafted = rounds.drafted / rounds.rounds
    cost_by_length = {0: ceiling.pass_s[1] / ceiling.plain_s} | {
        cost.length: cost.cost.center for cost in ceiling.rounds
    }
    below = max((length for length in cost_by_length if length <= drafted), default=None)
    above = min((length for length in cost_by_length if length >= drafted), default=None)
    if below is None or above is None:
        return None
    share = (drafted - below) / (above - below) if above > below else 0.0
    cost = cost_by_length[below] + share * (cost_by_length[above] - cost_by_length[below])
    return (1 + rounds.accepted / rounds.rounds) / cost


def predictions(backend: str, case: Case, workload: str, ceiling: Ceiling) -> Iterator[Prediction]:
    """Yield a prediction for each setting of a sweep whose ratio was measured."""
    sweep = case.sweep_answers(workload)
    for result in setting_results(sweep):
        rounds = total_rounds(sweep.of(result.trial.name))
        predicted = predicted_ratio(ceiling, rounds)
        if predicted is not None and isinstance(result.ratio, Estimate):
            ratio = result.ratio
            length = int(dict(result.trial.setting)["num_draft_tokens"])
            acceptance = rounds.accepted / rounds.drafted
            yield Prediction(
                backend, workload, length, acceptance, predicted, ratio.center, measured_lo=ratio.lo,
                measured_hi=ratio.hi,
            )  # fmt: skip


def predict(backend: str, folder: Path, arguments: argparse.Namespace) -> Iterator[Prediction]:
    """For each workload time the pair, sweep unless the run is stored, time it again, and predict."""
    for workload, context in CONTEXTS.items():
        place = folder / workload
        place.mkdir(parents=True, exist_ok=True)
        slo = write_slo(backend, workload, place, arguments.canaries, arguments.layers)
        turns = time_pair(backend, slo, arguments.seconds / 2, context)
        if not (place / "run").exists():
            sweep_alone(RunRequest(slo, place / "run"))
        turns += time_pair(backend, slo, arguments.seconds / 2, context)
        ceiling = ceiling_of(turns, CONFIDENCE)
        if isinstance(ceiling, Missing):
            raise GatekeeperError(f"{backend}: {ceiling.because}", hint="raise --seconds")
        yield from predictions(backend, read_case(slo, place / "run"), workload, ceiling)


def table(rows: Sequence[Prediction]) -> str:
    """Return the predictions as a Markdown table, and the errors of each backend."""
    lines = [
        "| backend | workload | drafted | acceptance | predicted | measured | error |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.backend} | {row.workload} | {row.draft_length} | {row.acceptance:.2f} | {row.predicted_ratio:.2f} "
        f"| {row.measured_ratio:.2f} ({row.measured_lo:.2f} to {row.measured_hi:.2f}) | {row.error:+.1%} |"
        for row in rows
    ]
    for backend in dict.fromkeys(row.backend for row in rows):
        errors = [abs(row.error) for row in rows if row.backend == backend]
        within = sum(error <= GOAL for error in errors)
        vague = sum(row.vague for row in rows if row.backend == backend)
        lines.append(
            f"\n{backend}: {within} of {len(errors)} within {GOAL:.0%}; error {median(errors):.1%} in the median, "
            f"{max(errors):.1%} at most; of {vague} the measured speed is known less exactly than that"
        )
    return "\n".join(lines)


def main() -> None:
    """Predict, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("backends", nargs="*", default=BACKENDS)
    parser.add_argument("--seconds", type=float, default=20, help="of timed passes around each sweep")
    parser.add_argument("--canaries", type=int, default=6, help="of each workload")
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the target in llama-server")
    parser.add_argument("--keep", type=Path, help="the folder that keeps the runs, and has those of an earlier call")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        rows = [row for backend in arguments.backends for row in predict(backend, folder / backend, arguments)]
    print(json.dumps([asdict(row) | {"error": row.error} for row in rows], indent=1) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
