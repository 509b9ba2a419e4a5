"""Which plain answers forced passes stand in for, and when they are not trusted."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.forced import CROSS_CHECKS, passes_wanted, stand_ins
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Missing
from gatekeeper.core.records import Answer, Forced, Generation, Parting, Role, setting
from gatekeeper.core.records.arrivals import Arrival
from tests.builders.golden_words import says

WRITTEN = (7, 8, 9, 10)


def made(arm: str, canary: str, tokens: Iterable[int] = WRITTEN, fault: str | None = None) -> Generation:
    arrivals = tuple(Arrival(at, 1, None, token) for at, token in enumerate(tokens, start=1))
    knobs = setting(draft=None if arm == "plain" else "d")
    answer = Answer(0, 99, arrivals=arrivals, fault=fault)
    return Generation("soak-1", f"{arm}/{canary}", "w", canary, arm, knobs, Role.MEASURED, 0, "", 1, answer)


def paired(plain: int = 14, of: int = 20, **changes: Any) -> PairedAnswers:
    """The draft answered all canaries, plain decoding the first ones, and both wrote the same."""
    names = [f"c-{number:02}" for number in range(of)]
    canaries = {name: Canary(id=name, messages=({"role": "user", "content": "?"},)) for name in names}
    answers = tuple(made("candidate", name) for name in names)
    twins = tuple(made("plain", name) for name in names[:plain])
    fields: dict[str, Any] = {"answers": answers, "plain": twins} | changes
    return PairedAnswers("w", canaries, level=0.95, seed=1, greedy=True, **fields)


def passed(forced_pass: Forced, **truth: Any) -> Forced:
    """Return the pass as a target shows it that wrote WRITTEN."""
    pairs = enumerate(zip(forced_pass.tokens, WRITTEN, strict=False))
    parted = tuple(Parting(at, written, 5.0) for at, (token, written) in pairs if token != written)
    return replace(forced_pass, parted=parted, ended=len(forced_pass.tokens) == len(WRITTEN), **truth)


def shown(evidence: PairedAnswers, changed: Mapping[str, Any] | None = None, where: str = "") -> Any:
    """Return what the wanted passes stand in for; *changed* is what all passes of the canary *where* show instead."""
    passes = [passed(forced_pass) for forced_pass in passes_wanted(evidence)]
    passes = [
        replace(forced_pass, **changed) if changed and where in {"", forced_pass.canary} else forced_pass
        for forced_pass in passes
    ]
    return stand_ins(evidence, passes)


def test_each_canary_without_a_plain_answer_is_forced() -> None:
    """A pass is made for each output without a plain answer, for the cross-checks, and for three controls."""
    passes = passes_wanted(paired())

    assert [f"c-{number}" for number in range(14, 20)] == [forced_pass.canary for forced_pass in passes[:6]]
    assert CROSS_CHECKS == len([forced_pass for forced_pass in passes[6:] if forced_pass.altered is None])
    assert [2, 2, 2] == [forced_pass.altered for forced_pass in passes if forced_pass.altered is not None]
    assert passes_wanted(paired(plain=20)) == ()


def test_an_exact_answer_stands_in_for_plain_decodings() -> None:
    """Where the target wrote every token, the candidate's answer is the plain one."""
    records = shown(paired())

    assert [("plain", f"c-{number}", WRITTEN) for number in range(14, 20)] == [
        (record.arm, record.canary, tuple(arrival.token_id for arrival in record.answer.arrivals)) for record in records
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"parted": (Parting(3, 11, 0.01),)},
        {"parted": (Parting(3, 11, None),)},
        {"ended": False},
        {"fault": "the target could not read the tokens"},
    ],
)
def test_an_answer_that_parts_needs_a_plain_one(change: Mapping[str, Any]) -> None:
    """No other answer stands in: not one that parts, at a near-tie too, ends early or could not be read."""
    records = shown(paired(), change, where="c-17")

    assert ["c-14", "c-15", "c-16", "c-18", "c-19"] == [record.canary for record in records]


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"parted": (Parting(1, 3, 2.0),)}, "contradicts 1 plain answer of 12, first c-03"),
        ({"parted": (Parting(1, 3, 0.001),)}, "contradicts 1 plain answer of 12"),  # at a near-tie: another kernel
        ({"parted": (Parting(1, 3, None),)}, "contradicts 1 plain answer of 12"),
        ({"ended": False}, "contradicts 1 plain answer of 12"),
        ({"fault": "died"}, "contradicts 1 plain answer of 12"),
    ],
)
def test_a_pass_that_contradicts_plain_decoding_voids_all(change: Mapping[str, Any], because: str) -> None:
    """Where the target does not read a plain answer as its own, no forced pass stands in for anything."""
    result = shown(paired(), change, where="c-03")

    assert isinstance(result, Missing)
    assert because in result.because


def test_passes_without_a_control_or_a_cross_check_show_nothing() -> None:
    """The replaced tokens of the controls must be seen, and enough plain answers be read as plain decoding's own."""
    results = {
        "a pass that agrees with everything shows nothing": shown(paired(), {"parted": (), "ended": True}),
        "too few cross-checks show nothing": shown(paired(plain=5)),
    }

    for case, result in results.items():
        assert isinstance(result, Missing)
        says("estimates", case, result.because)
