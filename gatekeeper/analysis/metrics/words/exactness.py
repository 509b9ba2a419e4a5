"""Agreement of greedy answers with plain decoding's, word by word, and which differences are explained."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from gatekeeper.analysis.metrics.words.near_tie_rule import Divergence, first_divergence, token_column
from gatekeeper.analysis.metrics.words.numerics_null import ComparedLeads, Null
from gatekeeper.core.judgement import Estimate, fact
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.text import show_count
from gatekeeper.core.units import show_number

CHARACTERS = 4
"""The length of a token in characters, where no token ids are seen."""
NOT_CORRECT = "the speculation is not correct"
"""What differences show that nothing explains where it would be seen."""


def same_output(answer: Answer, baseline: Answer) -> bool:
    """Return whether two answers have the same tokens; the same reasoning, text and calls where tokens are unknown."""
    (tokens, content), (baseline_tokens, baseline_content) = _output(answer), _output(baseline)
    return tokens == baseline_tokens if tokens and baseline_tokens else content == baseline_content


def _output(answer: Answer) -> tuple[bytes, tuple[str, str, tuple[str, ...]]]:
    """Return the column of an answer's tokens, empty where one is unknown; and its reasoning, text and calls."""
    calls = tuple(json.dumps(call.get("function", call), sort_keys=True) for call in answer.tool_calls)
    return token_column(answer), (answer.reasoning, answer.text, calls)


def shared_tokens(answer: Answer, baseline: Answer) -> int:
    """Return how many tokens two answers have in common before they differ; four characters where ids are unknown."""
    (tokens, content), (baseline_tokens, baseline_content) = _output(answer), _output(baseline)
    if tokens and baseline_tokens:
        return _shared_length(memoryview(tokens).cast("q"), memoryview(baseline_tokens).cast("q"))
    (reasoning, text, _), (baseline_reasoning, baseline_text, _) = content, baseline_content
    return _shared_length(f"{reasoning}{text}", f"{baseline_reasoning}{baseline_text}") // CHARACTERS


def first_flip(answer: Answer, baseline: Answer) -> tuple[object, object]:
    """Return how the baseline begins and how the answer does, both up to their first different token, inclusive.

    Where ids are unknown a token is taken to have four characters.
    """
    (tokens, content), (baseline_tokens, baseline_content) = _output(answer), _output(baseline)
    if tokens and baseline_tokens:
        column, baseline_column = (tuple(memoryview(each).cast("q")) for each in (tokens, baseline_tokens))
        end = _shared_length(column, baseline_column) + 1
        return baseline_column[:end], column[:end]
    texts = [f"{reasoning}{text}" or calls for reasoning, text, calls in (content, baseline_content)]
    end = _shared_length(*texts) + CHARACTERS
    return texts[1][:end], texts[0][:end]


def _shared_length(tokens: Sequence[object], baseline: Sequence[object]) -> int:
    for index, (token, expected) in enumerate(zip(tokens, baseline, strict=False)):
        if token != expected:
            return index
    return min(len(tokens), len(baseline))


def divergences(answers: Iterable[Generation], plain: Iterable[Generation]) -> tuple[Divergence, ...]:
    """Return where the candidate's answers diverge from plain decoding's, each place once, in order of the answers."""
    places = (
        first_divergence(generation.canary, generation.answer, baseline)
        for generation, baseline in _distinct_pairs(answers, plain)
    )
    return tuple(dict.fromkeys(place for place in places if place is not None))


def divergent_canaries(answers: Iterable[Generation], plain: Iterable[Generation]) -> tuple[str, ...]:
    """Return the canaries with answers in both arms that are not the same, in order."""
    pairs = _distinct_pairs(answers, plain)
    return tuple(dict.fromkeys(pair.canary for pair, baseline in pairs if not same_output(pair.answer, baseline)))


def _distinct_pairs(answers: Iterable[Generation], plain: Iterable[Generation]) -> Iterable[tuple[Generation, Answer]]:
    """Pair every answer with every plain answer to its canary; a repeated output would change no comparison."""
    by_canary: dict[str, list[Answer]] = defaultdict(list)
    for generation in distinct_outputs(plain):
        by_canary[generation.canary].append(generation.answer)
    return (
        (generation, baseline) for generation in distinct_outputs(answers) for baseline in by_canary[generation.canary]
    )


def distinct_outputs(answers: Iterable[Generation]) -> Iterable[Generation]:
    """Return, in order, the first of the answers to a canary with the same output; failed answers are left out."""
    first_by_output: dict[tuple[object, ...], Generation] = {}
    for generation in answers:
        if generation.answer.fault is None:
            first_by_output.setdefault((generation.canary, *_output(generation.answer)), generation)
    return first_by_output.values()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a difference between a greedy answer and plain decoding's."""

    gap: float | None = None
    """How much plain decoding preferred its own token there, where that is numerics."""
    reason: str = ""
    """Why it is not explained; empty where it is."""
    beyond: tuple[float, ...] = ()
    """It is not explained because these leads are larger than numerics are known to turn."""
    unread: bool = False
    """Nothing was read that could explain it: it is open."""
    by_place: bool = False
    """It is explained by its place alone: near-ties can do it, and nothing was read."""


Explain = Callable[[Generation, Answer], Explanation]


@dataclass(frozen=True, slots=True)
class Explanations:
    """What explains differences in one run."""

    explain: Explain
    means: str
    """What the explained ones have in common, for a note; `{widest}` is the largest lead of plain decoding's token."""
    null: Null | None = None
    """What unexplained ones are held against, where leads are compared with the numerics of this run."""
    leads: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Plain decoding's leads at each place that was compared, up to the first difference, by canary."""
    elsewhere: ComparedLeads | None = None
    """Those of the other workloads, where they are compared in the same way."""
    refutes: str = ""
    """What unexplained ones show, in plain words; empty: nothing beyond themselves."""
    reads: bool = True
    """Something of the target was read, so that an unexplained difference is known not to be numerics."""
    open_means: str = "that differ were not read again, and do not count"
    """What the differences have in common that are open, for a note."""


@dataclass(slots=True)
class Comparison:
    """Which canaries agree with plain decoding, and why the others do not."""

    by: Explanations
    agree: dict[str, bool] = field(default_factory=dict)
    excused: dict[str, float] = field(default_factory=dict)
    """The largest lead that numerics turned at a canary whose differences are all explained; 0 where none is read."""
    unexplained: dict[str, str] = field(default_factory=dict)
    """Why a canary does not agree."""
    beyond: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """The leads of those canaries that are larger than numerics are known to turn."""
    unread: set[str] = field(default_factory=set)
    """Canaries that differ and of which nothing was read: they are open."""
    by_place: set[str] = field(default_factory=set)
    """Those of the excused canaries whose differences are explained by their place alone."""
    visible: tuple[int, float] | None = None
    """How many other tokens at how large leads would have been found, where leads are held against numerics."""

    def notes(self) -> tuple[str, ...]:
        """Describe the divergences that are explained, by what, and those that are not."""
        notes = []
        if read := self.excused.keys() - self.by_place:
            widest = max(self.excused[name] for name in read)
            notes.append(f"{len(read)} {self.by.means.format(widest=show_number(widest))}")
        if placed := self.excused.keys() & self.by_place:
            notes.append(f"{len(placed)} whose requests set options differ late, which near-ties can do")
        if self.unexplained:
            canary, reason = next(iter(self.unexplained.items()))
            notes.append(f"{len(self.unexplained)} diverge otherwise, first {canary}: {reason}")
        if self.unread:
            notes.append(f"{len(self.unread)} {self.by.open_means}")
        if self.visible is not None and not self.unexplained:
            count, lead = self.visible
            notes.append(f"found if plain decoding led by {show_number(lead)} at {show_count(count, 'other token')}")
        return tuple(notes)

    def share(self, *notes: str) -> Estimate:
        """Return the share of canaries that agree.

        Where nothing of the target was read, those that are open bound it: they may agree or not.
        """
        agreed, n = sum(self.agree.values()), len(self.agree)
        share = fact(agreed / n, n, *notes, *self.notes())
        if self.by.reads or not self.unread:
            return share
        among = n + len(self.unread)
        return replace(share, lo=agreed / among, hi=(agreed + len(self.unread)) / among, shows=self.by.refutes)


def leads_of_all(
    leads: Mapping[str, Sequence[float]], differing: Container[str], compared: Collection[str]
) -> tuple[float, ...]:
    """Return the leads of every canary that was *compared*: those read that are alike stand for those not read."""
    alike = [leads[name] for name in leads if name not in differing]
    unread = sum(name not in leads for name in compared)
    more = [alike[number % len(alike)] for number in range(unread)] if alike else []
    return tuple(chain.from_iterable((*leads.values(), *more)))


def _hold_against(null: Null, by: Explanations, compared: Comparison) -> None:
    """Excuse the differences at leads beyond the tolerance where the numerics do not refute them."""
    places = leads_of_all(by.leads, {*compared.unexplained, *compared.excused, *compared.unread}, compared.agree)
    compared.visible = null.visible(places)
    beyond = tuple(chain.from_iterable(compared.beyond.values()))
    if not null.refutes(ComparedLeads(beyond, places), by.elsewhere):
        for canary in compared.beyond:
            del compared.unexplained[canary]
            compared.excused.setdefault(canary, null.tolerance)


def compare(answers: Iterable[Generation], plain: Iterable[Generation], by: Explanations) -> Comparison:
    """Compare every answer with every plain answer to its canary; one unexplained divergence is enough to differ."""
    compared = Comparison(by)
    for generation, baseline in _distinct_pairs(answers, plain):
        canary = generation.canary
        compared.agree.setdefault(canary, True)
        if same_output(generation.answer, baseline):
            continue
        explanation = by.explain(generation, baseline)
        if explanation.unread:
            compared.unread.add(canary)
        elif explanation.reason:
            compared.unexplained.setdefault(canary, explanation.reason)
            if explanation.beyond:
                compared.beyond.setdefault(canary, explanation.beyond)
        else:
            compared.excused[canary] = max(explanation.gap or 0.0, compared.excused.get(canary, 0.0))
            if explanation.by_place:
                compared.by_place.add(canary)
    if by.null is not None:
        _hold_against(by.null, by, compared)
    for canary in compared.unexplained:
        compared.agree[canary] = False
        compared.excused.pop(canary, None)
    compared.unread -= compared.unexplained.keys()
    for canary in compared.unread:
        del compared.agree[canary]
        compared.excused.pop(canary, None)
    return compared
