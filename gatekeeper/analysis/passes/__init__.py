"""The passes after a soak, a file each, in the order in which they run.

To add one: a file here that defines a `Pass`, its line below, and a module of the same name in
`gatekeeper.run.stages` whose `send` sends its requests.
"""

from typing import Any

from gatekeeper.analysis.passes import (
    forced_check,
    log_probabilities,
    near_ties,
    numerics,
    plain_repeats,
    plain_words,
    replay,
    warm_cache,
    warm_up,
)
from gatekeeper.analysis.passes.soak_pass import Pass

PASSES: tuple[Pass[Any], ...] = (
    forced_check.PASS,
    plain_words.PASS,
    plain_repeats.PASS,
    near_ties.PASS,
    replay.PASS,
    log_probabilities.PASS,
    numerics.PASS,
    warm_cache.PASS,
    warm_up.PASS,
)
