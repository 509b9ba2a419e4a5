"""Settings: what they turn, how they are sampled, and which process answers them."""

from gatekeeper.analysis.plan.settings import process_of, setting_document
from gatekeeper.core.records import setting


def test_process_of_differs_by_restart_knob() -> None:
    """Plain decoding has a process of its own; settings that differ in a restart knob do not share one."""
    knobs = ("draft", "num_draft_tokens")
    two, four, hot = (
        process_of(setting(draft="heavy", num_draft_tokens=length, temperature=heat), knobs)
        for length, heat in ((2, 0), (4, 0), (4, 1))
    )

    assert "plain" == process_of(setting(draft=None, temperature=1), knobs)
    assert (False, True) == (two == four, four == hot)


def test_the_document_leaves_out_conditions() -> None:
    """verdict.json writes the chosen knobs of a setting; a plain one is {"draft": null} alone."""
    assert {"draft": "heavy", "num_draft_tokens": 4} == setting_document(
        setting(draft="heavy", num_draft_tokens=4, temperature=0.7, window=None)
    )
    assert {"draft": None} == setting_document(setting(draft=None, temperature=0.7))
