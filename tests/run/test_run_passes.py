"""The passes after a soak: each has a stage that sends its requests."""

from typing import Any

import pytest

from gatekeeper.analysis.passes import PASSES
from gatekeeper.analysis.passes.soak_pass import Pass
from gatekeeper.run.run_passes import sender_of


@pytest.mark.parametrize("after", PASSES, ids=lambda after: after.name)
def test_each_pass_is_sent_by_the_stage_of_its_name(after: Pass[Any]) -> None:
    """
    A pass is found by one name: the stage that sends its requests has it, too.
    """
    assert f"gatekeeper.run.stages.send_{after.name}" == sender_of(after).__module__


def test_no_two_passes_share_a_name_or_a_file() -> None:
    """
    What a pass records is told from what the others record by the name of the file.
    """
    names, stems = [after.name for after in PASSES], [after.stem for after in PASSES]

    assert len(names) == len(set(names))
    assert len(stems) == len(set(stems))
