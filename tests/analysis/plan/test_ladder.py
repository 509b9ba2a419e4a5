"""The fallback ladder, step by step."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from gatekeeper.analysis.plan import ladder, settings
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import Slo
from tests.builders.slo import slo

LENGTHS = {"num_draft_tokens": [2, 3, 4, 6], "default": {"num_draft_tokens": 4}}


def heavy(length: int) -> Setting:
    return setting(draft="heavy", num_draft_tokens=length)


def path(written: Slo, start: Setting) -> list[tuple[str, Setting]]:
    """Fail at every setting, and return the steps taken."""
    taken: list[tuple[str, Setting]] = []
    step, at = None, start
    while (down := ladder.next_step(written, at, step)) is not None:
        step, at = down
        taken.append(down)
    return taken


def test_each_step_once_in_order() -> None:
    """The next lower swept length, the next draft at that length, plain decoding, nothing; a step that leads nowhere,
    as from the shortest length or the last draft, is passed over.
    """
    steps = path(slo(sweep=LENGTHS), heavy(4))
    assert ["lighter-draft", "autoregressive"] == [step for step, _ in path(slo(sweep=LENGTHS), heavy(2))]

    assert [
        ("shrink-draft", heavy(3)),
        ("lighter-draft", setting(draft="light", num_draft_tokens=3)),
        ("autoregressive", settings.PLAIN),
    ] == steps


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        (["autoregressive"], ["autoregressive"]),
        (["lighter-draft", "autoregressive"], ["lighter-draft", "autoregressive"]),
        (["shrink-draft"], ["shrink-draft"]),
        ([], []),
    ],
)
def test_the_slo_decides_the_ladder(steps: list[str], names: list[str]) -> None:
    """Only the steps the SLO names are taken, in its order; without `autoregressive` the way ends while speculating."""
    assert names == [step for step, _ in path(slo(sweep=LENGTHS, fallback={"ladder": steps}), heavy(4))]


@pytest.mark.parametrize(
    ("sweep", "drafts", "steps", "count"),
    [
        (LENGTHS, ["heavy", "light"], None, 3),
        (LENGTHS, ["heavy"], None, 2),
        ({"num_draft_tokens": [4]}, ["heavy", "light"], None, 2),
        ({"num_draft_tokens": [4]}, ["heavy"], None, 1),
        (LENGTHS, ["heavy", "light"], ["autoregressive"], 1),
    ],
)
def test_the_error_is_split_over_the_speculating_settings(
    sweep: dict[str, object], drafts: list[str], steps: list[str] | None, count: int
) -> None:
    """A run that may soak three speculating settings tests each at a third of the allowed error."""
    subject = {"backend": "scripted", "target": "t", "drafts": drafts, "script": "s.json"}
    more = {} if steps is None else {"fallback": {"ladder": steps}}
    written = slo(subject=subject, sweep=sweep, **more)

    assert count == ladder.soaked_settings(written)
    assert pytest.approx(1 - 0.05 / count) == ladder.bound_level(written)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True),
    st.permutations(["shrink-draft", "lighter-draft"]),
    st.integers(0, 2),
    st.data(),
)
def test_no_run_soaks_more_settings_than_the_error_is_split_over(
    lengths: list[int], order: list[str], keep: int, data: st.DataObject
) -> None:
    """However the SLO orders the steps, and wherever the descent starts, the levels cover every speculating soak."""
    start = data.draw(st.sampled_from(lengths))
    written = slo(
        sweep={"num_draft_tokens": lengths, "default": {"num_draft_tokens": lengths[0]}},
        fallback={"ladder": [*order[:keep], "autoregressive"]},
    )

    speculating = [knobs for _, knobs in path(written, heavy(start)) if settings.speculates(knobs)]

    assert 1 + len(speculating) <= ladder.soaked_settings(written)


LOOKS = st.lists(st.tuples(st.floats(1, 900), st.integers(1, 100)), min_size=1, max_size=5)


@given(LOOKS)
@settings_of(max_examples=30, deadline=None)
def test_no_look_at_a_soak_has_more_than_the_allowed_error(parts: list[tuple[float, int]]) -> None:
    """Every bound is as sure as the SLO says, and the first is the same whatever follows it."""
    written = slo(sweep=LENGTHS)
    looks = list(accumulate(parts, lambda total, part: (total[0] + part[0], total[1] + part[1])))

    levels = ladder.look_levels(written, looks)

    assert len(looks) == len(levels)
    assert all(ladder.bound_level(written) <= level < 1 for level in levels)
    assert pytest.approx(levels[0]) == ladder.look_levels(written, looks[:1])[0]


def test_a_soak_that_is_not_continued_spends_everything_at_once() -> None:
    """With `until = "duration"` the one look has the whole error; otherwise a fifth is left for an extension."""
    fixed, open_ended = (
        slo(soak={"duration": 900, "max_duration": 900, "until": until}) for until in ("duration", "decided")
    )
    error = 1 - ladder.bound_level(fixed)

    assert (ladder.bound_level(fixed),) == ladder.look_levels(fixed, [(900.0, 60)])
    assert pytest.approx(1 - 0.8 * error) == ladder.first_look_level(open_ended)
