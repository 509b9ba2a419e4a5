"""The passes at the end of a run, a file each, in the order in which they run.

To add one: a file here that defines a `FinalPass`, its line below, and a module of the same name in
`gatekeeper.run.stages.final_passes` whose `send` sends its requests.
"""

from gatekeeper.analysis.final_passes import conversations, routing, starts
from gatekeeper.analysis.final_passes.final_pass import FinalPass

FINAL_PASSES: tuple[FinalPass, ...] = (
    routing.PASS, conversations.PASS, starts.PASS,
)  # fmt: skip
