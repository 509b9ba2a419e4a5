"""The openai dialect: any server that speaks the OpenAI chat API; the SLO says how it is started and where knobs go."""

from gatekeeper.backends.dialects.dialect import Dialect

DIALECT = Dialect(
    name="openai",
    install="name what starts it in command and plain_command, or what runs in url and plain_url, in [subject]",
    draft_hint="look into the server's log for why the draft is not used",
    health="/v1/models",
    named="listed",
)
