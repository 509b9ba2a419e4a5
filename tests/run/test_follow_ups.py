"""The follow-ups of a soak: one sender, what it leaves out, and one name for each."""

from collections.abc import Iterator, Sequence
from typing import Any

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.follow_ups.follow_up import (
    FollowUp,
    Needs,
    PlannedReading,
    ReadingStep,
    RequestStep,
    Soaked,
    key_of,
)
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.backends.scripted.script import Script
from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem
from gatekeeper.core.records import Generation, Role, Setting, Tie, setting
from gatekeeper.run.follow_ups import send
from gatekeeper.run.requests import Client
from tests.builders.slo import canary, objective, slo

KNOBS: Setting = setting(draft="d", num_draft_tokens=4)
NAMES = ("a", "b", "c")


class Sent:
    """A soak of the scripted backend, and what a follow-up of it sends, records and reports."""

    def __init__(self) -> None:
        self.slo, self.backend = slo(objective("throughput_ratio", at_least=1.1)), ScriptedBackend(Script())
        plan = SoakPlan("soak-1", {"talk": KNOBS}, KNOBS)
        self.soak = Soaked(self.slo, plan, Terms(), self._none, self._none, {"talk": [*map(canary, NAMES)]}, segment=2)
        self.clients: list[bool] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def send(self, follow_up: FollowUp[Any], recorded: Sequence[Any] = ()) -> list[Any]:
        records: list[Any] = []
        send(
            follow_up, self.soak, {"talk": NAMES}, recorded, record=records.append, open_client=self._open,
            clock=self.backend.clock, observe=lambda kind, detail: self.events.append((kind, detail)),
        )  # fmt: skip
        return records

    def _open(self, *, cache: bool = False) -> Client:
        self.clients.append(cache)
        return Client(self.slo, self.backend, lambda *_: None, segment=2)

    @staticmethod
    def _none(_workload: str) -> Any:
        raise AssertionError


def plan_answers(soak: Soaked, _needs: Needs, records: Sequence[Generation]) -> Iterator[RequestStep]:
    """Request two canaries, then the third one if the second was answered; it waits for ten seconds."""
    first, second, third = soak.canaries["talk"]
    requests = [soak.request("talk", each, "plain", prefix="p", role=Role.CLOSING) for each in (first, second)]
    yield RequestStep(KNOBS, requests)
    if any(record.canary == second.id for record in records):
        yield RequestStep(KNOBS, [soak.request("talk", third, "candidate", prefix="p", pause_s=10.0)])


def read_gap(tie: Tie, subject: RunningSystem | None, request: DecodeRequest) -> Tie:
    assert subject is not None
    return Tie(tie.workload, request.canary.id, 0, (), 0, 0, gap=1.0)


def plan_readings(_soak: Soaked, needs: Needs, _records: Sequence[Tie]) -> Iterator[ReadingStep[Tie]]:
    yield ReadingStep([PlannedReading(Tie("talk", name, 0, (), 0, 0, gap=None), read_gap) for name in needs["talk"]])


def plan_faults(_soak: Soaked, needs: Needs, _records: Sequence[Tie]) -> Iterator[ReadingStep[Tie]]:
    yield ReadingStep([PlannedReading(Tie("talk", name, 0, (), 0, 0, None, "hidden"), None) for name in needs["talk"]])


ANSWERS = FollowUp("answers", Generation, "", lambda _: {}, plan_answers, key_of)
READINGS = FollowUp("readings", Tie, "", lambda _: {}, plan_readings, lambda tie: tie.canary)
FAULTS = FollowUp("faults", Tie, "", lambda _: {}, plan_faults, lambda tie: tie.canary)


def test_each_step_is_planned_with_what_the_step_before_recorded() -> None:
    """Each step of requests has a client of its own, and its pauses are kept by the clock."""
    sent = Sent()

    records = sent.send(ANSWERS)

    assert ["a", "b", "c"] == [record.canary for record in records]
    assert {2} == {record.segment for record in records}
    assert [False, False] == sent.clients
    assert records[2].answer.sent_ns - records[1].answer.ended_ns >= 10 * 10**9


def test_what_is_recorded_is_not_sent_again() -> None:
    """A step without a missing request starts no process."""
    records = Sent().send(ANSWERS)
    again = Sent()

    assert ["c"] == [record.canary for record in again.send(ANSWERS, records[:2])]
    assert [False] == again.clients


def test_the_running_system_reads_what_is_not_recorded_yet() -> None:
    """All readings share one client; each is recorded with the segment and its time, and reported with its number."""
    sent = Sent()

    records = sent.send(READINGS, [Tie("talk", "a", 0, (), 0, 0, gap=2.0)])

    assert [("b", 1.0, 2), ("c", 1.0, 2)] == [(record.canary, record.gap, record.segment) for record in records]
    assert all(record.at for record in records)
    assert [False] == sent.clients
    assert [("reading", {"answered": 1, "of": 2}), ("reading", {"answered": 2, "of": 2})] == sent.events


def test_what_cannot_be_read_is_recorded_without_a_process() -> None:
    """Where the backend hides what a reading needs, the record says so, and no system is started for it."""
    sent = Sent()

    assert ["hidden"] * 3 == [record.fault for record in sent.send(FAULTS)]
    assert [] == sent.clients


def test_no_two_follow_ups_share_a_name() -> None:
    """The module, the stage, the part of a forecast and the record files of a follow-up have its one name."""
    names = [follow_up.name for follow_up in FOLLOW_UPS]

    assert len(names) == len(set(names))
    for follow_up in FOLLOW_UPS:
        assert follow_up.steps.__module__ == f"gatekeeper.analysis.follow_ups.{follow_up.name}"
        assert f"{follow_up.name}-1.part-2.jsonl" == follow_up.file_of("soak-1.part-2")
