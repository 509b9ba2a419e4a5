"""The share of answers that failed, and what failed most often."""

from collections import Counter
from collections.abc import Sequence

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, per_canary
from gatekeeper.analysis.metrics.shares.counted_shares import noted, share_of_answers
from gatekeeper.core.records import Generation
from gatekeeper.core.text import counted, quote
from gatekeeper.core.verdict import Estimate, Missing


def error_rate(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of answers that failed."""
    failed = per_canary(paired.answers, lambda answer: answer.fault is not None)
    return noted(share_of_answers(failed, paired, "had an answer that failed"), *_commonest_fault(paired.answers))


def _commonest_fault(answers: Sequence[Generation]) -> list[str]:
    """Describe the kind of fault that most failed answers have, by its commonest wording; nothing where none failed."""
    faults = [generation.answer.fault for generation in answers if generation.answer.fault is not None]
    if not faults:
        return []
    kind, count = Counter(fault.partition(":")[0] for fault in faults).most_common(1)[0]
    wording = Counter(fault for fault in faults if fault.partition(":")[0] == kind).most_common(1)[0][0]
    return [f"most often {quote(wording)} ({count} of {counted(len(faults), 'failed answer')})"]
