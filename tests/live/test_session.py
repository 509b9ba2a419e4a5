"""A session: what it does when the truth changes, deterministically, on a scripted subject and a virtual clock."""

import gc
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest

from gatekeeper.core.clock import Instant, VirtualClock, clock_gap
from gatekeeper.live import watch_log
from gatekeeper.live.session import Session
from tests.builders.deployment import GUARDS, SETTING, Deployed, WatchOutput
from tests.builders.golden_words import lines_with, says

BAD_DRAFT = {"drift": [{"of": "acceptance", "by": -0.95, "over": "1 s", "after": "600 s"}]}


def route(deployed: Deployed) -> dict[str, Any]:
    """Return the overlay's entry of the one route."""
    entry: dict[str, Any] = tomllib.loads(deployed.overlay)["route"][0]
    return entry


@pytest.fixture(scope="module")
def gone_bad(tmp_path_factory: pytest.TempPathFactory) -> tuple[Deployed, int, WatchOutput]:
    """A watch of a draft that goes bad after ten minutes, with three commands of which one fails, until it is off."""
    path, output = tmp_path_factory.mktemp("gone-bad"), WatchOutput()
    deployed = Deployed.scripted(path, BAD_DRAFT)
    code = "import json, os, sys; given = json.load(sys.stdin); live = open(given['overlay']).read(); "
    code += "seen = os.environ['GATEKEEPER_CHANGE'], given['speculation'], 'num_draft_tokens = 2' in live; "
    code += f"print(*seen, file=open({str(path / 'note')!r}, 'a'))"
    deployed.policy(watch={"on_change": [["false"], [sys.executable, "-S", "-c", code]]})
    with deployed.session(output, commands=(("true",),), limit=240.0) as session:
        return deployed, watch_until(session, lambda: len(output.changes) == 2), output


def watch_until(session: Session, condition: Callable[[], bool]) -> int:
    """Run rounds until *condition* holds, or for an hour; return the exit code."""
    code = session.run(1)
    for _ in range(20):
        if condition():
            break
        code = session.run(20)
    return code


@pytest.fixture
def copied(gone_bad: tuple[Deployed, int, WatchOutput], tmp_path: Path) -> Deployed:
    """The folder that this watch left, to watch on."""
    deployed, _, _ = gone_bad
    return replace(deployed, path=Path(shutil.copytree(deployed.path, tmp_path / "copy")))


def test_a_draft_that_goes_bad_is_turned_off(gone_bad: tuple[Deployed, int, WatchOutput]) -> None:
    """Acceptance falls after ten minutes: one step down, then plain decoding, with the reason in the log."""
    deployed, code, output = gone_bad

    assert (1, ["down 0>1", "down 1>2"]) == (code, output.changes)
    assert (False, {}) == (route(deployed)["speculation"], route(deployed)["setting"])
    first = output.of("change")[0]
    assert "acceptance_rate" in first["because"]
    assert ["acceptance_rate"] == [check["metric"] for check in first["evidence"]]
    assert first["at"] > "2026-01-01T00:10"
    assert any("down to" in line and "acceptance_rate" in line for line in output.messages)


def test_commands_run_on_a_change(gone_bad: tuple[Deployed, int, WatchOutput]) -> None:
    """Each change runs every command, after it is written down and published; one that fails stops nothing."""
    deployed, _, output = gone_bad

    assert ["down True True", "down False False"] == (deployed.path / "note").read_text().splitlines()
    assert ["exit code 1", None, None] * 2 == [entry["fault"] for entry in output.of("command")]
    kinds = [entry["kind"] for entry in output.entries]
    assert kinds.index("change") < kinds.index("command")


def test_a_restart_goes_on_where_it_was(copied: Deployed) -> None:
    """A watch that is started again does not turn on what the one before turned off; it has seen nothing yet."""
    copied.truth()

    code, output = copied.watch(3)

    begun = output.of("begun")[0]["routes"][0]["standing"]
    assert (1, 2, []) == (code, begun["step"], output.changes)
    assert "acceptance_rate" in begun["because"]
    assert all(word in output.messages[0] for word in ("easy: ", "acceptance_rate: "))
    assert route(copied)["speculation"] is False


def test_a_new_certificate_begins_anew(copied: Deployed) -> None:
    """A route that was turned off under one certificate starts as certified under the next."""
    verdict = copied.path / "run" / "verdict.json"
    verdict.write_text(verdict.read_text() + "\n")
    copied.truth()
    copied.policy()

    code, output = copied.watch(10)

    assert (0, 0) == (code, output.of("begun")[0]["routes"][0]["standing"]["step"])


def test_flapping_signals_change_little(tmp_path: Path) -> None:
    """A draft that is bad in every other ten minutes is tried again after the quiet time alone."""
    drift = []
    for number in range(0, 18, 2):
        drift.append({"of": "acceptance", "by": -0.95, "over": "1 s", "after": f"{600 * number + 600} s"})
        drift.append({"of": "acceptance", "by": 19.0, "over": "1 s", "after": f"{600 * number + 1200} s"})
    deployed = Deployed.scripted(tmp_path, {"drift": drift, "tokens": 12})
    deployed.policy(watch={"interval": 60.0, "window": 600.0, "duty": 0.05, "quiet_for": 450.0})

    _, output = deployed.watch(180)

    tries = [datetime.fromisoformat(change["at"]) for change in output.of("change") if change["change"] == "try"]
    assert 1 <= len(tries) <= 9, output.changes
    assert all(after - before >= timedelta(seconds=900) for before, after in pairwise(tries))


@pytest.mark.nightly
def test_state_outlives_a_rotated_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A route that was turned off stays off when the log's lines about it were rotated away long ago."""
    monkeypatch.setattr("gatekeeper.live.watch_log.LOG_LIMIT", 20_000)
    deployed = Deployed.scripted(tmp_path, BAD_DRAFT)
    deployed.watch(400)
    (tmp_path / "watch.jsonl.1").unlink()

    _, output = deployed.watch(1)

    assert not any('"down"' in line for line in (tmp_path / "watch.jsonl").read_text().splitlines())
    assert 2 == output.of("begun")[0]["routes"][0]["standing"]["step"]


def test_an_expired_policy_is_off(tmp_path: Path) -> None:
    """Past its expiry, reached while watching, a policy turns everything off, and a restart changes nothing."""
    deployed = Deployed.scripted(tmp_path)
    deployed.policy(expires="2026-01-01T00:01:35Z")

    code, output = deployed.watch(20)
    again, after = deployed.watch(1)

    assert (1, ["barred 0>2"]) == (code, output.changes)
    assert "2026-01-01T00:01:35" in output.of("change")[0]["because"]
    assert (1, [], False) == (again, after.changes, route(deployed)["speculation"])
    assert "expired" in route(deployed)["because"]


def test_no_reader_speculates_past_the_expiry(tmp_path: Path) -> None:
    """An overlay that allows speculation expires with the policy at the latest, however long the interval."""
    deployed = Deployed.scripted(tmp_path)
    deployed.policy(expires="2026-01-01T00:00:08Z")

    deployed.watch(1)

    live = tomllib.loads(deployed.overlay)
    assert (True, "2026-01-01T00:00:08Z") == (live["route"][0]["speculation"], live["next_look_before"])


def test_a_clock_from_before_the_policy_is_off(tmp_path: Path) -> None:
    """A clock that was set back years does not make an expired policy valid."""
    deployed = Deployed.scripted(tmp_path)
    (tmp_path / "run" / "events.jsonl").write_text('{"at": "2027-01-01T00:00:00Z"}\n')
    deployed.policy(issued="2027-01-01T00:00:00Z", expires="2027-01-02T00:00:00Z")

    code, output = deployed.watch(1)

    assert (1, ["barred 0>2"]) == (code, output.changes)
    says("watch", "a clock from before the policy is off", output.of("change")[0]["because"])


class Shifted(VirtualClock):
    """A scripted subject's clock whose time of day can be shifted."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner, self.shift = inner, timedelta()

    def now_ns(self) -> int:
        return int(self._inner.now_ns())

    def wall(self) -> datetime:
        return datetime.fromtimestamp(self._inner.wall().timestamp(), self._inner.wall().tzinfo) + self.shift

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


def test_what_expired_stays_off_when_the_clock_is_set_back(tmp_path: Path) -> None:
    """An hour back makes no expired policy valid, nor does a restart with a log from the future."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    deployed.policy(expires="2026-01-01T00:30:00Z")
    for hours in ((0, 1, 0, -1), (-2, 0)):
        with deployed.session(output) as session:
            clock = Shifted(session._clock)
            session._clock = clock
            for shift in hours:
                clock.shift = timedelta(hours=shift)
                session.run(1)

    assert ["barred 0>2"] == output.changes
    assert tomllib.loads(deployed.overlay)["route"][0]["speculation"] is False


@pytest.mark.parametrize(
    ("hours", "because"), [(3, "the host slept, or its clock was set 10800 s forward"), (-3, "was set 10800 s back")]
)
def test_a_sleep_empties_the_windows(tmp_path: Path, hours: int, because: str) -> None:
    """After a sleep, or a clock that was set, nothing counts that was seen before."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    with deployed.session(output) as session:
        clock = Shifted(session._clock)
        session._clock = clock
        session.run(30)
        before = len(session.routes._answers["easy"]._kept)
        clock.shift = timedelta(hours=hours)
        session._rest()
        session.run_round()
        after = len(session.routes._answers["easy"]._kept)
        session.run(10)

    assert (True, []) == (before > 10 * after, output.changes)
    assert [because in entry["because"] for entry in output.of("gap")] == [True]


def test_a_sleep_does_not_stand_for_evidence(tmp_path: Path) -> None:
    """Missing evidence is counted anew after a sleep, and turns speculation off all the same when it does not come."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    with deployed.session(output) as session:
        clock = Shifted(session._clock)
        session._clock = clock
        session.run(30)
        clock.shift = timedelta(hours=3)
        session.budget.balance = -1e9  # no canary is paid for any more
        session.run(20)

    assert ["off 0>2"] == output.changes
    assert "no evidence for" in output.of("change")[0]["because"]


def test_a_watch_that_was_held_up_forgets(tmp_path: Path) -> None:
    """A process that stood still for ten intervals does not take what it saw before for news."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    with deployed.session(output) as session:
        session.run(10)
        session._rest()
        session._clock.sleep(100)
        session.run_round()

    (gap,) = output.of("gap")
    says("watch", "a watch that was held up forgets", gap["because"])


def test_an_edit_turns_a_route_off_and_not_on(tmp_path: Path) -> None:
    """A person may switch a route off at once; switched on again it has to earn its way up."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    with deployed.session(output) as session:
        session.run(2)
        deployed.edited(route={"speculation": False})
        session.run(1)
        off = route(deployed)["speculation"]
        deployed.edited()
        session.run(1)
        still = route(deployed)["speculation"]
        watch_until(session, lambda: {"try 2>1", "try 1>0"} <= set(output.changes))

    assert (False, False) == (off, still)
    assert {"try 2>1", "try 1>0"} <= set(output.changes)
    assert route(deployed)["setting"] == SETTING


def test_missing_evidence_is_reported_before_it_counts(tmp_path: Path) -> None:
    """Half of its time before a guard without evidence turns speculation off, people and programs read that it will."""
    deployed = Deployed.scripted(tmp_path, {"sight": ["arrivals", "token_count", "text", "plain"]})
    deployed.policy(guards=[{"metric": "decode_throughput", "at_least": 0.1, "for": 10.0}], watch={"duty": 1e-6})

    _, output = deployed.watch(20)

    alert, off = output.of("lacking"), output.of("change")[0]
    assert (1, "off") == (len(alert), off["change"])
    assert alert[0]["at"] < off["at"]
    assert 0 < alert[0]["off_in"] <= 60
    assert any("decode_throughput" in line for line in output.messages)


def test_a_route_without_a_guard_is_reported_at_once(tmp_path: Path) -> None:
    """A route without any guard is turned off; the first round reports that in advance."""
    deployed = Deployed.scripted(tmp_path)
    deployed.policy(guards=[])

    _, output = deployed.watch(20)

    (alert,) = output.of("lacking")
    says("watch", "a route without a guard is reported at once", alert["because"])
    assert ["off 0>2"] == output.changes


def test_an_overlay_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    """If the overlay's folder disappears, the watch continues, reports that once, and reports when it is back."""
    folder = tmp_path / "etc"
    folder.mkdir()
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    with deployed.session(output, overlay=folder / "live.toml") as session:
        session.run(2)
        folder.rename(tmp_path / "aside")
        folder.write_text("")
        session.run(3)
        folder.unlink()
        (tmp_path / "aside").rename(folder)
        session.run(1)

    assert (1, 1) == (len(output.of("overlay_failed")), len(output.of("overlay_back")))
    says("watch", "an overlay that cannot be written is reported", lines_with("fall back", output.messages))


def test_a_sensor_that_vanished_turns_speculation_off(tmp_path: Path) -> None:
    """A guard whose evidence does not come is not kept: after its limit speculation is off, and the log names it."""
    deployed = Deployed.scripted(tmp_path, {"sight": ["arrivals", "token_count", "text", "plain"]})

    code, output = deployed.watch(20)

    assert (1, ["off 0>2"]) == (code, output.changes)
    says("watch", "a sensor that vanished turns speculation off", output.of("change")[0]["because"])


def test_an_unsampled_host_turns_speculation_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard of a host that is no longer sampled has no evidence."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    headroom = {"metric": "memory_headroom", "at_least": 1.0, "for": 10.0}
    deployed.policy(guards=[*GUARDS, headroom])
    with deployed.session(output) as session:
        session.run(5)
        outcomes = [
            result.outcome.word for result in session.routes.results["easy"] if result.guard.metric == "memory_headroom"
        ]
        session._sampling.close()
        session._sampler = None
        monkeypatch.setattr(session, "_new_sampler", _DeadSampler)
        session.run(20)

    assert (["pass"], ["off 0>2"]) == (outcomes, output.changes)
    says("watch", "an unsampled host turns speculation off", output.of("change")[0]["because"])
    assert output.of("sampler_failed")


class _DeadSampler:
    """A sampler that broke down."""

    fault = "OSError: no such sensor"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def test_a_command_that_hangs_stops_nothing(tmp_path: Path) -> None:
    """A command that does not end is stopped at its time limit and logged, and the watch continues."""
    deployed = Deployed.scripted(tmp_path)
    deployed.policy(expires="2026-01-01T00:01:35Z")

    _, output = deployed.watch(14, commands=(("sleep", "1000"),), limit=0.2)

    (command,) = output.of("command")
    says("watch", "a command that hangs is ended", command["fault"], limit="0.2 s")
    assert any("sleep 1000: " in line for line in output.messages)
    assert output.of("look")[-1]["at"] > output.of("command")[0]["at"]


def test_a_collector_that_is_down_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that no collector accepts is logged once, and the watch continues."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    deployed = Deployed.scripted(tmp_path)
    deployed.policy(expires="2026-01-01T00:01:35Z")

    code, output = deployed.watch(14)

    assert (1, ["barred 0>2"], 1) == (code, output.changes, len(output.of("telemetry_failed")))
    assert output.of("look")[-1]["at"] > output.of("telemetry_failed")[0]["at"]


@pytest.mark.nightly  # a thousand rounds
def test_nothing_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand rounds later the process holds no more objects, and the files are of bounded size."""
    limit = 50_000
    monkeypatch.setattr(watch_log, "LOG_LIMIT", limit)
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    guard = {"metric": "decode_throughput", "at_least": 0.1, "for": 10.0, "missing_for": "30 d"}
    deployed.policy(guards=[guard], watch={"window": 120.0, "canaries": 1, "duty": 0.05})
    with deployed.session(output) as session:
        session.run(200)
        early = _objects(output)
        for _ in range(10):
            session.run(100)
            _objects(output)
        late = _objects(output)

    assert late < early + 500, "one object a round would be a thousand"
    assert (tmp_path / "watch.jsonl.1").exists()
    file_names = ("watch.jsonl", "watch.jsonl.1", "policy.live.toml")
    assert all((tmp_path / name).stat().st_size < 2 * limit for name in file_names)


def _objects(output: WatchOutput) -> int:
    """Return the number of objects, without those that the test itself keeps."""
    output.entries.clear()
    output.messages.clear()
    gc.collect()
    return len(gc.get_objects())


START = Instant(0, datetime(2026, 1, 1, tzinfo=UTC))


def later(monotonic: float, wall: float) -> Instant:
    return Instant(round(monotonic * 1e9), START.wall + timedelta(seconds=wall))


@pytest.mark.parametrize(
    ("now", "because"),
    [
        (later(10, 10), None),
        (later(10.5, 11.5), None),
        (later(30, 30), None),
        (later(10, 3610), "the host slept, or its clock was set 3600 s forward"),
        (later(10, -3590), "the clock was set 3600 s back"),
        (later(110, 110), "the watch was delayed by 100 s"),
    ],
)
def test_time_that_passed_otherwise_is_reported(now: Instant, because: str | None) -> None:
    """A difference of more than two intervals on either clock is reported; a time server's step is not."""
    assert because == clock_gap(START, now, expected=10, interval=10)
