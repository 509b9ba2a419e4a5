"""Which stored runs prune keeps."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.deploy.prune import RetentionRules, StoredRun, retain

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = 86400.0


def run(name: str, age: float, *, valid: float = 30, **more: object) -> StoredRun:
    """Return a finished, failed run of one SLO, frozen *age* days ago."""
    at = NOW - timedelta(days=age)
    until = at + timedelta(days=valid)
    plain = StoredRun(Path(name), "slo", "failed", at, until, "slo", "these", finished=True, passed=False)
    return replace(plain, **more)  # type: ignore[arg-type]


def kept(runs: Sequence[StoredRun], retention: RetentionRules) -> set[str]:
    return {name for name, reasons in retain(runs, retention, NOW).items() if reasons}


def test_the_newest_stay() -> None:
    """
    Each family keeps the number that the rules give, whatever the other family has.
    """
    own_runs = [run(f"a{age}", age) for age in range(5)]
    other_runs = [run(f"b{age}", age, family="other", subject="others") for age in (60, 70)]

    assert {"a0", "a1", "b60", "b70"} == kept([*own_runs, *other_runs], RetentionRules(last=2))


def test_what_the_gate_may_ask_for_stays() -> None:
    """
    The newest run of a subject stays though newer ones of its family are kept, and so does the newest that passed.
    """
    runs = [run(f"new{age}", age, subject="new") for age in range(3)]
    runs += [run("bad", 10), run("good", 11, passed=True), run("older", 12, passed=True), run("worse", 13)]

    assert {"new0", "bad", "good"} == kept(runs, RetentionRules(last=1))


def test_a_proof_that_ran_out_may_go() -> None:
    """
    A run that counts for nothing any more stays for its age alone; five minutes are left for clocks that differ.
    """
    minute = 1 / 1440
    runs = [run("new", 0, subject="new"), run("out", 40, valid=40 - 6 * minute, subject="out")]
    runs += [run("just", 40, valid=40 - 4 * minute, subject="just")]

    assert {"new", "just"} == kept(runs, RetentionRules(last=1))


def test_a_bad_run_hides_the_good_one_behind_it() -> None:
    """
    An expired run that is the newest of its subject stays as long as an older one of it, wrongly dated, may count.
    """
    runs = [run("new", 0, subject="new"), run("bad", 8, valid=1), run("good", 9, passed=True)]

    assert {"new", "bad", "good"} == kept(runs, RetentionRules(last=1))


def test_an_unfinished_run_is_no_newest_run() -> None:
    """
    It is not counted among the newest, and stays unless the rules give an age that it has passed.
    """
    runs = [run("whole", 0, passed=True), run("young", 3, finished=False), run("old", 20, finished=False)]

    assert {"whole", "young", "old"} == kept(runs, RetentionRules(last=1))
    assert {"whole", "young"} == kept(runs, RetentionRules(last=1, unfinished=14 * DAY))


def test_more_may_be_asked_for() -> None:
    """
    Young runs and promoted runs stay in addition to the newest if the rules say so.
    """
    runs = [run("a", 0), run("b", 5), run("c", 6, outcome="promoted", valid=1), run("d", 100)]

    assert {"a"} == kept(runs, RetentionRules(last=1))
    assert {"a", "b"} == kept(runs, RetentionRules(last=1, within=5.5 * DAY))
    assert {"a", "c"} == kept(runs, RetentionRules(last=1, promoted=True))


def test_every_run_that_stays_has_a_reason() -> None:
    """
    All reasons are given.
    """
    reasons = retain(
        [run("a", 0, passed=True, outcome="promoted")], RetentionRules(last=3, within=DAY, promoted=True), NOW
    )

    assert 5 == len(reasons["a"])


ages = st.floats(-2, 400, allow_nan=False)


@st.composite
def folders(draw: st.DrawFn) -> list[StoredRun]:
    count = draw(st.integers(0, 12))
    return [
        run(
            f"run-{number}",
            draw(ages),
            valid=draw(st.floats(0.01, 60)),
            family=draw(st.sampled_from("FG")),
            subject=draw(st.sampled_from("stu")),
            finished=draw(st.booleans()),
            passed=draw(st.booleans()),
            outcome=draw(st.sampled_from(["promoted", "failed"])),
        )
        for number in range(count)
    ]


rules = st.builds(
    RetentionRules,
    last=st.integers(1, 6),
    within=st.floats(0, 100 * DAY),
    promoted=st.booleans(),
    unfinished=st.none() | st.floats(1, 100 * DAY),
)


def answer(runs: Sequence[StoredRun], subject: str) -> tuple[str, bool]:
    """Decide as the gate does: by the newest run of the subject, if it is finished, valid and passed."""
    newest = max(
        (stored for stored in runs if stored.subject == subject),
        key=lambda stored: (stored.at, stored.name),
        default=None,
    )
    if newest is None or not newest.finished or NOW >= newest.until:
        return "no proof", False
    return newest.name, newest.passed


@given(folders(), rules)
def test_the_gate_answers_as_before(runs: list[StoredRun], retention: RetentionRules) -> None:
    """
    With the runs gone that may go, admit gives the same answer for every subject: never a better one, and none is lost.
    """
    stay = kept(runs, retention)

    remaining = [stored for stored in runs if stored.name in stay]

    for subject in "stu":
        assert answer(runs, subject) == answer(remaining, subject)


@given(folders(), rules)
def test_so_many_stay_as_were_asked_for(runs: list[StoredRun], retention: RetentionRules) -> None:
    """
    Each family keeps its newest finished runs, and no unfinished one is removed too early.
    """
    stay = kept(runs, retention)

    for family in "FG":
        finished_runs = sorted(
            (stored.at, stored.name) for stored in runs if stored.family == family and stored.finished
        )
        assert {name for _, name in finished_runs[-retention.last :]} <= stay
    for stored in runs:
        if not stored.finished and (
            retention.unfinished is None or NOW - stored.at < timedelta(seconds=retention.unfinished)
        ):
            assert stored.name in stay


@given(folders(), rules, st.randoms())
def test_twice_is_once(runs: list[StoredRun], retention: RetentionRules, order: object) -> None:
    """
    A second rotation finds nothing to do, and the order in which a disk lists the runs decides nothing.
    """
    stay = kept(runs, retention)
    shuffled = list(runs)
    order.shuffle(shuffled)  # type: ignore[attr-defined]

    assert stay == kept(shuffled, retention)
    assert stay == kept([stored for stored in runs if stored.name in stay], retention)


@given(folders(), rules, st.integers(0, 5), st.floats(0, 50 * DAY))
def test_asking_for_more_never_keeps_less(
    runs: list[StoredRun], retention: RetentionRules, more: int, longer: float
) -> None:
    """
    A higher count, a longer time and no limit for unfinished runs only add to the runs that stay.
    """
    wider = RetentionRules(retention.last + more, retention.within + longer, promoted=True, unfinished=None)

    assert kept(runs, retention) <= kept(runs, wider)
