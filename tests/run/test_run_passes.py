"""The passes after a soak, and at the end of a run: each has a stage that sends its requests."""

from typing import Any

import pytest

from gatekeeper.analysis.final_passes import FINAL_PASSES
from gatekeeper.analysis.final_passes.final_pass import FinalPass
from gatekeeper.analysis.passes import PASSES
from gatekeeper.analysis.passes.soak_pass import Pass
from gatekeeper.run.run_passes import sender_of


@pytest.mark.parametrize("each", [*PASSES, *FINAL_PASSES], ids=lambda each: each.name)
def test_each_pass_is_sent_by_the_stage_of_its_name(each: Pass[Any] | FinalPass) -> None:
    """
    A pass is found by one name: the stage that sends its requests has it, too.
    """
    sender = sender_of(each)

    folder = "stages" if each in PASSES else "stages.final_passes"
    assert sender.__module__ == f"gatekeeper.run.{folder}.send_{each.name}"


def test_no_two_passes_share_a_name_or_a_file() -> None:
    """
    What a pass records is told from what the others record by the name of the file.
    """
    names = [after.name for after in PASSES] + [final.name for final in FINAL_PASSES]
    files = [after.stem for after in PASSES] + [name for after in FINAL_PASSES for name in after.files]

    assert len(names) == len(set(names))
    assert len(files) == len(set(files))
