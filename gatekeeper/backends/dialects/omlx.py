"""The omlx dialect: oMLX, whose drafting is set per model in its own settings, so both arms are started by hand.

It reports nothing about its drafting over HTTP. Never run on a Mac.
"""

from gatekeeper.backends.dialect import Dialect

DIALECT = Dialect(
    name="omlx",
    install="serve the model twice (omlx serve), once with drafting in its settings: give url and plain_url",
    draft_hint="set dflash_enabled or mtp_enabled for this model in oMLX's settings, and mtp_fixed_draft_depth",
    attached="omlx",
    variables=("OMLX_",),
    health="/v1/models",
    model_name="listed",
    knobs=frozenset({"thinking"}),
    own_drafts=frozenset({"mtp"}),
)
