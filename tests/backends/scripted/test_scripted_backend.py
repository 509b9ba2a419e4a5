"""The scripted backend: what its script sets is what is measured, at no cost of time."""

import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.backends.scripted.script import Script, read_script
from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import VirtualClock
from gatekeeper.core.errors import InputError
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters
from gatekeeper.core.judgement import Estimate
from gatekeeper.core.records import Answer, Generation, Role, setting

PLAIN = setting(draft=None)
DRAFTING = setting(draft="d", num_draft_tokens=4)


def prompt(name: str = "chat-1", **more: Any) -> Canary:
    return Canary.model_validate({"id": name, "messages": [{"role": "user", "content": "say it"}], **more})


def give(script: dict[str, Any], *requests: tuple[Canary, Any], **sampling: Any) -> list[Answer]:
    backend = ScriptedBackend(Script.model_validate(script))
    system = backend.start(DRAFTING)
    return [system.answer(DecodeRequest(canary, which, SamplingParameters(**sampling))) for canary, which in requests]


def seconds(answer: Answer) -> float:
    return (answer.ended_ns - answer.sent_ns) / 1e9


@pytest.mark.slow
@given(
    ratio=st.floats(0.2, 5),
    seed=st.integers(0, 99),
    acceptance=st.floats(0, 1),
    tokens=st.integers(12, 80),
    arrivals=st.sampled_from(["token", "round"]),
)
def test_a_decreed_ratio_reads_as_decreed(
    ratio: float, seed: int, acceptance: float, tokens: int, arrivals: str
) -> None:
    """With `ratio`, the estimate of throughput_ratio is that figure, whatever is accepted and however tokens arrive."""
    script = {"ratio": ratio, "seed": seed, "acceptance": acceptance, "tokens": tokens, "arrivals": arrivals}
    names = [f"chat-{number}" for number in range(8)]
    requests = [(prompt(name), which) for name in names for which in (PLAIN, DRAFTING)]
    answers = give(script, *requests)
    generations = [
        Generation(
            "soak-1", f"{canary.id}-{arm}", "chat", canary.id, arm, which, Role.MEASURED, 0, canary.id, 1, answer
        )
        for (canary, which), answer in zip(requests, answers, strict=True)
        for arm in ["candidate" if which == DRAFTING else "plain"]
    ]
    drafted, plain = (
        tuple(generation for generation in generations if generation.arm == arm) for arm in ("candidate", "plain")
    )
    evidence = pair_answers(
        PairedAnswers("chat", {name: prompt(name) for name in names}, drafted, plain, 0.95, 1, greedy=True)
    )

    ratio_seen = estimate("throughput_ratio", evidence)

    assert isinstance(ratio_seen, Estimate)
    assert ratio_seen.center == pytest.approx(ratio, rel=1e-5)


def test_ten_minutes_pass_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual answers move the clock by their own length, and its ticks see their own instants."""
    backend = ScriptedBackend(Script.model_validate({"tokens": 100, "token": "100 ms", "prefill": "0 s"}))
    assert isinstance(backend.clock, VirtualClock)
    instants: list[int] = []
    backend.clock.every(10**9, lambda: instants.append(backend.clock.now_ns()))
    system = backend.start(PLAIN)
    monkeypatch.delattr(time, "sleep")
    for _ in range(60):
        system.answer(DecodeRequest(prompt(), PLAIN, SamplingParameters()))

    assert not backend.realtime
    assert math.isclose(600, backend.clock.now_ns() / 1e9)
    expected = [number * 10**9 for number in range(1, 601)]
    assert expected == instants


def test_the_same_script_gives_the_same_records() -> None:
    """Seeded noise is noise and still the same twice; another seed gives another draw."""
    script = {"noise": {"answer": 0.1, "token": 0.2}, "modes": [{"share": 0.3, "slower": 2}]}
    requests = [(prompt(), which) for which in (PLAIN, DRAFTING) * 5]

    once, twice, other_seed = give(script, *requests), give(script, *requests), give({**script, "seed": 2}, *requests)

    assert once == twice
    assert once != other_seed


def test_costs_make_the_ratio() -> None:
    """Without a decreed ratio a round costs one verify pass and the draft's time per proposed token."""
    script = {"token": 0.02, "verify": 0.024, "draft_token": {"d": 0.001}, "acceptance": 1.0, "tokens": 101}

    (answer,) = give(script, (prompt(), DRAFTING))

    assert answer.rounds is not None
    gaps = [arrival.at_ns for arrival in answer.arrivals[::5]]
    assert math.isclose(0.028, (gaps[-1] - gaps[0]) / 1e9 / (len(gaps) - 1), rel_tol=1e-6)
    assert answer.rounds.drafted == 4 * answer.rounds.rounds


def test_drift_grows_and_stays() -> None:
    """A drift of 10 % over a minute slows the arm it names, then no further; acceptance can decay too."""
    script = {"drift": [{"by": 0.10, "over": "60 s", "arm": "plain"}, {"of": "acceptance", "by": -1, "over": "60 s"}]}
    answers = give(script, *[(prompt(), which) for _ in range(200) for which in (PLAIN, DRAFTING)])

    plain, drafting = answers[::2], answers[1::2]
    assert math.isclose(1.10, seconds(plain[-1]) / seconds(plain[0]), rel_tol=1e-6)
    assert math.isclose(seconds(plain[-1]), seconds(plain[-2]), rel_tol=1e-6)
    assert drafting[0].rounds is not None
    assert drafting[-1].rounds is not None
    assert drafting[0].rounds.accepted > drafting[-1].rounds.accepted
    assert not drafting[-1].rounds.accepted


def test_faults_strike_where_they_are_told() -> None:
    """Each kind of fault comes at its answer, names its kind, and ends the system only where it would."""
    faults = ["garble", "truncate", "short", "hang"]
    script = {"faults": [{"answer": number, "fault": fault} for number, fault in enumerate(faults, start=2)]}

    answers = give(script, *[(prompt(), PLAIN)] * 6)

    kinds = [answer.fault.split(":")[0] if answer.fault else None for answer in answers]
    expected = [None, "garbled stream", "cut off", None, "timeout", "not running"]
    assert expected == kinds
    assert (answers[3].finish, answers[3].output_tokens) == ("length", 32)
    assert seconds(answers[4]) > 120


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ('{"tokn": 1}', "tokn: unknown key; did you mean 'token'?"),
        ('{"acceptance": 1.5}', "0 to 1"),
        ('{"faults": [{"fault": "explode"}]}', "faults.0.fault"),
        ('{"canaries": {"tool-": {"speed": 1}}}', "'tool-': speed"),
        ('{"sight": ["everything"]}', "allowed: arrivals, "),
        ('{"token": "fast"}', "cannot read 'fast'"),
        ('{"token": ', "not a valid script"),
        ("[]", "not a JSON object"),
    ],
)
def test_a_wrong_script_is_explained(tmp_path: Path, written: str, complaint: str) -> None:
    """A script that is wrong is an input error naming the file and the place."""
    file = tmp_path / "truth.json"
    file.write_text(written)

    with pytest.raises(InputError, match=r"truth\.json") as caught:
        read_script(file)

    assert complaint in caught.value.message


def test_a_missing_script_is_explained(tmp_path: Path) -> None:
    """A script that is not there is an input error that says against what its path is resolved."""
    with pytest.raises(InputError, match=r"nowhere\.json") as caught:
        read_script(tmp_path / "nowhere.json")

    assert "relative to the SLO file" in caught.value.hint
