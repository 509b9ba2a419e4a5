"""How a far run ended, and what it means here: only one that came to its own end has a verdict."""

from typing import Any

import pytest

from gatekeeper.run.remote.download import ending


def job(state: str = "finished", code: int | None = 0, **more: Any) -> dict[str, Any]:
    ended = {"code": code, "signal": more.pop("signal", None)}
    told = {"run_id": "one", "started": "2026-11-21T00:00:00Z", "progress_bytes": 1, "log": "", "cancelled": None}
    return told | {"state": state, "exit": ended if state == "finished" else None} | more


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_run_that_ended_with_a_verdict_has_no_trouble(code: int) -> None:
    """
    Proven, broken and unproven are verdicts; what they rest on is judged here.
    """
    assert ending(job(code=code)) is None


@pytest.mark.parametrize(
    ("ended", "code", "said"),
    [
        (job(code=2, log="gatekeeper: slo.toml: unknown key"), 2, "slo.toml: unknown key"),
        (job(code=3, progress_bytes=0, log="gatekeeper: no sensor"), 3, "no sensor"),
        (job(code=4, log="gatekeeper: cannot write x"), 4, "cannot write x"),
        (job(code=130), 3, "was interrupted there"),
        (job(code=None, signal=9), 3, "killed by signal 9"),
        (job(code=130, cancelled={"who": "anna@laptop", "at": "T"}), 3, "cancelled by anna@laptop"),
        (job(state="died", cancelled={"who": "anna@laptop", "at": "T"}), 3, "cancelled by anna@laptop"),
        (job(state="rebooted", cancelled={"who": "anna@laptop", "at": "T"}), 3, "was restarted during the run"),
        (job(state="died"), 3, "died without a word"),
        (job(state="rebooted"), 3, "was restarted during the run"),
        (job(state="finished", code=77), 4, "ended with 77"),
        ({"run_id": "one", "state": "finished"}, 4, "ended with None"),
    ],
)
def test_every_other_end_is_told_and_never_0(ended: dict[str, Any], code: int, said: str) -> None:
    """
    Killed, cancelled, restarted, refused or unheard of: an error with its own words, and what to do next.
    """
    trouble = ending(ended)

    assert trouble is not None
    assert (code, True) == (trouble.exit_code, said in trouble.message)
    assert trouble.hint
