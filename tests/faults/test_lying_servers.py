"""Servers that lie, simulated and real ones: what the verdict sees of it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.rehearsal import Rehearsed, canaries, rehearse, slo
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.records import Scored
from tests.builders.project_folder import ProjectFolder
from tests.builders.servers import CHAT, DONE, Pieces, Protocol, Request, certify_served, delta, event, finish, usage

NO_LOGITS = ["arrivals", "token_count", "text", "rounds", "plain"]
ACCEPTS = {"metric": "acceptance_rate", "at_least": 0.1, "why": "nothing is said of speed or words"}


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    return ProjectFolder(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def certified(
    script: dict[str, Any],
    *objectives: dict[str, Any],
    seed: int = 3,
    count: int = 24,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> Rehearsed:
    """Certify a server of 1.5x whose script is changed by *script*, with *options* in every second request."""
    written = {
        "workload": [{"name": "work", "canaries": "work.jsonl"}],
        "sweep": {"repeats": 1, "num_draft_tokens": [4]},
        "soak": {"duration": 60.0, "baseline_share": 0.5},
        "objective": list(objectives) or [ACCEPTS],
        **changes,
    }
    honest = {"tokens": 41, "noise": {"answer": 0.05}, "ratio": 1.5}
    prompts = tuple(
        canary.model_copy(update=options or {}) if number % 2 else canary
        for number, canary in enumerate(canaries("work", count))
    )
    return rehearse(slo(**written), {"work": prompts}, {**honest, **script}, seed)


def kinds(ran: Rehearsed) -> set[str]:
    return {finding.kind for finding in ran.verdict.findings}


def checked(ran: Rehearsed, metric: str) -> Check:
    return next(check for check in ran.verdict.workloads[0].checks if check.metric == metric)


@pytest.mark.parametrize("wording", ["other", "twice"])
@pytest.mark.parametrize("sight", [None, NO_LOGITS], ids=["logits", "no logits"])
def test_wrong_words_at_temperature_0_are_not_promoted(wording: str, sight: list[str] | None) -> None:
    """A draft that writes other words, or every word twice, is refused though no objective names agreement."""
    ran = certified({"wording": wording} | ({"sight": sight} if sight else {}))

    (step,) = ran.verdict.transitions
    assert ran.verdict.exit_code == 1
    broken = step.because.removeprefix("drafting off: ").partition(":")[0]
    assert broken in {"token_agreement", "numerics_harm_p_value"}


def test_tokens_that_numerics_change_cost_no_promotion() -> None:
    """A draft whose answers leave plain decoding's at small leads is promoted; only some of them are read whole."""
    told = [*NO_LOGITS, "logprobs", "verified"]
    ran = certified({"sight": told, "flips": 0.02, "tokens": 100}, count=48)
    records = [record for file in ran.case.after_soak.values() for record in file.records if isinstance(record, Scored)]

    whole, drafted = (
        [record for record in records if record.arm == arm and not record.after] for arm in ("plain", "candidate")
    )
    assert Outcome.PASS == checked(ran, "token_agreement").outcome == checked(ran, "replay_agreement").outcome
    assert 0 < len(whole) < len(drafted)
    assert max(record.after for record in records) > 0


def test_words_under_a_response_format_are_judged_by_their_place() -> None:
    """Where a request shapes its answer, log-probabilities are not read: its late differences may be numerics."""
    told = [*NO_LOGITS, "logprobs", "verified"]
    shaped = {"response_format": {"type": "json_object"}}

    ran = certified({"sight": told, "flips": 0.01, "tokens": 100}, count=48, options=shaped)

    check = checked(ran, "token_agreement")
    records = [record for file in ran.case.after_soak.values() for record in file.records if isinstance(record, Scored)]
    assert Outcome.PASS == check.outcome
    assert "set options differ late" in check.because
    assert {"answers_differ"} == kinds(ran)
    assert {0} == {int(record.canary.removeprefix("work-")) % 2 for record in records}


def test_wrong_words_that_are_allowed_are_told() -> None:
    """An SLO that relaxes agreement by naming it is taken at its word; a finding says which words differ."""
    objective = {"metric": "token_agreement", "at_least": 0.0, "why": "we only want speed"}

    ran = certified({"wording": "other"}, objective)

    (finding,) = ran.verdict.findings
    assert (0, "answers_differ") == (ran.verdict.exit_code, finding.kind)
    assert "24 of 24 canaries" in finding.detail


@pytest.mark.parametrize(
    ("script", "finding_kinds"),
    [
        pytest.param({"gap": 0.05}, set(), id="near-ties that the logits show"),
        pytest.param({"sight": NO_LOGITS}, {"answers_differ"}, id="late differences without logits"),
    ],
)
def test_an_honest_engine_with_near_ties_is_promoted(script: dict[str, Any], finding_kinds: set[str]) -> None:
    """Verify passes may swap tokens that nearly tie: shown by logits, or late in an answer where there are none."""
    ran = certified({"agreement": 0.0, **script})

    assert (0, 1.0, finding_kinds) == (ran.verdict.exit_code, checked(ran, "token_agreement").center, kinds(ran))


def test_a_few_canaries_of_many_show_no_agreement() -> None:
    """An implicit agreement needs twelve canaries in both arms: with fewer of many it is unproven, not passed."""
    brief = {"duration": 60.0, "max_duration": 60.0, "baseline_share": 0.1}
    sweep = {"repeats": 1, "num_draft_tokens": [4], "budget": 8}

    ran = certified({"token": "200 ms"}, count=48, soak=brief, sweep=sweep)

    check = checked(ran, "token_agreement")
    assert (3, Outcome.UNPROVEN) == (ran.verdict.exit_code, check.outcome)
    assert "too few to compare" in check.because


def test_equal_arms_are_not_promoted_where_no_ratio_is_promised() -> None:
    """A draft that gains nothing stays off, though the SLO bounds its acceptance alone."""
    assert not [seed for seed in range(5) if certified({"ratio": 1.0}, seed=seed).verdict.outcome == "promoted"]


RATIO = {"metric": "throughput_ratio", "at_least": 1.1, "why": "the draft must pay"}
REPLAYED: dict[str, Any] = {"ratio": 1.0, "replays": {"faster": 3.0}}
SWEEPS: dict[str, dict[str, Any]] = {
    "one setting, every canary twice": {"repeats": 2, "num_draft_tokens": [4]},
    "four settings, every canary once": {"repeats": 1, "num_draft_tokens": [2, 3, 4, 6]},
}


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=SWEEPS)
@pytest.mark.parametrize("count", [8, 24])
@pytest.mark.parametrize(
    "replays",
    [{"faster": 3.0}, {"faster": 1.3}, {"faster": 1.0, "whole": True}],
    ids=["3x", "1.3x", "in one piece"],
)
def test_a_server_that_replays_is_never_promoted(sweep: dict[str, Any], count: int, replays: dict[str, Any]) -> None:
    """A draft of plain speed whose repeated answers come from a cache is found, and its ratio is unproven."""
    ran = certified({**REPLAYED, "replays": replays}, RATIO, count=count, sweep=sweep)

    if ran.verdict.exit_code == 1:  # the sweep stopped at first answers, which show what the draft is worth
        assert ran.verdict.transitions[0].because.startswith("sweep: no draft setting")
    else:
        assert (3, {"replayed"}) == (ran.verdict.exit_code, kinds(ran) & {"replayed"})
        assert checked(ran, "throughput_ratio").because.startswith("replayed: ")


def test_first_requests_alone_are_counted_where_there_are_enough() -> None:
    """With canaries that the sweep did not send, the ratio is that of first requests: plain speed."""
    sweep = {"repeats": 1, "num_draft_tokens": [2, 4], "budget": 12}

    ran = certified(REPLAYED, RATIO, sweep=sweep, count=48)

    (step,) = ran.verdict.transitions
    assert (3, {"replayed"}) == (ran.verdict.exit_code, kinds(ran))
    assert "below the required 1.1x" in step.because
    assert "first requests alone" in ran.verdict.findings[0].detail


def test_a_draft_that_also_learns_answers_is_judged_by_first_requests() -> None:
    """A gain on first requests is promoted; what repeats reach is no evidence of speed."""
    typical = {"metric": "decode_throughput", "at_least": 1, "why": "of all answers, repeats too"}
    learns = {"ratio": 1.5, "replays": {"faster": 2.0}}
    sweep = {"repeats": 1, "num_draft_tokens": [2, 4], "budget": 12}

    by_first = certified(learns, RATIO, sweep=sweep, count=48)
    refused = certified(learns, RATIO, typical, sweep=sweep, count=48)

    assert (0, {"replayed"}) == (by_first.verdict.exit_code, kinds(by_first))
    assert 1.4 < (checked(by_first, "throughput_ratio").center or 0) < 1.6
    assert Outcome.UNPROVEN is checked(refused, "decode_throughput").outcome


def test_a_baseline_that_replays_voids_the_ratio_too() -> None:
    """Plain decoding from a cache hides what a draft gains: unproven, and no failed objective."""
    script = {"replays": {"arm": "plain", "faster": 1.15}}

    ran = certified(script, RATIO, sweep=SWEEPS["four settings, every canary once"])

    assert (3, {"replayed"}) == (ran.verdict.exit_code, kinds(ran))
    assert ran.verdict.findings[0].detail.startswith("repeats of plain ")


NOISES: dict[str, dict[str, Any]] = {
    "quiet": {},
    "10 %": {"noise": {"answer": 0.1}},
    "heavy tails": {"noise": {"answer": 0.15, "token": 0.5, "stall": 0.3, "stall_share": 0.05}},
    "autocorrelation": {"noise": {"answer": 0.10, "autocorrelation": 0.9}},
    "two modes": {"modes": [{"share": 0.4, "slower": 1.5, "arm": "plain"}]},
    "warm-up": {"drift": [{"of": "time", "by": -0.3, "over": 30.0, "arm": "candidate"}]},
    "plain decoding slows down": {"drift": [{"of": "time", "by": 0.1, "over": 100.0, "arm": "plain"}]},
    "the draft slows down": {"drift": [{"of": "time", "by": 0.2, "over": 100.0, "arm": "candidate"}]},
}


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_an_honest_server_is_not_called_a_replaying_one(noise: dict[str, Any]) -> None:
    """Noise of every kind, a warm-up and drifts raise no finding `replayed`."""
    ran = [certified(noise, RATIO, seed=seed, sweep=SWEEPS["four settings, every canary once"]) for seed in range(2)]

    assert all(rehearsal.case.soaks for rehearsal in ran)
    assert not [rehearsal for rehearsal in ran if "replayed" in kinds(rehearsal)]


SLOWER = {"of": "time", "after": "60 s", "arm": "candidate", "over": 600.0}
DECAYS: dict[str, tuple[dict[str, Any], float, float, int, str]] = {
    "a draft falls, canaries repeated": ({"by": 1.0, "over": 3000.0}, 1.25, 0.5, 3, "plain decoding fell by"),
    "plain decoding slows down": ({"by": 1.0, "arm": "plain", "over": 3000.0}, 1.25, 1.1, 3, "plain decoding rose by"),
    "a draft ends below its bound": ({"by": 0.5}, 1.25, 1.1, 1, "below the required 1.1x"),
    "it falls over the last quarter": (
        {"by": 0.2, "after": "450 s", "over": 150.0, "since": "start"}, 1.3, 1.15, 1, "below the required 1.15x"
    ),
    "it falls at once at 480 s": (
        {"by": 0.2, "after": "480 s", "over": 1.0, "since": "start"}, 1.3, 1.15, 1, "below the required 1.15x"
    ),
    "the machine slows down": ({"by": 0.2, "arm": "both"}, 1.25, 1.1, 0, ""),
}  # fmt: skip
"""The drift, the draft's gain, the bound, the exit code and why: the level that a soak ends at is the one deployed."""


def drifting(drift: dict[str, Any], ratio: float, bound: float, *, count: int = 24) -> Rehearsed:
    """Certify a draft in a soak of ten minutes or longer; a long prefill makes few answers, quick to judge."""
    soak = {"duration": 600.0, "max_duration": 3600.0 if "since" in drift else 1200.0, "baseline_share": 0.5}
    script = {"ratio": ratio, "drift": [SLOWER | drift], "prefill": "3 s"}
    whole = {"metric": "answer_throughput_ratio", "at_least": 0.1, "why": "this is about decoding"}
    objectives = ({**RATIO, "at_least": bound}, whole)
    return certified(script, *objectives, seed=1, count=count, soak=soak, fallback={"ladder": ["autoregressive"]})


@pytest.mark.parametrize("name", DECAYS)
def test_a_draft_that_decays_during_the_soak_is_not_promoted(name: str) -> None:
    """A mean above its bound is no proof where the ratio falls: unproven, or failed by the level it ends at."""
    drift, ratio, bound, code, because = DECAYS[name]

    verdict = drifting(drift, ratio, bound).verdict

    assert code == verdict.exit_code
    reasons = [verdict.workloads[0].because, *(step.because for step in verdict.transitions)]
    assert any(because in reason for reason in reasons)


def test_a_decay_is_found_without_repeats() -> None:
    """Of 96 canaries that are sent once each the ratio falls by 20 % in ten minutes, and again: unproven."""
    drift, ratio, bound, code, because = DECAYS["a draft falls, canaries repeated"]

    verdict = drifting(drift, ratio, bound, count=96).verdict

    assert (code, True) == (verdict.exit_code, because in verdict.workloads[0].because)


@pytest.mark.parametrize("over", [120.0, 600.0])
def test_a_draft_whose_process_warms_up_over_minutes_is_not_blocked(over: float) -> None:
    """A slow start of 1.3x is ruled out by no sweep, and the soak continues until it has warmed up."""
    warms_up = {"of": "time", "by": 0.65 - 1, "over": over, "arm": "candidate", "since": "start"}
    soak = {"duration": 600.0, "max_duration": 3600.0, "baseline_share": 0.5}
    # The script's ratio is that of its beginning. One soak in 200 shows an effect of order by chance.
    script = {"seed": 2, "ratio": 1.3 * 0.65, "drift": [warms_up], "prefill": "3 s", "noise": {"answer": 0.05}}

    ran = certified(script, {**RATIO, "at_least": 1.15}, soak=soak)

    assert (0, set()) == (ran.verdict.exit_code, kinds(ran))


@pytest.mark.parametrize(
    "noise", [{"answer": 0.05}, {"answer": 0.1, "autocorrelation": 0.8}], ids=["noise", "slow noise"]
)
def test_noise_is_no_decay(noise: dict[str, float]) -> None:
    """A steady draft under noise that lasts is promoted."""
    soak = {"duration": 600.0, "baseline_share": 0.5}

    ran = [certified({"noise": noise, "prefill": "3 s"}, RATIO, seed=seed, soak=soak) for seed in range(3)]

    assert [0, 0, 0] == [rehearsal.verdict.exit_code for rehearsal in ran]


# A real server


GAP_S = 0.006
SAYS = tuple(f"word{number} " for number in range(16))


class Liar:
    """What a server sends: all at plain speed, but *repeats* of the draft in one piece; with changed *words*."""

    def __init__(self, *, repeats: bool = False, words: Callable[[str], str] = str) -> None:
        self._repeats, self._words = repeats, words
        self._asked: set[tuple[bool, str]] = set()

    def pieces(self, request: Request, drafting: bool) -> Pieces:
        prompt = drafting, json.dumps(request["messages"])
        replayed = self._repeats and drafting and prompt in self._asked
        self._asked.add(prompt)
        width = len(SAYS) if replayed else 2 if drafting else 1
        for at in range(0, len(SAYS), width):
            time.sleep(0 if replayed else width * GAP_S)
            text = "".join(self._words(word) if drafting else word for word in SAYS[at : at + width])
            yield event(delta(content=text))
        yield event(finish())
        yield event(usage(usage={"prompt_tokens": 9, "completion_tokens": len(SAYS)}))
        yield DONE


def served(project: ProjectFolder, liar: Liar, *objectives: dict[str, Any]) -> dict[str, Any]:
    """Certify a real server with and without a draft; return its verdict."""
    certify_served(project, Protocol(CHAT, liar.pieces), *objectives)
    return project.verdict()


def test_a_real_server_that_replays_is_not_promoted(project: ProjectFolder) -> None:
    """Repeats of a prompt come at once and in one piece over HTTP: unproven, and the finding says why."""
    verdict = served(project, Liar(repeats=True), RATIO)

    assert ("unproven", 3) == (verdict["outcome"], verdict["exit_code"])
    assert "replayed" in {finding["kind"] for finding in verdict["findings"]}


@pytest.mark.nightly
@pytest.mark.alone
def test_a_real_server_that_writes_other_words_is_not_promoted(project: ProjectFolder) -> None:
    """A draft that says every word twice is graded back, though the SLO speaks of nothing but speed."""
    verdict = served(project, Liar(words=lambda word: 2 * word), {**RATIO, "at_least": 0.1})

    assert 1 == verdict["exit_code"]
    assert "numerics_harm_p_value: " in verdict["transitions"][0]["because"]
