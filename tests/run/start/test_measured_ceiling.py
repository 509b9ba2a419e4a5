"""`gatekeeper ceiling`: a scripted target with planted times, the real little pair, and what cannot be timed."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gatekeeper.analysis.sweep.ceiling import Ceiling
from gatekeeper.backends.scripted.script import Script
from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend, ScriptedSystem
from gatekeeper.core.errors import InputError
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem
from gatekeeper.core.records import Answer, PassTimes, Rounds, setting
from gatekeeper.core.verdict import Missing
from gatekeeper.report.commands.ceiling_text import ceiling_sentences, ceiling_text
from gatekeeper.run.stages.timed_turns import (
    CountedRounds,
    TimedSystems,
    ceiling_document,
    ceiling_from,
    questions_after,
    take_turns,
)
from gatekeeper.run.start import measured_ceiling
from gatekeeper.run.start.measured_ceiling import TimedTarget, measure_ceiling
from tests.builders.golden_words import says
from tests.builders.project_folder import ROOT, ProjectFolder

SIGHT = ("arrivals", "token_count", "text", "rounds", "plain", "widths")


def planted(draft: str | None, **script: Any) -> TimedSystems:
    """A scripted target on a virtual clock."""
    backend = ScriptedBackend(Script.model_validate({"sight": SIGHT, "token": "20 ms", **script}))
    knobs = setting(draft=draft)
    system = backend.start(knobs)
    assert isinstance(system, ScriptedSystem)
    return TimedSystems(backend, system, knobs)


def timed(systems: TimedSystems, seconds: float = 30) -> Ceiling:
    ceiling = ceiling_from(take_turns(systems, seconds, 256))
    assert isinstance(ceiling, Ceiling)
    return ceiling


def document_of(ceiling: Ceiling | Missing) -> dict[str, Any]:
    names = {"target": "org/target", "draft": None, "backend": "scripted", "timed": "in process", "seconds": 20.0}
    return {**names, "context_tokens": 256, **ceiling_document(ceiling)}


def test_planted_times_give_the_costs_of_rounds() -> None:
    """
    A pass of 30 ms and steps of 2 ms at 20 ms a token: k = 4 costs 1.9 tokens, gives 2.63x at most and pays at 0.225.
    """
    ceiling = timed(planted("d", verify="30 ms", draft_token="2 ms"))
    cost = ceiling.rounds[3]

    assert [4, 1.9] == pytest.approx([cost.length, cost.cost.center])
    assert [5 / 1.9, 0.225] == pytest.approx([cost.most.center, cost.break_even.center])
    assert [15, 16 / 3.0] == pytest.approx([ceiling.best.length, ceiling.most.center])
    says("run", "a ceiling with a draft", " | ".join(ceiling_sentences(document_of(ceiling))))


class PlantedPasses:
    """A model served alone, whose tokens and passes take planted times."""

    def __init__(self, token_s: float) -> None:
        self.token_s = token_s

    def time_passes(self, _request: DecodeRequest, widths: tuple[int, ...], _context: int) -> PassTimes:
        return PassTimes(self.token_s, {width: self.token_s * (0.9 + 0.1 * width) for width in widths})


def test_a_round_of_a_served_draft_has_all_its_passes() -> None:
    """
    A round of four is a pass over five tokens and four steps of the draft, which then reads the five again, in one pass
    of its own, as that of llama-server does.
    """
    systems = replace(planted(None), target=PlantedPasses(0.02), draft=PlantedPasses(0.002))

    turn = systems.turn((1, 5), 256)

    assert isinstance(turn, PassTimes)
    assert {4: 0.028 + 4 * 0.002 + 0.0028} == pytest.approx(dict(turn.rounds))


class PlantedRounds:
    """A drafting server whose rounds take 30 ms and 5 ms a drafted token, and keep *kept* of what they draft."""

    def __init__(self, kept: int, *, fault: str | None = None, most: int = 99) -> None:
        self.kept, self.fault, self.most = kept, fault, most

    def answer(self, request: DecodeRequest) -> Answer:
        """Answer after 400 ms, with as many tokens as requested, or with *most* and a stop token."""
        length, emitted, widths = dict(request.setting)["num_draft_tokens"], 0, list[int]()
        while emitted < min(self.most + 1, request.sampling.max_tokens):
            widths.append(min(length, request.sampling.max_tokens - emitted))
            emitted += min(self.kept, widths[-1]) + 1
        rounds = Rounds(len(widths), sum(widths), accepted=0)
        return Answer(0, (400 + 30 * rounds.rounds + 5 * rounds.drafted) * 10**6, fault=self.fault, rounds=rounds)


def with_rounds(rounds: PlantedRounds) -> TimedSystems:
    """A scripted target whose draft is in a server that counts its rounds."""
    return replace(planted(None), drafting=CountedRounds(cast("RunningSystem", rounds), "draft", questions_after(256)))


@pytest.mark.parametrize("most", [10, 11, 99])
@pytest.mark.parametrize("kept", [0, 15])
def test_a_server_that_counts_rounds_shows_what_each_takes(kept: int, most: int) -> None:
    """
    A round of four takes 50 ms, whether drafted tokens are kept or not and whether a stop token ends the answer or its
    limit, before which the last rounds draft less. Passes that rounds hold are not timed beside them.
    """
    turn = with_rounds(PlantedRounds(kept, most=most)).turn((1, 5, 2), 256)

    assert isinstance(turn, PassTimes)
    assert {4: 0.05, 1: 0.035} == pytest.approx(dict(turn.rounds))
    assert {1, 2} == set(turn.passes)


def test_rounds_that_nothing_shows_are_missing() -> None:
    """
    Where each answer ends in its first round, or a request fails, there is no ceiling but a reason.
    """
    planted_rounds = PlantedRounds(15, most=1), PlantedRounds(0, fault="connection broken")

    early, faulty = (take_turns(with_rounds(rounds), 0.1, 256) for rounds in planted_rounds)

    assert isinstance(early, Missing)
    assert "two rounds" in early.because
    assert Missing("connection broken") == faulty


def test_it_keeps_to_its_time_but_takes_enough_turns() -> None:
    """
    It ends near its time; where a turn takes longer than all of it, six are taken, and five make the bounds. After a
    minute it ends all the same, and has too few.
    """
    quick, slow = (planted(None, verify=verify, noise={"answer": 0.01}) for verify in ("22 ms", "500 ms"))

    quick_turns, slow_turns = timed(quick, seconds=20), timed(slow, seconds=1)

    assert 20 <= quick.backend.clock.now_ns() / 1e9 < 21
    assert quick_turns.turns > 20
    assert (5, 5) == (slow_turns.turns, slow_turns.blocks)
    assert isinstance(ceiling_from(take_turns(planted(None, verify="9 s"), 1, 256)), Missing)


@pytest.mark.parametrize(
    ("verify", "pays", "words"),
    [("15 ms", "always", "a draft that pays always"), ("2 s", "never", "a draft that pays never")],
)
def test_a_break_even_that_does_not_exist_is_said_in_words(verify: str, pays: str, words: str) -> None:
    """
    A round that takes less than a plain token pays at any acceptance, one of k + 1 tokens or more at none.
    """
    document = document_of(timed(planted(None, verify=verify)))
    cost = document["rounds"][3]

    assert (pays, None) == (cost["pays"], cost["break_even_acceptance_ratio"])
    says("run", words, " | ".join(ceiling_sentences(document)))


def test_a_first_round_that_takes_longer_is_said() -> None:
    """
    The text names what the first round of an answer takes longer, where it is more than noise.
    """
    ceiling = timed(planted(None))

    first, steady = (ceiling_text(document_of(replace(ceiling, first_s=seconds))) for seconds in (0.005, 0.0005))

    assert "takes 5 ms longer" in first
    assert "first round" not in steady


def test_what_cannot_be_timed_has_no_number() -> None:
    """
    A target that times no passes gives the reason alone, in the document and in the text.
    """
    document = document_of(ceiling_from(take_turns(planted(None, sight=["arrivals"]), 5, 256)))

    assert document["measurable"] is False
    assert "rounds" not in document
    says("run", "passes that cannot be timed", ceiling_text(document))


def test_mistakes_are_errors_before_anything_is_timed(tmp_path: Path) -> None:
    """
    A target that is not here, a server that is down or no server, and a draft behind a url exit 2, and say what to do.
    """
    project = ProjectFolder(tmp_path, {})
    away = ("ceiling", "x", "--backend", "llama-server", "--url", "http://127.0.0.1:9")

    mistakes = (("ceiling", "no/such"), ("ceiling", "nothere"), away, (*away[:-1], "nota"), (*away, "--draft", "d"))

    errors = [project.run(*words, code=2).err for words in mistakes]

    says("run", "targets of a ceiling that cannot be started", "".join(errors))
    with pytest.raises(InputError):
        measure_ceiling(TimedTarget("x", "mlx", draft="d", url="http://127.0.0.1:9"), seconds=1)


def test_a_missing_draft_is_an_error_before_the_target_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A draft that is not here is told at once, not after a server has read the target into memory.
    """
    monkeypatch.setattr(measured_ceiling, "open_backend", lambda *_, **__: pytest.fail("a backend was opened"))
    target = str(ROOT / "models" / "little-target")

    for backend in ("mlx", "mlx-server"):
        with pytest.raises(InputError, match="no/such"):
            measure_ceiling(TimedTarget(target, backend, draft="no/such"), seconds=1)


@pytest.mark.nightly
@pytest.mark.mlx
def test_the_little_target_is_timed_in_process(tmp_path: Path) -> None:
    """
    The real little pair has a cost of every length, units in the names of its document, and a draft that takes time.
    """
    pytest.importorskip("mlx_lm")
    project = ProjectFolder(tmp_path, {})
    target, draft = (str(ROOT / "models" / name) for name in ("little-target", "little-draft"))

    document = project.run("ceiling", target, "--draft", draft, "--seconds", "1", "--json", code=0).document

    assert [*range(1, 16)] == [cost["draft_length_tokens"] for cost in document["rounds"]]
    assert [str(width) for width in range(1, 17)] == [*document["pass_s"]]
    assert all(cost["round_s"] > 0 for cost in document["rounds"])
    assert {"plain_token_s", "context_tokens", "most_ratio"} < document.keys()
    assert document["most_ratio"]["lo"] <= document["most_ratio"]["center"] <= document["most_ratio"]["hi"]
