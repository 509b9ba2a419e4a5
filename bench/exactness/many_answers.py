"""The little pair in numpy: plain, speculating and replayed answers, many at once, on another kernel and with a defect.

mlx-lm decodes one answer at a time, some hundred tokens a second; the table needs millions. A test holds that both
write the same tokens, with the same noise and the same defects.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.exactness.planted import ROLLBACKS, TIE, Defect, Hashes, Kind, Noise, Numbers

Floats = NDArray[np.float32]
SILENT = Noise(0.0)
MASKED = np.float32(-1e30)
REPEATED = np.float32(1e4)
"""What repetition adds to the logit of the last token: more than any logit."""
COMPACT = 0.6
"""Where a smaller share of the answers of a pass goes on, the others are taken out of the arrays."""
LIKELIEST = 5
"""Tokens of a place that a server tells."""
SPARE = 8
"""Rows of a cache behind the longest answer, for drafted tokens that are never kept."""


def weights_of(folder: Path) -> dict[str, Floats]:
    """Return the float32 tensors of a model folder."""
    content = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }


@dataclass(frozen=True, slots=True)
class Layer:
    """One block: its matrices as they are multiplied from the right."""

    into: Floats
    """Queries, keys and values side by side."""
    out: Floats
    gate_up: Floats
    down: Floats
    norms: tuple[Floats, Floats, Floats, Floats]
    """Before the attention, before the feed-forward part, of queries, of keys."""
    noisy: bool
    """The layer behind which inner noise enters."""


@dataclass(slots=True)
class Cache:
    """Keys and values, [layer, answer, head, position, value]."""

    keys: Floats
    values: Floats

    def take(self, rows: NDArray[np.int64]) -> "Cache":
        """Return the cache of some answers."""
        return Cache(self.keys[:, rows], self.values[:, rows])


class LittleModel:
    """A Qwen3 model of the little family."""

    def __init__(self, folder: Path) -> None:
        shape, tensors = json.loads((folder / "config.json").read_text()), weights_of(folder)
        self.heads, self.shared = shape["num_attention_heads"], shape["num_key_value_heads"]
        self.size, self.epsilon = shape["head_dim"], np.float32(shape["rms_norm_eps"])
        self.embedding, self.norm = tensors["model.embed_tokens.weight"], tensors["model.norm.weight"]
        self.head = np.ascontiguousarray(self.embedding.T)
        count = shape["num_hidden_layers"]
        layers = [self._layer(tensors, f"model.layers.{number}.", number == count // 2 - 1) for number in range(count)]
        # Half of the target's layers add only cost: their output matrices are zero.
        self.layers = [layer for layer in layers if layer.out.any() or layer.down.any()]
        frequencies = 1.0 / shape["rope_theta"] ** (np.arange(0, self.size, 2) / self.size)
        angles = np.outer(np.arange(512), frequencies)
        self.cosines, self.sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    @staticmethod
    def _layer(tensors: dict[str, Floats], prefix: str, noisy: bool) -> Layer:
        def matrix(*names: str) -> Floats:
            return np.ascontiguousarray(np.concatenate([tensors[f"{prefix}{name}.weight"] for name in names]).T)

        norms = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
        before, after, queries, keys = (tensors[f"{prefix}{name}.weight"] for name in norms)
        return Layer(
            matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            matrix("self_attn.o_proj"),
            matrix("mlp.gate_proj", "mlp.up_proj"),
            matrix("mlp.down_proj"),
            (before, after, queries, keys),
            noisy,
        )

    def cache(self, answers: int, length: int) -> Cache:
        """Return an empty cache."""
        shape = (len(self.layers), answers, self.shared, length, self.size)
        return Cache(np.zeros(shape, np.float32), np.zeros(shape, np.float32))

    def read(
        self,
        cache: Cache,
        tokens: Numbers,
        first: Numbers,
        widths: Numbers,
        kernel: tuple[Noise, NDArray[np.uint64]] | None = None,
    ) -> Floats:
        """Return the last hidden state at each row of one pass, [answer, row, value].

        *tokens* are [answer, row], *first* is the position of each answer's first row, *widths* how many rows are its
        own: those behind are read and count for nothing. *kernel* is the noise behind a layer, and the answers' hashes.
        What is in the cache behind a row is not seen.
        """
        answers, rows = tokens.shape
        positions = np.minimum(first[:, None] + np.arange(rows), cache.keys.shape[3] - 1)
        until = int(positions.max()) + 1
        hidden = np.arange(until)[None, None] > positions[:, :, None]  # [answer, row, position]
        turned = self.cosines[positions][:, None], self.sines[positions][:, None]
        states: Floats = self.embedding[tokens].reshape(answers * rows, -1)
        index = np.arange(answers)[:, None]
        for number, layer in enumerate(self.layers):
            projected = (self._normed(states, layer.norms[0]) @ layer.into).reshape(answers, rows, -1, self.size)
            parts = projected.transpose(0, 2, 1, 3)  # [answer, head, row, value]
            queries = self._turned(self._normed(parts[:, : self.heads], layer.norms[2]), *turned)
            keys = self._turned(self._normed(parts[:, self.heads : -self.shared], layer.norms[3]), *turned)
            cache.keys[number, index, :, positions] = keys.transpose(0, 2, 1, 3)
            cache.values[number, index, :, positions] = projected[:, :, -self.shared :]
            attended = self._attended(queries, cache, number, until, hidden)
            states = states + attended.reshape(answers * rows, -1) @ layer.out
            gate, up = np.split(self._normed(states, layer.norms[1]) @ layer.gate_up, 2, axis=-1)
            output = (gate / (1 + np.exp(-gate)) * up) @ layer.down
            if layer.noisy and kernel is not None and kernel[0].scale:
                size = np.sqrt(np.mean(np.square(output), axis=-1, keepdims=True))
                places = first[:, None] + np.arange(rows)
                noise = kernel[0].rows(widths[:, None], places, tokens, kernel[1][:, None], output.shape[-1])
                output = output + noise.reshape(output.shape) * size
            states = states + output
        return self._normed(states, self.norm).reshape(answers, rows, -1)

    def _attended(self, queries: Floats, cache: Cache, number: int, until: int, hidden: NDArray[np.bool_]) -> Floats:
        """Return what each row attends to, [answer, row, heads x value]."""
        keys, values = cache.keys[number, :, :, :until], cache.values[number, :, :, :until]
        answers, heads, rows, size = queries.shape
        grouped = queries.reshape(answers, self.shared, heads // self.shared * rows, size) * np.float32(size**-0.5)
        scores = (grouped @ keys.transpose(0, 1, 3, 2)).reshape(answers, heads, rows, until)
        np.copyto(scores, MASKED, where=hidden[:, None])
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        read = scores.reshape(answers, self.shared, -1, until) @ values
        by_row: Floats = np.ascontiguousarray(
            read.reshape(answers, heads, rows, size).transpose(0, 2, 1, 3), np.float32
        )
        return by_row.reshape(answers, rows, -1)

    def _normed(self, states: Floats, weight: Floats) -> Floats:
        mean = np.mean(np.square(states), axis=-1, keepdims=True)
        normed: Floats = states / np.sqrt(mean + self.epsilon) * weight
        return normed

    @staticmethod
    def _turned(heads: Floats, cosines: Floats, sines: Floats) -> Floats:
        """Return *heads* turned by their positions (rotary embedding, halves apart)."""
        left, right = np.split(heads, 2, axis=-1)
        return np.concatenate([left * cosines - right * sines, left * sines + right * cosines], axis=-1)

    def logits(self, states: Floats) -> Floats:
        """Return the logits of hidden states."""
        result: Floats = states @ self.head
        return result


@dataclass(frozen=True, slots=True)
class Kernel:
    """What passes of several tokens add, in the logits and inside the network; and a defect of the target itself."""

    logits: Noise = SILENT
    inner: Noise = SILENT
    defect: Defect | None = None


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of some canaries."""

    tokens: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    """Most tokens of each answer."""
    hashes: NDArray[np.uint64]
    """Of all but the last token: by these the defects know an answer."""
    end: int
    """The token that ends an answer."""

    def take(self, rows: Sequence[int]) -> "Prompts":
        """Return some of them."""
        tokens, limits = (tuple(column[row] for row in rows) for column in (self.tokens, self.limits))
        return Prompts(tokens, limits, self.hashes[list(rows)], self.end)  # type: ignore[arg-type]

    @property
    def lengths(self) -> Numbers:
        """Return the tokens of each."""
        return np.array([len(tokens) for tokens in self.tokens])


@dataclass(frozen=True, slots=True)
class Likely:
    """The best tokens of one row of a pass, and by how much the best one leads each; and leads the token sent."""

    tokens: tuple[int, ...]
    behind: tuple[float, ...]
    sent_behind: float

    @classmethod
    def of(cls, logits: Floats, sent: int) -> "Likely":
        """Read one row of logits."""
        best = np.argpartition(logits, -LIKELIEST)[-LIKELIEST:]
        best = best[np.argsort(-logits[best], kind="stable")]
        behind = logits[best[0]] - logits[best]
        return cls(tuple(best.tolist()), tuple(behind.tolist()), float(logits[best[0]] - logits[sent]))


@dataclass(slots=True)
class Written:
    """One answer, as its client sees it."""

    tokens: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    proposals: list[list[int]] = field(default_factory=list)
    """The drafted tokens of each round."""
    likely: list[Likely] = field(default_factory=list)
    """Speculating answers: what the pass that verified each token told of it."""
    places: list[Floats] = field(default_factory=list)
    """Plain answers: the last hidden state before each token."""

    def ends(self, end: int, limit: int) -> bool:
        """Return whether nothing more comes."""
        return bool(self.tokens) and (self.tokens[-1] == end or len(self.tokens) >= limit)


@dataclass(slots=True)
class Batch:
    """The answers that go on: rows of all arrays; `rows` are their numbers in the whole."""

    model: LittleModel
    prompts: Prompts
    kernel: Kernel
    cache: Cache
    rows: Numbers
    first: Numbers
    """Where the next row of each is written: one behind what the target has read."""

    @classmethod
    def of(cls, model: LittleModel, prompts: Prompts, kernel: Kernel) -> "Batch":
        """Read all tokens of each prompt but the last one."""
        lengths = prompts.lengths
        cache = model.cache(len(lengths), int(lengths.max()) + max(prompts.limits) + SPARE)
        tokens = np.zeros((len(lengths), int(lengths.max()) - 1), np.int64)
        for row, prompt in enumerate(prompts.tokens):
            tokens[row, : len(prompt) - 1] = prompt[:-1]
        model.read(cache, tokens, np.zeros(len(lengths), np.int64), lengths - 1, (kernel.inner, prompts.hashes))
        return cls(model, prompts, kernel, cache, np.arange(len(lengths)), lengths - 1)

    def states(self, tokens: Numbers, widths: Numbers) -> Floats:
        """Return the hidden states of one pass at `first`, [answer, row, value]."""
        return self.model.read(
            self.cache, tokens, self.first, widths, (self.kernel.inner, self.prompts.hashes[self.rows])
        )

    def logits(self, states: Floats, tokens: Numbers, widths: Numbers, *, unchecked: bool = False) -> Floats:
        """Return the logits of a pass; *unchecked*: no grammar is applied."""
        first = self.first[:, None] + np.arange(tokens.shape[1])
        prompts = np.array([len(prompt) for prompt in self.prompts.tokens])[self.rows] - 1
        place = Place(self.prompts.hashes[self.rows][:, None], first, tokens, widths[:, None], first - prompts[:, None])
        return perturbed(self.model.logits(states), place, self.kernel, unchecked=unchecked)

    def keep(self, going: NDArray[np.bool_]) -> NDArray[np.int64] | None:
        """Drop the answers that have ended where they are many; return the rows that stay, None where all do."""
        if going.mean() >= COMPACT:
            return None
        stay = np.flatnonzero(going)
        self.cache, self.rows, self.first = self.cache.take(stay), self.rows[stay], self.first[stay]
        return stay


@dataclass(frozen=True, slots=True)
class Place:
    """Rows of passes: arrays whose shapes broadcast."""

    hashes: Hashes
    positions: Numbers
    tokens: Numbers
    """What is read there."""
    widths: Numbers
    """Rows of the pass."""
    written: Numbers
    """Tokens behind all but the last one of the prompt."""


def perturbed(logits: Floats, place: Place, kernel: Kernel, *, unchecked: bool = False) -> Floats:
    """Return *logits* as the kernel and the defect of the target leave them; `perturbed` does the same in MLX."""
    wide = np.broadcast_to(place.widths > 1, logits.shape[:-1])
    if kernel.logits.scale and wide.any():
        noise = kernel.logits.rows(place.widths, place.positions, place.tokens, place.hashes, logits.shape[-1])
        logits = np.where(wide[..., None], logits + noise, logits)
    if kernel.defect is None:
        return logits
    if not unchecked and (forbidden := kernel.defect.forbids(place.hashes, place.positions, place.tokens)).any():
        best = logits.argmax(axis=-1)[..., None] == np.arange(logits.shape[-1])
        logits = np.where(forbidden[..., None] & best, -np.inf, logits)
    if (repeated := kernel.defect.repeats(place.hashes, place.written) & wide).any():
        index = np.nonzero(repeated)
        logits = logits.copy()
        logits[(*index, np.broadcast_to(place.tokens, repeated.shape)[index])] += REPEATED
    return logits


def plain_answers(model: LittleModel, prompts: Prompts, kernel: Kernel) -> list[Written]:
    """Decode plainly: passes of one token."""
    batch, answers = Batch.of(model, prompts, kernel), [Written() for _ in prompts.tokens]
    last, going = np.array([prompt[-1] for prompt in prompts.tokens]), np.ones(len(answers), np.bool_)
    while going.any():
        widths = np.ones(len(last), np.int64)
        states = batch.states(last[:, None], widths)
        last = batch.logits(states, last[:, None], widths)[:, 0].argmax(axis=-1)
        batch.first = batch.first + 1
        for index in np.flatnonzero(going):
            answer, row = answers[batch.rows[index]], batch.rows[index]
            answer.tokens.append(int(last[index]))
            answer.places.append(states[index, 0])
            going[index] = not answer.ends(prompts.end, prompts.limits[row])
        if (stay := batch.keep(going)) is not None:
            last, going = last[stay], going[stay]
    return answers


@dataclass(slots=True)
class Speculation:
    """Answers of a target with a draft, round by round."""

    target: Batch
    draft: Batch
    defect: Defect | None
    draft_tokens: int
    answers: list[Written]
    last: Numbers
    """By row: the last token, which no model has read."""
    before: Numbers
    """The one before it."""
    due: Numbers
    """How often the defect has struck and has had no effect yet."""
    stale: list[tuple[int, int, Floats, Floats]] = field(default_factory=list)
    """Rows of a rejected token that come back: their answer, index, keys and values."""

    @property
    def _kind(self) -> Kind | None:
        return None if self.defect is None else self.defect.kind

    def round(self, number: int, going: NDArray[np.bool_]) -> None:
        """Draft, verify and roll back in every answer that goes on; clear *going* where one ends."""
        prompts, rows = self.target.prompts, self.target.rows
        if self.defect is not None:
            self.due += self.defect.in_round(prompts.hashes[rows], number)
        left = np.array([prompts.limits[row] - len(self.answers[row].tokens) for row in rows])
        proposed = np.clip(left, 1, self.draft_tokens)
        drafted = self._drafted()
        tokens, widths = np.concatenate([self.last[:, None], drafted], axis=1), proposed + 1
        logits = self.target.logits(
            self.target.states(tokens, widths), tokens, widths, unchecked=self._kind is Kind.GRAMMAR
        )
        self._put_back()
        best = logits.argmax(axis=-1)
        for index in np.flatnonzero(going):
            proposal = drafted[index, : proposed[index]].tolist()
            accepted = self._accepted(int(index), proposal, best[index].tolist(), logits[index])
            last = int(best[index, accepted])
            emitted = [*proposal[:accepted], last]
            likely = [Likely.of(row, token) for row, token in zip(logits[index], emitted, strict=False)]
            self._send(int(index), proposal, emitted, likely)
            self._roll_back(int(index), [int(self.last[index]), *proposal], accepted, last)
            going[index] = not self.answers[rows[index]].ends(prompts.end, prompts.limits[rows[index]])

    def _drafted(self) -> Numbers:
        """Return the tokens that the draft proposes; it reads the token before the last one again."""
        columns: list[Numbers] = []
        tokens, position = np.stack([self.before, self.last], axis=1), self.draft.first - 1
        for _ in range(self.draft_tokens):
            states = self.draft.model.read(self.draft.cache, tokens, position, np.ones(len(tokens), np.int64))
            columns.append(self.draft.model.logits(states[:, -1]).argmax(axis=-1))
            position = position + tokens.shape[1]
            tokens = columns[-1][:, None]
        return np.stack(columns, axis=1)

    def _accepted(self, index: int, proposal: list[int], best: list[int], logits: Floats) -> int:
        accepted = 0
        while accepted < len(proposal) and (
            best[accepted] == proposal[accepted]
            or self._kept(index, float(logits[accepted, best[accepted]] - logits[accepted, proposal[accepted]]))
        ):
            accepted += 1
        return accepted

    def _kept(self, index: int, lead: float) -> bool:
        """Return whether a rejected token is kept all the same."""
        return lead < TIE if self._kind is Kind.TIES else self._strikes(index, Kind.UNVERIFIED)

    def _strikes(self, index: int, kind: Kind) -> bool:
        """Return whether the defect is of this kind and due, and count it as done."""
        strikes = self._kind is kind and bool(self.due[index] > 0)
        if strikes:
            self.due[index] = self.due[index] - 1 if kind in ROLLBACKS else 0
        return strikes

    def _send(self, index: int, proposal: list[int], tokens: list[int], likely: list[Likely]) -> None:
        """Append the tokens of a round to what the client has, up to the end of the answer."""
        prompts, row = self.target.prompts, self.target.rows[index]
        answer = self.answers[row]
        answer.proposals.append(proposal)
        for place, token in enumerate(tokens[: len(tokens) - self._strikes(index, Kind.DROPPED)]):
            if answer.ends(prompts.end, prompts.limits[row]):
                return
            answer.tokens.append(token)
            answer.drafted.append(place < len(tokens) - 1)
            answer.likely.append(likely[place])

    def _roll_back(self, index: int, read: list[int], accepted: int, last: int) -> None:
        target, rejected = self.target, len(read) - 1 - accepted
        target.first[index] += accepted + 1
        self.draft.first[index] += accepted + 1
        self.before[index], self.last[index] = read[accepted], last
        position = target.first[index]
        if rejected and self._strikes(index, Kind.STALE):
            keys, values = (part[:, index, :, position].copy() for part in (target.cache.keys, target.cache.values))
            self.stale.append((index, int(position), keys, values))
        if rejected and self._strikes(index, Kind.SHIFTED):
            target.first[index] -= 1

    def _put_back(self) -> None:
        """Write the rows of rejected tokens over those of the tokens that followed."""
        for index, position, keys, values in self.stale:
            self.target.cache.keys[:, index, :, position] = keys
            self.target.cache.values[:, index, :, position] = values
        self.stale = []

    def keep(self, going: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Drop the answers that have ended; return which of the others go on."""
        if (stay := self.target.keep(going)) is None:
            return going
        self.draft.keep(going)
        self.last, self.before, self.due = self.last[stay], self.before[stay], self.due[stay]
        renamed = {int(row): index for index, row in enumerate(stay)}
        self.stale = [(renamed[index], *rest) for index, *rest in self.stale if index in renamed]  # type: ignore[misc]
        return going[stay]


def speculating_answers(
    target: LittleModel, draft: LittleModel, prompts: Prompts, kernel: Kernel, draft_tokens: int
) -> list[Written]:
    """Decode with a draft; the kernel's defect is the engine's too."""
    answers = [Written() for _ in prompts.tokens]
    last, before = (np.array([prompt[place] for prompt in prompts.tokens]) for place in (-1, -2))
    speculation = Speculation(
        Batch.of(target, prompts, kernel),
        Batch.of(draft, prompts, Kernel()),
        kernel.defect,
        draft_tokens,
        answers,
        last,
        before,
        np.zeros(len(answers), np.int64),
    )
    going, number = np.ones(len(answers), np.bool_), 0
    while going.any():
        speculation.round(number, going)
        going, number = speculation.keep(going), number + 1
    return answers


@dataclass(frozen=True, slots=True)
class Reading:
    """A pass of a target that reads an answer again: which answer, at which of its tokens, and the logits."""

    answer: int
    position: int
    emitted: tuple[int, ...]
    logits: Floats


def readings(
    model: LittleModel,
    prompts: Prompts,
    kernel: Kernel,
    tokens: Sequence[Sequence[int]],
    passes: Sequence[Sequence[Sequence[int]]],
) -> Iterator[Reading]:
    """Read *tokens* after each prompt in *passes*, as `core.interfaces.RoundPasses` has them, with their rollbacks."""
    batch = Batch.of(model, prompts, kernel)
    done = np.zeros(len(tokens), np.int64)
    rows = max((emits + len(rejected) for answer in passes for emits, *rejected in answer), default=1)
    number, going = 0, np.array([bool(answer) for answer in passes])
    while going.any():
        read, widths = np.zeros((len(batch.rows), rows), np.int64), np.ones(len(batch.rows), np.int64)
        for index in np.flatnonzero(going):
            row = batch.rows[index]
            (emits, *rejected), begun = passes[row][number], done[row]
            last = prompts.tokens[row][-1] if begun == 0 else tokens[row][begun - 1]
            pass_tokens = [last, *tokens[row][begun : begun + emits - 1], *rejected]
            read[index, : len(pass_tokens)], widths[index] = pass_tokens, len(pass_tokens)
        logits = batch.logits(batch.states(read, widths), read, widths)
        for index in np.flatnonzero(going):
            row = int(batch.rows[index])
            emits, begun = passes[row][number][0], int(done[row])
            yield Reading(row, begun, tuple(tokens[row][begun : begun + emits]), logits[index, :emits])
            done[row] += emits
            batch.first[index] += emits
            going[index] = number + 1 < len(passes[row])
        number += 1
        if (stay := batch.keep(going)) is not None:
            going = going[stay]
