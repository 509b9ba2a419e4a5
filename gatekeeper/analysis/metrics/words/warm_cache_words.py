"""The warm cache: whether repeated and later answers, with the prompt cache on, have the words of plain decoding."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from gatekeeper.analysis.metrics.words.exactness import same_output
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Generation
from gatekeeper.core.verdict import Estimate, Missing, fact

CONTROL = "control"
"""The arm of plain decoding with its own cache on."""
LEAST_ANSWERS = 2
"""Of a canary with the cache on: the first one only fills the cache."""


def warm_cache_agreement(
    records: Sequence[Generation], canaries: Collection[str], arm: str = "candidate"
) -> tuple[dict[str, bool], tuple[str, ...]] | Missing:
    """Return by canary whether its repeated and later answers with the cache on equal plain decoding's; and notes.

    A record's pair names the canary that opened the conversation; a prompt of several turns has an id of its own. An
    answer that fails with the cache on counts as different.
    """
    plain = {generation.canary: generation.answer for generation in records if generation.arm == "plain"}
    same_by_canary: dict[str, dict[str, list[bool]]] = {name: defaultdict(list) for name in canaries}
    for generation in records:
        baseline = plain.get(generation.canary)
        if generation.arm != arm or generation.pair not in same_by_canary:
            continue
        if baseline is not None and baseline.fault is None:
            turn = "single" if generation.canary == generation.pair else "later"
            same_by_canary[generation.pair][turn].append(
                generation.answer.fault is None and same_output(generation.answer, baseline)
            )
    complete = {
        name for name, turns in same_by_canary.items() if len(turns["single"]) >= LEAST_ANSWERS and turns["later"]
    }
    if not same_by_canary or len(complete) < len(same_by_canary):
        lacking = len(same_by_canary) - len(complete)
        return Missing(
            f"{lacking} of {len(same_by_canary)} canaries lack repeated answers or a second turn in one of the arms",
            len(complete),
        )
    agree = {name: all(all(agreeing) for agreeing in turns.values()) for name, turns in same_by_canary.items()}
    return agree, _differing(same_by_canary)


def beyond_control(
    records: Sequence[Generation], canaries: Collection[str], cold: Iterable[Generation], level: float
) -> Estimate | Missing:
    """Return the share of canaries whose words the draft's cache leaves alone, beyond what plain decoding's own does.

    *cold*: the draft's answers without a cache. Where neither they nor plain decoding's cache ever change a word, no
    numerics are at work, and every difference counts. Elsewhere a canary counts that differs with the draft's cache
    alone, less those that differ with plain decoding's alone: proven by an exact sign test (McNemar 1947), else open.
    """
    drafting = warm_cache_agreement(records, canaries)
    control = warm_cache_agreement(records, canaries, arm=CONTROL)
    for compared in (drafting, control):
        if isinstance(compared, Missing):
            return compared
    assert not isinstance(drafting, Missing)
    assert not isinstance(control, Missing)
    agree, notes = drafting
    baselines = {record.canary: record.answer for record in records if record.arm == "plain"}
    numerics = not all(control[0].values()) or any(
        record.canary in baselines and not same_output(record.answer, baselines[record.canary]) for record in cold
    )
    if not numerics:
        return fact(sum(agree.values()) / len(agree), len(agree), *notes)
    worse = sum(not agree[name] and control[0][name] for name in agree)
    better = sum(agree[name] and not control[0][name] for name in agree)
    words = f"{worse} canaries differ with the draft's cache alone, {better} with plain decoding's alone"
    share = 1 - max(0, worse - better) / len(agree)
    proven = worse > better and 1 - intervals.binomial_cdf(worse - 1, worse + better, 0.5) < 1 - level
    if proven or worse <= better:
        return fact(share, len(agree), *notes, words)
    return Estimate(share, share, 1.0, len(agree), (*notes, words), level)


def _differing(same_by_canary: Mapping[str, Mapping[str, Sequence[bool]]]) -> tuple[str, ...]:
    parts = []
    for turn, words in (("single", "repeated answers"), ("later", "second turns")):
        agreements = [agrees for turns in same_by_canary.values() for agrees in turns[turn]]
        if not all(agreements):
            parts.append(f"{agreements.count(False)} of {len(agreements)} {words}")
    return (f"with the prompt cache on, {' and '.join(parts)} differ from plain decoding's",) if parts else ()
