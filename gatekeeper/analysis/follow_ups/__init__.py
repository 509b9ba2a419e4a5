"""The follow-ups of a soak, a file each, in the order in which they run.

To add one: a file here that defines a `FollowUp`, and its line below.
"""

from typing import Any

from gatekeeper.analysis.follow_ups import (
    forced_check,
    log_probabilities,
    near_ties,
    numerics,
    pauses,
    plain_repeats,
    plain_words,
    replay,
    warm_cache,
)
from gatekeeper.analysis.follow_ups.follow_up import FollowUp

FOLLOW_UPS: tuple[FollowUp[Any], ...] = (
    forced_check.FOLLOW_UP,
    plain_words.FOLLOW_UP,
    plain_repeats.FOLLOW_UP,
    near_ties.FOLLOW_UP,
    replay.FOLLOW_UP,
    log_probabilities.FOLLOW_UP,
    numerics.FOLLOW_UP,
    warm_cache.FOLLOW_UP,
    pauses.FOLLOW_UP,
)
