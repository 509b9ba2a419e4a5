"""The symptoms that `gatekeeper bisect` can look for."""

from gatekeeper.analysis.metrics.readers import OfAnswer, reader_of
from gatekeeper.cli.versus_and_bisect import SYMPTOMS
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.regression import symptom

COUNTED = {"token_agreement", "warm_cache_agreement", symptom.MEMORY}
"""Those that no single answer has."""


def test_every_symptom_has_a_value_an_answer_or_is_counted() -> None:
    """
    The command line offers what a short probe can measure, and no metric that it would then not know how to read.
    """
    of_answers = {name for name in set(SYMPTOMS) - COUNTED if isinstance(reader_of(name), OfAnswer)}

    assert set(SYMPTOMS) == of_answers | COUNTED
    assert all(BY_NAME[name].counted for name in COUNTED)
