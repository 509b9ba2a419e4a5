"""The mlx-omni dialect: mlx-omni-server, which loads target and draft when a request names them.

It reports nothing about its drafting and has a prompt cache that cannot be switched off. Its stream drops the text of
an answer's last token. Each pair of models stays loaded after its first request, so each arm has its own server.
Written from the source of mlx-omni-server 0.5.3. On Linux it exits at start, because its voices download a language
model and compile Metal kernels. Its answers are untested.
"""

from collections.abc import Iterator

from gatekeeper.backends.dialect import COMPLETIONS, Dialect, Start, body_with_draft


def argv(start: Start) -> Iterator[str]:
    """Yield the command line; the models come with the requests."""
    yield from (*start.program, *start.address)


DIALECT = Dialect(
    name="mlx-omni",
    install="pip install mlx-omni-server (in an environment of its own; name it in subject.program)",
    draft_hint="look in its log: it decodes plainly where the draft cannot be loaded",
    program=("mlx-omni-server",),
    packages=("mlx-omni-server", "mlx-lm", "mlx"),
    argv=argv,
    body=body_with_draft,
    steered_paths=(COMPLETIONS, "/chat/completions"),
    health="/v1/models",
    model_name="path",
    knobs=frozenset({"thinking"}),
)
