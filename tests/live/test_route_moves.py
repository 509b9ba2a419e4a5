"""The state of a route: down when a crossing holds, off without evidence, up after quiet as far as the certificate."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.checks import check_bound
from gatekeeper.core.clock import Instant
from gatekeeper.core.document import document_of
from gatekeeper.core.judgement import Missing, Outcome, fact
from gatekeeper.core.policy import Guard, Watch
from gatekeeper.core.records import Generation, Setting
from gatekeeper.live import routes
from gatekeeper.live.guards.guard_judgement import GuardResult, judge_guards
from gatekeeper.live.routes import RouteChange, RouteRules, RouteState, Standing
from tests.builders.golden_words import lines_with, says
from tests.builders.slo import PLAIN, SECOND
from tests.builders.watch import context, evidence, pairs

CERTIFIED: Setting = (("draft", "heavy"), ("num_draft_tokens", 4))
LOWER: Setting = (("draft", "heavy"), ("num_draft_tokens", 2))
WATCH = Watch(interval=60, missing_for=600, quiet_for=1800, quiet_most=7200)
SPEED = Guard.model_validate({"metric": "throughput_ratio", "at_least": 1.16, "for": 120, "why": "it must pay"})
ERRORS = Guard.model_validate({"metric": "error_rate", "at_most": 0.05, "for": 120})


def rules(*, switched: bool = True, ladder: tuple[Setting, ...] = (CERTIFIED, LOWER, PLAIN)) -> RouteRules:
    return RouteRules(ladder, WATCH, switched)


def result(guard: Guard, word: str, now_ns: int) -> GuardResult:
    """Return a guard that is `kept`, `crossed`, `undecided`, `missing` or `asleep`, on evidence of this moment."""
    good, bad = (1.5, 0.5) if guard.bound == "at_least" else (0.0, 0.5)
    estimate = {
        "kept": fact(good, 24),
        "crossed": fact(bad, 24),
        "undecided": replace(fact(guard.threshold, 24), lo=0.0, hi=9.0),
    }.get(word, Missing("no answers"))
    check = check_bound(guard.of, guard.bound, guard.threshold, estimate, why=guard.why)
    fresh = None if word in {"missing", "asleep"} else now_ns
    return GuardResult(guard, "easy", check, fresh, asleep=word == "asleep")


def instant(now_ns: int) -> Instant:
    return Instant(now_ns, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=now_ns / 1000))


def restored(changes: Sequence[RouteChange]) -> Standing:
    """Return where the route stands after *changes*, as a restart reads them from the log."""
    begun = {"kind": "begun", **routes.snapshot("verdict", {"easy": Standing(workload="easy")}, {"easy": rules()})}
    entries = [begun, *({"kind": "change", **document_of(change)} for change in changes)]
    standing, _ = routes.read_log(json.loads(json.dumps(entries)), "verdict").routes["easy"]
    return standing


@dataclass
class Watched:
    """A route under watch on a clock of our own: a round each minute."""

    rules: RouteRules
    state: RouteState = field(default_factory=lambda: routes.start(Standing(workload="easy"), 0))
    now_ns: int = 0
    changes: list[RouteChange] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def watch(self, *words: str, minutes: int = 1) -> "Watched":
        """Run a round each minute, and find *words* of the speed and of the errors."""
        for _ in range(minutes):
            self.now_ns += 60 * SECOND
            guards = zip((SPEED, ERRORS), words, strict=False)
            results = [result(guard, word, self.now_ns) for guard, word in guards]
            self.state, new = routes.after_round(self.state, results, self.rules, instant(self.now_ns))
            self.changes += new
            self.steps.append(self.state.standing.step)
        return self

    @property
    def moves(self) -> list[tuple[str, int]]:
        return [(change.kind, change.after) for change in self.changes]


@pytest.fixture
def watched() -> Watched:
    return Watched(rules())


Stretch = tuple[str, str, int]
"""What is seen of the speed and of the errors, and for how many minutes."""
OFF: list[Stretch] = [("crossed", "kept", 6)]
DOWN_TWICE = [("down", 1), ("down", 2)]


@pytest.mark.parametrize(
    ("seen", "moves"),
    [
        # An interval on both sides of its bound leaves the certificate standing, for as long as evidence comes.
        ([("undecided", "undecided", 240)], []),
        # Two minutes are two minutes after the first round that saw it, and one good round starts them again.
        ([("crossed", "kept", 2), ("kept", "kept", 1), ("crossed", "kept", 2)], []),
        # A round without evidence is no good round: a bound crossed before and after it was crossed throughout.
        ([("crossed", "kept", 1), ("missing", "kept", 1), ("crossed", "kept", 1)], [("down", 1)]),
        (OFF, DOWN_TWICE),
        ([*OFF, ("undecided", "kept", 240)], DOWN_TWICE),
        ([*OFF, ("missing", "kept", 240)], DOWN_TWICE),
        ([*OFF, ("crossed", "kept", 240)], DOWN_TWICE),
        ([*OFF, ("asleep", "asleep", 240)], DOWN_TWICE),
        ([*OFF, *[("kept", "kept", 20), ("crossed", "kept", 1)] * 10], DOWN_TWICE),
        ([*OFF, ("kept", "kept", 29)], DOWN_TWICE),
        ([*OFF, ("kept", "kept", 30)], [*DOWN_TWICE, ("try", 1)]),
        # While it decodes plainly, the guards of speculation of a server that cannot be switched sleep.
        ([*OFF, ("asleep", "kept", 30)], [*DOWN_TWICE, ("try", 1)]),
    ],
)
def test_a_route_moves_by_what_is_seen(seen: list[Stretch], moves: list[tuple[str, int]]) -> None:
    """A crossing that holds takes it down a step; only what is kept, for long enough, takes it up."""
    watched = Watched(rules(switched=("asleep", "kept", 30) not in seen))

    for speed, errors, minutes in seen:
        watched.watch(speed, errors, minutes=minutes)

    assert moves == watched.moves
    assert watched.rules.ladder[moves[-1][1] if moves else 0] == routes.active_setting(watched.state, watched.rules)


def test_a_crossing_must_hold_for_as_long_as_its_guard_says(watched: Watched) -> None:
    """Two minutes are two minutes after the first round that saw it, and one good round starts them again."""
    watched.watch("crossed", minutes=2).watch("kept").watch("crossed", minutes=2)
    assert [] == watched.moves

    watched.watch("crossed")

    assert [("down", 1)] == watched.moves
    (change,) = watched.changes
    says(
        "watch",
        "a crossing must hold for as long as its guard says",
        lines_with("throughput_ratio: 0.50x,", change.because.replace("120 s", "2 min")),
    )
    assert {"draft": "heavy", "num_draft_tokens": 2} == change.setting
    assert [Outcome.FAIL] == [crossing.outcome for crossing in change.evidence]


def test_missing_evidence_turns_off_at_once(watched: Watched) -> None:
    """After ten minutes without evidence no step is tried on the way: plain decoding."""
    watched.watch("kept", "kept", minutes=5).watch("missing", "kept", minutes=10)
    assert [] == watched.moves

    watched.watch("missing", "kept")

    assert [("off", 2)] == watched.moves
    says("watch", "missing evidence turns off at once", watched.changes[0].because)


def test_a_guard_may_have_a_limit_of_its_own(watched: Watched) -> None:
    """A sensor that is read each second is missed after a minute, where the watch waits ten."""
    soon = SPEED.model_copy(update={"missing_for": 60.0})
    for minute in range(1, 3):
        now_ns = minute * 60 * SECOND
        results = [result(soon, "missing", now_ns)]
        watched.state, new = routes.after_round(watched.state, results, watched.rules, instant(now_ns))
        watched.changes += new

    assert [("off", 2)] == watched.moves


def test_a_way_up_is_quiet_kept_and_on_probation(watched: Watched) -> None:
    """After half an hour with every guard kept, one step up; after as long again it is settled."""
    watched.watch("crossed", minutes=6)
    watched.watch("kept", "kept", minutes=29)
    assert 2 == watched.state.standing.step

    watched.watch("kept", "kept", minutes=31)
    assert [("try", 1), ("settled", 1)] == watched.moves[2:]

    watched.watch("kept", "kept", minutes=31)

    assert [("try", 0), ("settled", 0)] == watched.moves[4:]
    assert Standing(workload="easy") == watched.state.standing.model_copy(update={"because": "", "at": ""})


def test_each_relapse_doubles_the_quiet_time(watched: Watched) -> None:
    """Half an hour, one, two, and no more than two: a route that does not hold is tried ever more seldom."""
    watched.watch("crossed", minutes=6)
    waits = []
    for _ in range(5):
        minutes = 0
        while watched.moves[-1][0] != "try":
            watched.watch("kept", "kept")
            minutes += 1
        waits.append(minutes)
        watched.watch("crossed", minutes=3)

    assert [30, 60, 120, 120, 120] == waits


def test_a_bar_is_not_lifted_by_any_evidence(watched: Watched) -> None:
    """Another model answers: off, once, and whatever is seen later."""
    watched.state, new = routes.bar(watched.state, watched.rules, "another model", instant(1))
    watched.changes += new
    watched.state, again = routes.bar(watched.state, watched.rules, "expired", instant(2))

    watched.watch("kept", "kept", minutes=240)

    assert ([("barred", 2)], ()) == (watched.moves, again)
    assert "another model" == watched.state.standing.barred
    assert PLAIN == routes.judged_setting(watched.state, watched.rules)


@pytest.mark.parametrize(
    ("ladder", "changes"),
    [
        ((CERTIFIED, LOWER, PLAIN), []),
        ((CERTIFIED, PLAIN), [("off", 1)]),
        ((LOWER, PLAIN), [("down", 0)]),
        ((PLAIN,), [("off", 0)]),
    ],
)
def test_an_edited_policy_keeps_the_setting_or_turns_it_off(
    ladder: tuple[Setting, ...], changes: list[tuple[str, int]], watched: Watched
) -> None:
    """The setting in force stays in force where the new ladder has it; where it has not, plain decoding."""
    watched.watch("crossed", minutes=3)

    _, moves = routes.after_edit(watched.state, watched.rules, rules(ladder=ladder), instant(watched.now_ns))

    assert changes == [(move.kind, move.after) for move in moves]


# Whatever is seen

WORDS = st.sampled_from(["kept", "crossed", "undecided", "missing"])
ROUNDS = st.lists(st.tuples(st.tuples(WORDS, WORDS), st.integers(1, 45)), max_size=12)


def lived(rounds: Sequence[tuple[tuple[str, str], int]], *, switched: bool = True) -> Watched:
    watched = Watched(rules(switched=switched))
    for words, minutes in rounds:
        watched.watch(*words, minutes=minutes)
    return watched


@given(ROUNDS)
def test_the_state_is_what_its_log_says(rounds: list[tuple[tuple[str, str], int]]) -> None:
    """What a restart reads back, line by line, is where the route stood; changes of another route are not its own."""
    watched = lived(rounds)

    lines = [json.dumps(document_of(change)) for change in watched.changes]

    assert watched.changes == [RouteChange.model_validate_json(line) for line in lines]
    assert watched.state.standing == restored(watched.changes)
    assert Standing(workload="easy") == restored(
        [change.model_copy(update={"workload": "hard"}) for change in watched.changes]
    )


@given(ROUNDS)
def test_a_route_is_never_on_without_fresh_evidence(rounds: list[tuple[tuple[str, str], int]]) -> None:
    """After every round a route that speculates has seen each of its guards within the limit, or has just begun."""
    watched = Watched(rules())
    for words, minutes in rounds:
        for _ in range(minutes):
            watched.watch(*words)
            state = watched.state
            newest = [state.fresh.get(bound.name, state.since_ns) for bound in (SPEED, ERRORS)]
            silent = [(watched.now_ns - at) / SECOND for at in newest]
            assert state.standing.step == watched.rules.plain or max(silent) <= WATCH.missing_for


@given(ROUNDS, st.booleans())
def test_changes_are_bounded_by_the_quiet_time(rounds: list[tuple[tuple[str, str], int]], switched: bool) -> None:
    """However signals flap: one step up each quiet time at most, and no more down than those allow."""
    watched = lived(rounds, switched=switched)

    ups = sum(kind == "try" for kind, _ in watched.moves)
    downs = sum(kind in {"down", "off"} for kind, _ in watched.moves)
    assert ups <= watched.now_ns / SECOND / WATCH.quiet_for
    assert downs <= ups + watched.rules.plain


@given(st.lists(st.tuples(st.sampled_from(["crossed", "undecided", "missing"]), st.integers(1, 60)), max_size=20))
def test_without_a_kept_guard_it_only_goes_down(rounds: list[tuple[str, int]]) -> None:
    """No time and no silence takes a route up."""
    watched = Watched(rules())
    for word, minutes in rounds:
        watched.watch("kept", word, minutes=minutes)

    assert sorted(watched.steps) == watched.steps


@given(ROUNDS, st.integers(0, 30))
def test_a_restart_never_takes_a_route_up(rounds: list[tuple[tuple[str, str], int]], cut: int) -> None:
    """Started again from its log a route stands where it stood, and its quiet time begins again."""
    before = lived(rounds[:cut])
    after = Watched(rules(), routes.start(restored(before.changes), 0))

    after.watch("kept", "kept", minutes=29)

    assert before.state.standing.step == after.state.standing.step


def test_a_loss_goes_all_the_way_down_and_back() -> None:
    """A draft that turns bad is off within the hour; good again, it goes up to the certified setting and no further."""
    guarded = context({"metric": "throughput_ratio", "at_least": 1.16, "for": 120.0}, watch={"quiet_for": 600.0})
    speed_rules = RouteRules(guarded.policy.route_of("easy").steps, guarded.policy.watch, switched=True)
    state = routes.start(Standing(workload="easy"), 0)
    answers: list[Generation] = []
    steps = []
    for minute in range(1, 150):
        knobs, ratio = routes.judged_setting(state, speed_rules), 0.6 if 20 <= minute < 70 else 1.5
        pair = pairs([ratio * (1.02 if minute % 2 else 0.98)], first_s=60.0 * minute)
        answers += [replace(answer, setting=knobs) if answer.arm == "candidate" else answer for answer in pair]
        window = evidence(answers, now_s=60.0 * minute + 30, since_s=state.since_ns / SECOND)
        before = state.standing.step
        results = judge_guards("easy", window, guarded, knobs)
        state, _ = routes.after_round(state, results, speed_rules, instant(window.now_ns))
        if state.standing.step != before:
            steps.append((minute, state.standing.step))
            answers = []

    assert [1, 2, 1, 0] == [step for _, step in steps]
    assert 20 < steps[1][0] < 70 < steps[2][0]


def test_a_step_that_was_not_soaked_says_so(watched: Watched) -> None:
    """Steps between the certified setting and plain decoding were not soaked: the reason says so, down and up."""
    watched.watch("crossed", "kept", minutes=3).watch("kept", "kept", minutes=31)

    down, up = watched.changes[:2]
    assert [("down", 1, True), ("try", 0, False)] == [
        (move.kind, move.after, "not soaked" in move.because) for move in (down, up)
    ]
