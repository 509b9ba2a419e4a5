"""The mlx-omni dialect: mlx-omni-server, which loads target and draft when a request names them.

It counts nothing of its drafting and keeps a prompt cache that no flag switches off. The text of an answer's last
token is lost on its stream. Each pair of models stays resident once asked for, so each arm has a server of its own.
Read in the source of mlx-omni-server 0.5.3. On Linux it ends at start: its voices fetch a language model, and compile
Metal kernels. No answer of it was ever seen.
"""

from collections.abc import Iterator
from typing import Any

from gatekeeper.backends.dialects.dialect import Dialect, ServerRequest, Start, chat_body


def argv(start: Start) -> Iterator[str]:
    """Yield the command line; the models come with the requests."""
    yield from (*start.program, *start.address)


def body(request: ServerRequest) -> dict[str, Any]:
    """Return the request, which names the models."""
    return chat_body(request) | ({} if request.draft is None else {"draft_model": request.draft})


DIALECT = Dialect(
    name="mlx-omni",
    install="pip install mlx-omni-server (in an environment of its own; name it in subject.program)",
    draft_hint="mlx-omni-server decodes plainly where the draft cannot be loaded, and says so in its log alone",
    program=("mlx-omni-server",),
    packages=("mlx-omni-server", "mlx-lm", "mlx"),
    argv=argv,
    body=body,
    health="/v1/models",
    named="path",
    knobs=frozenset({"thinking"}),
)
