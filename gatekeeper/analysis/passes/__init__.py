"""The passes after a soak, a file each, in the order in which they run.

To add one: a file here that defines a `Pass`, its line below, and a module of `gatekeeper.run.stages` that sends its
requests, with its line in `gatekeeper/run/after_soak.py`.
"""

from typing import Any

from gatekeeper.analysis.passes import first_tokens, forced_check, near_ties, plain_words, warm_cache, warm_up
from gatekeeper.analysis.passes.definition import Pass

PASSES: tuple[Pass[Any], ...] = (
    forced_check.PASS,
    plain_words.PASS,
    near_ties.PASS,
    warm_cache.PASS,
    warm_up.PASS,
    first_tokens.PASS,
)
