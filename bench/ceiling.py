"""How well the costs of rounds predict the speed of stored answers: the little pair in process and on two real servers.

    python -m bench.ceiling [--visits 4] [--canaries 5] [--keep DIR] [--json] [mlx mlx-server llama-server]

Each backend answers canaries of workloads whose acceptance differs, plainly and at several draft lengths. All its
systems run at once, and plain decoding comes before and after each drafted answer: a machine beside other work changes
its speed by a third within seconds, which sweeps, with a process at a time, show as a difference of their arms. After
each canary passes and rounds are timed as `gatekeeper ceiling --draft` does, with as many tokens cached as the answers
have before their middle. The rounds and tokens that the decode speeds are of, and the costs alone, predict the speed
over plain decoding's. How many tokens llama-server drafts is its claim. The goal is an error of at most 10 %, and a
setting whose measured ratio is known less exactly than that tests nothing: their number is printed. `--keep` keeps the
answers as records of a run, and predicts those that it finds there with times of now.
"""

import argparse
import json
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import fmean, geometric_mean, median

from gatekeeper import host
from gatekeeper.analysis.metrics.paired_answers import burst_gap, successful
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.timing import bursts, decode_rate
from gatekeeper.analysis.stats.intervals import mean_log
from gatekeeper.analysis.sweep.ceiling import Ceiling, ceiling_of
from gatekeeper.backends import open_backend
from gatekeeper.core import canary as canary_set
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem, SamplingParameters
from gatekeeper.core.records import Generation, PassTimes, Role, Rounds, setting
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.system.record_files import ANSWERS, RecordWriter
from gatekeeper.core.verdict import Missing
from gatekeeper.run.stages.timed_turns import CONFIDENCE, CountedRounds, TimedSystems
from gatekeeper.run.start.measured_ceiling import TimedTarget, started_target
from tools import write_gguf

ROOT = Path(__file__).resolve().parents[1]
CONTEXTS = {"json": 68, "list": 39, "prose": 71, "random": 56}
"""By workload: the tokens before the middle of its answers, prompts included."""
LENGTHS = (1, 2, 4, 6, 8)
PLAIN = 0
"""The draft length of plain decoding."""
TOKENS = 64
AGAIN = 3
"""Passes of each width in a turn over HTTP, where plain decoding takes most of its time."""
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


def find_pair(backend: str, folder: Path, layers: int) -> list[Path]:
    """Return the little pair, as files in *folder* where the backend loads files."""
    models = [ROOT / "models" / name for name in ("little-target", "little-draft")]
    if backend != "llama-server":
        return models
    files = [folder / f"{model.name}.gguf" for model in models]
    for model, file, depth in zip(models, files, (layers, None), strict=True):
        write_gguf.write(model, file, layers=depth, kind="F16")
    return files


@dataclass(frozen=True, slots=True)
class Arms:
    """The pair as running systems, by draft length."""

    draft: str
    systems: Mapping[int, RunningSystem]

    def answer(self, length: int, canary: Canary, key: str = "") -> Generation:
        """Let the system of one length answer."""
        knobs = arm_setting(length, self.draft)
        answer = self.systems[length].answer(DecodeRequest(canary, knobs, SamplingParameters(max_tokens=TOKENS)))
        arm = "candidate" if length else "plain"
        return Generation(str(length), key, "", canary.id, arm, knobs, Role.MEASURED, 0, "", 1, answer)

    def alternated(self, canary: Canary, order: Sequence[int], visit: int) -> Iterator[Generation]:
        """Yield an answer of each length of *order*, with one of plain decoding before and after it."""
        for number, length in enumerate((PLAIN, *(arm for drafted in order for arm in (drafted, PLAIN)))):
            yield self.answer(length, canary, f"{visit}-{canary.id}-{number}")


def arm_setting(length: int, draft: str) -> tuple[tuple[str, object], ...]:
    """Return the setting of a draft length."""
    return setting(draft=draft, num_draft_tokens=length) if length else setting(draft=None)


def start_arms(backend: str, pair: Sequence[Path], stack: ExitStack, logs: Path) -> Arms:
    """Start plain decoding and each draft length, all at once."""
    target, draft = map(str, pair)
    keys = {"backend": backend, "target": target, "drafts": [draft], "args": ARGS.get(backend, ())}
    models = {str(path): path for path in pair}
    opened = open_backend(Subject.model_validate(keys), models=models, base=ROOT, logs=logs)
    lengths = (PLAIN, *LENGTHS)
    return Arms(draft, {length: stack.enter_context(opened.start(arm_setting(length, draft))) for length in lengths})


def rounds_of_arms(arms: Arms, canaries: Sequence[Canary]) -> CountedRounds:
    """Return one of the arms to time rounds of, in answers about as long as those that are predicted."""
    more_tokens = max(canary.max_tokens or TOKENS for canary in canaries) - LENGTHS[-1]
    prompts = [canary.model_copy(update={"max_tokens": None}) for canary in canaries]
    return CountedRounds(arms.systems[LENGTHS[-1]], arms.draft, cycle(prompts), more_tokens)


def measured_logs(answers: Sequence[Generation], length: int, together_s: float) -> dict[str, list[float]]:
    """Return, by canary, the logarithms of the speed of a length over the mean of the plain ones around each answer."""
    logs = defaultdict(list)
    for place, generation in enumerate(answers):
        if generation.trial == str(length):
            rates = [decode_rate(near.answer, together_s) for near in answers[place - 1 : place + 2]]
            before, speed, after = (math.log(rate) if rate else math.nan for rate in rates)
            logs[generation.canary].append(speed - (before + after) / 2)
    return logs


def total_rounds(answers: Sequence[Generation], together_s: float) -> Rounds:
    """Return the rounds of all *answers* together, with the tokens that their decode speeds are of.

    They are the bursts after the first, arrivals closer together than *together_s* being one: the first is what comes
    with the prompt, and no stop token, nor one after it, ever arrives. Where we counted the rounds, the time to the end
    shows a last one that gave the stop token alone. It is one in a server's own count too, and what a busy machine has
    sent late is fewer bursts than rounds.
    """
    judged = successful(answers)
    claimed = [generation.answer.rounds or Rounds(0, 0, 0) for generation in counted_or_claimed(tuple(judged))[0]]
    total = Rounds(*(sum(getattr(rounds, name) for rounds in claimed) for name in ("rounds", "drafted", "accepted")))
    rounds, tokens = 0, 0.0
    for generation, own in zip(judged, claimed, strict=True):
        answer, columns = generation.answer, generation.answer.columns
        rate = decode_rate(answer, together_s)
        if rate is not None and columns.first_ns is not None and columns.last_ns is not None:
            later, arriving_ns = own.rounds - 1, columns.last_ns - columns.first_ns
            if answer.rounds is None:
                later = max(len(bursts(answer, together_s)), later)
            elif 2 * later * (answer.ended_ns - columns.last_ns) > arriving_ns:
                later -= 1
            rounds += later
            tokens += rate * arriving_ns / 1e9
    return Rounds(rounds, round(total.drafted / max(1, total.rounds) * rounds), round(tokens) - rounds)


def predicted_ratio(ceiling: Ceiling, rounds: Rounds, answers: int = 0) -> float | None:
    """Return the speed over plain decoding's of answers with known *rounds*; None beyond the measured lengths.

    A round costs what one of the mean drafted length does, between measured lengths by a straight line. The first round
    of each of so many *answers* takes longer, and so does its first plain token.
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
    first = answers * ceiling.first_s / ceiling.plain_s
    return (rounds.rounds + rounds.accepted + first) / (rounds.rounds * cost + first)


def predictions(backend: str, workload: str, answers: Sequence[Generation], ceiling: Ceiling) -> Iterator[Prediction]:
    """Yield a prediction for each draft length whose ratio was measured: of both, the geometric mean by canary."""
    together_s = burst_gap([generation for generation in answers if generation.trial == str(PLAIN)])
    for length in LENGTHS:
        drafted = [generation for generation in answers if generation.trial == str(length)]
        rounds = total_rounds(drafted, together_s)
        logs = measured_logs(answers, length, together_s)
        ratio = mean_log([fmean(values) for values in logs.values()], CONFIDENCE)
        own_answers = [[generation for generation in drafted if generation.canary == canary] for canary in logs]
        predicted = [predicted_ratio(ceiling, total_rounds(own, together_s), len(own)) for own in own_answers]
        if None not in predicted and not isinstance(ratio, Missing):
            acceptance = rounds.accepted / rounds.drafted
            yield Prediction(
                backend, workload, length, acceptance, geometric_mean([value or 0.0 for value in predicted]),
                ratio.center, measured_lo=ratio.lo, measured_hi=ratio.hi,
            )  # fmt: skip


def time_turn(timed: TimedSystems, backend: str, context: int, draw: random.Random) -> PassTimes:
    """Time a turn of the pair; raise GatekeeperError where none can be timed."""
    widths = [1, *(length + 1 for length in LENGTHS)] * (1 if backend == "mlx" else AGAIN)
    if backend == "mlx":
        timed.turn((1, 2), context)  # after the arms its caches are cold, for the plain tokens that begin a turn most
    times = timed.turn(tuple(draw.sample(widths, len(widths))), context)
    if isinstance(times, Missing):
        raise GatekeeperError(f"{backend}: {times.because}", hint="see docs/ceiling.md")
    return times


def predict(backend: str, folder: Path, arguments: argparse.Namespace) -> Iterator[Prediction]:
    """For each workload alternate the arms, unless its answers are stored, with the timed turns, and predict."""
    folder.mkdir(parents=True, exist_ok=True)
    pair, draw = find_pair(backend, folder, arguments.layers), random.Random(0)
    draft = None if backend == "mlx-server" else str(pair[1])
    target = TimedTarget(str(pair[0]), backend, draft, args=ARGS.get(backend, ()))
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gatekeeper-")))
        stack.enter_context(host.hold_host("bench.ceiling"))
        arms = start_arms(backend, pair, stack, logs)
        for workload, context in CONTEXTS.items():
            text = (ROOT / "canaries" / "little" / f"{workload}.jsonl").read_text("utf-8")
            canaries = canary_set.parse(text, workload)[: arguments.canaries]
            writer, turns = RecordWriter(folder / f"{workload}.jsonl", ANSWERS), list[PassTimes]()
            answers = list(writer.records)
            for length in () if writer.finished else arms.systems:
                arms.answer(length, canaries[0])  # warms up
            with started_target(target, logs / workload) as started:
                timed = replace(started, drafting=rounds_of_arms(arms, canaries)) if draft is None else started
                for visit in range(arguments.visits):
                    for canary in draw.sample(canaries, len(canaries)):
                        order = draw.sample(LENGTHS, len(LENGTHS))
                        for generation in () if writer.finished else arms.alternated(canary, order, visit):
                            writer(generation)
                            answers.append(generation)
                        turns.append(time_turn(timed, backend, context, draw))
            writer.finish()
            ceiling = ceiling_of(turns[1:], CONFIDENCE)
            if isinstance(ceiling, Missing):
                raise GatekeeperError(f"{backend}: {ceiling.because}", hint="raise --visits")
            yield from predictions(backend, workload, answers, ceiling)


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
    parser.add_argument("--visits", type=int, default=4, help="of each canary")
    parser.add_argument("--canaries", type=int, default=5, help="of each workload")
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the target in llama-server")
    parser.add_argument("--keep", type=Path, help="the folder that keeps the answers, and has those of an earlier call")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        rows = [row for backend in arguments.backends for row in predict(backend, folder / backend, arguments)]
    print(json.dumps([asdict(row) | {"error": row.error} for row in rows], indent=1) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
