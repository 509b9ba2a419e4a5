"""One run of the bench: canaries answered in both arms, as the records of each kind of backend show them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bench.exactness.many_answers import (
    LIKELIEST,
    Floats,
    Kernel,
    LittleModel,
    Place,
    Prompts,
    Written,
    perturbed,
    plain_answers,
    readings,
    speculating_answers,
)
from bench.exactness.planted import Kind, Numbers, hash_of, struck
from gatekeeper.analysis.metrics.words.replayed_rounds import ImpossibleRoundsError, round_passes
from gatekeeper.analysis.metrics.words.scored_answers import Continuation
from gatekeeper.backends.workers.rounds import count_rounds
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import RoundPasses
from gatekeeper.core.records import (
    Answer,
    Generation,
    Likely,
    Numerics,
    Parting,
    Replayed,
    Role,
    Scored,
    setting,
)
from gatekeeper.core.records.arrivals import Arrival

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ("json", "code", "prose", "math")
CANARIES = 58
"""Of each workload in a run: 232 in all, as in m4-24gb."""
DRAFT_TOKENS = 3
DRAFTING, PLAIN = setting(draft="little-draft", num_draft_tokens=DRAFT_TOKENS), setting(draft=None)
AT_ONCE = 16
"""Answers that are read together."""
TOKEN_NS, ROUND_NS = 20_000_000, 30_000_000
"""A token of plain decoding, and a round of the draft: these runs have no times, and speed must not decide."""


class LittlePair:
    """The models, all canaries, and plain decoding's answers where no noise is inside the network."""

    def __init__(self) -> None:
        folder = ROOT / "models"
        self.target, self.draft = LittleModel(folder / "little-target"), LittleModel(folder / "little-draft")
        self.tokenizer = Tokenizer.from_file(str(folder / "little-target" / "tokenizer.json"))
        self.canaries: list[tuple[str, Canary]] = []
        for workload in WORKLOADS:
            for line in (ROOT / "canaries" / "little" / f"{workload}.jsonl").read_text("utf-8").splitlines():
                self.canaries.append((workload, Canary.model_validate_json(line)))
        self.prompts = self._prompts(folder / "little-target")

    def _prompts(self, folder: Path) -> Prompts:
        from mlx_lm.tokenizer_utils import load as load_tokenizer  # noqa: PLC0415  it takes a second

        template = load_tokenizer(folder)
        tokens = [
            tuple(template.apply_chat_template(list(canary.messages), add_generation_prompt=True))
            for _, canary in self.canaries
        ]
        end = json.loads((folder / "config.json").read_text())["eos_token_id"]
        limits = tuple(canary.max_tokens or 0 for _, canary in self.canaries)
        hashes = np.array([hash_of(list(prompt[:-1])) for prompt in tokens], np.uint64)
        return Prompts(tuple(tokens), limits, hashes, end)

    @cached_property
    def plain(self) -> list[Written]:
        """Return plain decoding's answers to all canaries."""
        return plain_answers(self.target, self.prompts, Kernel())

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of an answer."""
        kept = tokens[:-1] if tokens and tokens[-1] == self.prompts.end else tokens
        return str(self.tokenizer.decode(list(kept), skip_special_tokens=False))


@dataclass(slots=True)
class Run:
    """The answers of both arms to some canaries of each workload."""

    pair: LittlePair
    rows: list[int]
    """Of the canaries."""
    kernel: Kernel
    plain: list[Written]
    drafted: list[Written]
    touched: set[int]
    """Answers in which the engine itself may have gone wrong: indices into `rows`."""
    canaries: Mapping[str, list[int]] = field(init=False)
    """The indices into `rows` of each workload."""
    plainly: dict[int, tuple[tuple[Likely, ...], ...]] = field(default_factory=dict)
    """What plain decoding prefers at each place of a drafted answer."""

    def __post_init__(self) -> None:
        self.canaries = {
            workload: [index for index, row in enumerate(self.rows) if self.pair.canaries[row][0] == workload]
            for workload in WORKLOADS
        }

    @property
    def prompts(self) -> Prompts:
        """Return the prompts of this run."""
        return self.pair.prompts.take(self.rows)

    def generations(self, workload: str, *, counted: bool) -> tuple[tuple[Generation, ...], tuple[Generation, ...]]:
        """Return the drafted and the plain answers of a workload; *counted*: tokens and rounds are seen."""
        drafted = tuple(self._generation(index, "candidate", counted=counted) for index in self.canaries[workload])
        return drafted, tuple(self._generation(index, "plain", counted=counted) for index in self.canaries[workload])

    def _generation(self, index: int, arm: str, *, counted: bool) -> Generation:
        workload, canary = self.pair.canaries[self.rows[index]]
        drafting = arm == "candidate"
        written = (self.drafted if drafting else self.plain)[index]
        begun = (2 * index + drafting) * 10**10
        ends = written.tokens[-1:] == [self.pair.prompts.end]
        arrivals = tuple(_arrivals(written, begun, drafting=drafting, counted=counted))
        rounds = None
        if drafting and counted:
            limit = self.pair.prompts.limits[self.rows[index]]
            proposals = ";".join(" ".join(map(str, proposal)) for proposal in written.proposals)
            rounds = count_rounds(written.drafted, draft_tokens=DRAFT_TOKENS, max_tokens=limit)
            rounds = replace(rounds, proposals=proposals)
        answer = Answer(
            begun,
            arrivals[-1].at_ns if arrivals else begun,
            arrivals,
            text=self.pair.text(written.tokens),
            finish="stop" if ends else "length",
            output_tokens=len(written.tokens),
            rounds=rounds,
        )
        key, role = f"{arm}-{workload}-{canary.id}", Role.MEASURED if drafting else Role.BASELINE
        knobs = DRAFTING if drafting else PLAIN
        return Generation("soak-1", key, workload, canary.id, arm, knobs, role, 0, canary.id, 1, answer)

    def index_of(self, workload: str, canary: str) -> int:
        """Return the index of a canary."""
        return next(index for index in self.canaries[workload] if self.pair.canaries[self.rows[index]][1].id == canary)

    def replays(self, generations: Sequence[Generation], *, everything: bool) -> tuple[Replayed, ...]:
        """Return what the target shows of answers that it reads again round by round.

        An answer of a sound engine whose rounds are read as it wrote them shows the same bits, so that only answers
        that a defect touched are read in fact; *everything*: all are.
        """
        records: list[Replayed] = []
        reading: list[tuple[int, RoundPasses]] = []
        for generation in generations:
            index = self.index_of(generation.workload, generation.canary)
            record = Replayed(
                generation.workload,
                generation.canary,
                generation.key,
                generation.arm,
                generation.answer.output_tokens or 0,
            )
            if generation.arm == "candidate":
                try:
                    passes = round_passes(generation.answer)
                except ImpossibleRoundsError as error:
                    record = replace(record, impossible=str(error))
                else:
                    record = replace(record, rounds=len(passes or ()), steady=True)
                    if passes and (everything or index in self.touched or passes != self._own_passes(index)):
                        reading.append((len(records), passes))
            records.append(record)
        for number, parted in self._parted(reading, records).items():
            records[number] = replace(records[number], parted=parted)
        return tuple(records)

    def _own_passes(self, index: int) -> RoundPasses:
        """Return the passes as a sound engine made them."""
        written, position, passes = self.drafted[index], 0, []
        for proposal in written.proposals:
            flags = written.drafted[position : position + len(proposal) + 1]
            emits = min(flags.index(False) + 1 if False in flags else len(flags), len(written.tokens) - position)
            passes.append((emits, *proposal[emits - 1 :]))
            position += emits
        return tuple(passes)

    def _parted(
        self, reading: Sequence[tuple[int, RoundPasses]], records: Sequence[Replayed]
    ) -> dict[int, tuple[Parting, ...]]:
        indices = [self.index_of(records[number].workload, records[number].canary) for number, _ in reading]
        partings: dict[int, list[Parting]] = {}
        if not reading:
            return {}
        prompts = self.pair.prompts.take([self.rows[index] for index in indices])
        tokens = [self.drafted[index].tokens for index in indices]
        for read in readings(self.pair.target, prompts, self.kernel, tokens, [passes for _, passes in reading]):
            best = read.logits.argmax(axis=-1)
            for place in np.flatnonzero(best != np.array(read.emitted)):
                row = read.logits[place]
                gap = float(row[best[place]] - row[read.emitted[place]])
                parting = Parting(read.position + int(place), int(best[place]), gap)
                partings.setdefault(reading[read.answer][0], []).append(parting)
        return {number: tuple(parted) for number, parted in partings.items()}

    def widths(self, workload: str, canary: str, width: int) -> Numerics:
        """Return a plain answer read one token at a time and *width* tokens at a time."""
        index = self.index_of(workload, canary)
        tokens = self.plain[index].tokens
        begins = np.arange(len(tokens)) // width * width
        rows = np.minimum(width, len(tokens) - begins)
        if self.kernel.inner.scale:
            passes = [[(int(min(width, len(tokens) - begun)),) for begun in range(0, len(tokens), width)]]
            read = readings(self.pair.target, self.prompts.take([index]), self.kernel, [tokens], passes)
            wide = np.concatenate([reading.logits for reading in read])
        else:
            wide = self._as_read(index, rows)
        narrow = self._as_read(index, np.ones_like(rows))
        gaps, others = zip(*(_leads(one, other) for one, other in zip(narrow, wide, strict=True)), strict=True)
        unit = float(np.spacing(narrow.max(axis=-1)).max())
        return Numerics(workload, canary, width, tuple(range(len(tokens))), gaps, others, unit)

    def _as_read(self, index: int, widths: Numbers) -> Floats:
        """Return the logits before each token of a plain answer, in passes of so many rows."""
        written, prompt = self.plain[index], self.pair.prompts.tokens[self.rows[index]]
        first = len(prompt) - 1 + np.arange(len(written.tokens))
        read = np.array([prompt[-1], *written.tokens[:-1]])
        hashes = self.pair.prompts.hashes[self.rows[index]]
        place = Place(hashes, first, read, widths, first - (len(prompt) - 1))
        return perturbed(self.pair.target.logits(np.stack(written.places)), place, self.kernel)

    def scored(self, workload: str, canary: str, arm: str, *, own_pass: bool) -> Scored:
        """Return an answer with log-probabilities; *own_pass*: of a drafted one, the likeliest of its passes."""
        index = self.index_of(workload, canary)
        written = (self.drafted if arm == "candidate" else self.plain)[index]
        names, text = tuple(f"#{token}" for token in written.tokens), self.pair.text(written.tokens)
        count = len(names)
        if arm == "candidate":
            likely: tuple[tuple[Likely, ...], ...] = ((),) * count
            if own_pass:
                likely = tuple(
                    tuple(Likely(f"#{token}", -lead) for token, lead in zip(row.tokens, row.behind, strict=True))
                    for row in written.likely
                )
            logprobs = tuple(-row.sent_behind for row in written.likely)
            return Scored(workload, canary, arm, text=text, tokens=names, logprobs=logprobs, likeliest=likely)
        # A server tells the model's own probabilities: its grammar comes after them.
        logits = self.pair.target.logits(np.stack(written.places))
        logits = logits - logits.max(-1, keepdims=True)
        logprobs = tuple(float(row[token]) for row, token in zip(logits, written.tokens, strict=True))
        return Scored(workload, canary, arm, text=text, tokens=names, logprobs=logprobs, likeliest=_likeliest(logits))

    def continued(self, workload: str, left: Continuation) -> Scored:
        """Return plain decoding from a beginning of a drafted answer on.

        Behind a difference stand nameless tokens: they are written and not compared.
        """
        drafting = left.drafting
        index = self.index_of(workload, drafting.canary)
        if not self.plainly:
            self._read_plainly()
        rows = self.plainly[index][left.after : left.after + left.tokens]
        names = [row[0].name for row in rows]
        written = drafting.tokens[left.after : left.after + left.tokens]
        parts = next(
            (place for place, pair in enumerate(zip(names, written, strict=True)) if len(set(pair)) > 1), len(names)
        )
        told, unknown = rows[: parts + 1], len(names[parts + 1 :])
        return Scored(
            workload, drafting.canary, "plain", after=left.after, tokens=(*names[: parts + 1], *("",) * unknown),
            logprobs=(*(row[0].logprob for row in told), *(0.0,) * unknown), likeliest=(*told, *((),) * unknown),
        )  # fmt: skip

    def _read_plainly(self) -> None:
        """Read each drafted answer that differs with plain decoding's kernel, AT_ONCE of about one length at once."""
        defect = self.kernel.defect
        grammar = defect if defect is not None and defect.kind is Kind.GRAMMAR else None
        quiet = Kernel(inner=self.kernel.inner, defect=grammar)
        differing = [index for index, arms in enumerate(zip(self.drafted, self.plain, strict=True)) if _differ(*arms)]
        differing.sort(key=lambda index: len(self.drafted[index].tokens))
        for begun in range(0, len(differing), AT_ONCE):
            indices = differing[begun : begun + AT_ONCE]
            tokens = [self.drafted[index].tokens for index in indices]
            whole = [[(len(answer),)] for answer in tokens]
            for reading in readings(self.pair.target, self.prompts.take(indices), quiet, tokens, whole):
                logits = reading.logits - reading.logits.max(-1, keepdims=True)
                self.plainly[indices[reading.answer]] = _likeliest(logits)

    def as_prompt(self, workload: str, scored: Scored, positions: Sequence[int]) -> Numerics:
        """Return the leads of a plain answer while decoding, and where its beginning is read as a prompt."""
        index = self.index_of(workload, scored.canary)
        prompt = self.pair.prompts.tokens[self.rows[index]]
        wide = self._as_read(index, len(prompt) + np.arange(len(scored.tokens)))
        if self.kernel.inner.scale:
            tokens = self.plain[index].tokens
            passes: list[RoundPasses] = [((len(tokens),),)]
            (read,) = readings(self.pair.target, self.prompts.take([index]), self.kernel, [tokens], passes)
            wide = read.logits
        gaps, others = [], []
        for position in positions:
            best, second = scored.likeliest[position][:2]
            gaps.append(best.logprob - second.logprob)
            top = np.argsort(-wide[position])[:2]
            lead = float(wide[position][top[0]] - wide[position][top[1]])
            others.append({best.name: lead, second.name: -lead}.get(f"#{top[0]}"))
        return Numerics(workload, scored.canary, None, tuple(positions), tuple(gaps), tuple(others))


def _differ(drafted: Written, plain: Written) -> bool:
    return drafted.tokens != plain.tokens


def _likeliest(logits: Floats) -> tuple[tuple[Likely, ...], ...]:
    """Return the best tokens of each row [row, token] with their logits, the best first."""
    best = np.argpartition(-logits, LIKELIEST, axis=-1)[:, :LIKELIEST]
    order = np.take_along_axis(best, np.argsort(-np.take_along_axis(logits, best, -1), axis=-1, kind="stable"), -1)
    return tuple(
        tuple(Likely(f"#{token}", float(row[token])) for token in tokens)
        for row, tokens in zip(logits, order, strict=True)
    )


def _leads(narrow: Floats, wide: Floats) -> tuple[float, float | None]:
    """Return the lead of the best logit over the second, and of the same two in the wider pass."""
    best, second = np.argsort(-narrow)[:2]
    third = int(wide.argmax()) not in {int(best), int(second)}
    return float(narrow[best] - narrow[second]), None if third else float(wide[best] - wide[second])


def _arrivals(written: Written, begun: int, *, drafting: bool, counted: bool) -> Iterator[Arrival]:
    at, seen = begun, 0
    for number, token in enumerate(written.tokens):
        starts = not drafting or number == 0 or not written.drafted[number - 1]
        at += (ROUND_NS if drafting else TOKEN_NS) if starts else 0
        seen += 1
        if counted:
            yield Arrival(at, 1, written.drafted[number] if drafting else False, token)
        elif not drafting or number + 1 == len(written.tokens) or not written.drafted[number]:
            yield Arrival(at, seen)
            seen = 0


def rows_of(pair: LittlePair, seed: int, count: int = CANARIES) -> list[int]:
    """Return *count* canaries of each workload, drawn without replacement."""
    generator = np.random.default_rng(seed)
    rows: list[int] = []
    for workload in WORKLOADS:
        pool = [row for row, (name, _) in enumerate(pair.canaries) if name == workload]
        rows += sorted(generator.choice(pool, count, replace=False).tolist())
    return rows


def sound_run(pair: LittlePair, rows: list[int], kernel: Kernel) -> Run:
    """Answer in both arms with an engine without a defect."""
    prompts = pair.prompts.take(rows)
    changed = kernel.inner.scale or kernel.defect is not None
    plain = plain_answers(pair.target, prompts, kernel) if changed else [pair.plain[row] for row in rows]
    drafted = speculating_answers(pair.target, pair.draft, prompts, kernel, DRAFT_TOKENS)
    return Run(pair, rows, kernel, plain, drafted, set())


def defective_run(sound: Run, kernel: Kernel) -> Run:
    """Return a run whose answers are those of *sound* but where the defect of *kernel* may strike."""
    defect, pair = kernel.defect, sound.pair
    assert defect is not None
    hashes = sound.prompts.hashes
    if defect.kind in {Kind.TIES, Kind.GRAMMAR}:
        touched = list(range(len(sound.rows)))
    elif defect.kind is Kind.REPETITION:
        touched = np.flatnonzero(struck(defect.rate, defect.seed + 104, hashes)).tolist()
    else:
        rounds = [len(written.proposals) for written in sound.drafted]
        strikes = np.stack([defect.in_round(hashes, number) for number in range(max(rounds))])
        touched = [index for index, count in enumerate(rounds) if strikes[:count, index].any()]
    drafted, plain = list(sound.drafted), list(sound.plain)
    if touched:
        prompts = pair.prompts.take([sound.rows[index] for index in touched])
        again = speculating_answers(pair.target, pair.draft, prompts, kernel, DRAFT_TOKENS)
        for index, written in zip(touched, again, strict=True):
            drafted[index] = written
        if defect.kind is Kind.GRAMMAR:
            plain = plain_answers(pair.target, prompts, kernel)
    by_engine = defect.kind is not Kind.REPETITION
    return Run(pair, sound.rows, kernel, plain, drafted, set(touched) if by_engine else set())
