"""The follow-ups of a soak, whose requests and records the whole runs of tests/e2e show."""

from gatekeeper.analysis.follow_ups import FOLLOW_UPS


def test_no_two_follow_ups_share_a_name() -> None:
    """The module, the stage, the part of a forecast and the record files of a follow-up have its one name."""
    names = [follow_up.name for follow_up in FOLLOW_UPS]

    assert len(names) == len(set(names))
    for follow_up in FOLLOW_UPS:
        assert follow_up.steps.__module__ == f"gatekeeper.analysis.follow_ups.{follow_up.name}"
        assert f"{follow_up.name}-1.part-2.jsonl" == follow_up.file_of("soak-1.part-2")
