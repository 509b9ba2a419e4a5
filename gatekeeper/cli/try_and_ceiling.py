"""The commands that measure for seconds: try and ceiling."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.cli.certify_and_plan import observers
from gatekeeper.cli.common_options import AS_JSON, QUIET, is_verbose
from gatekeeper.cli.options import PATH, SloPath, out_option, seconds_option, show
from gatekeeper.core.backend_registry import PROBED, TIMED
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode

AFTER_INTERRUPT = dict.fromkeys(
    ("try", "ceiling"), "it cannot be resumed: run it again, with a lower --seconds if it took too long"
)
"""What to do after Ctrl-C, by command."""


@click.command(name="try")
@click.argument("slo", type=SloPath(), required=False)
@click.option("--target", help="A folder or a name in a cache [default: the heaviest found].")
@click.option("--draft", "drafts", multiple=True, help="A draft for --target; repeatable.")
@click.option("--canaries", type=PATH, help="A file of canary prompts [default: shipped JSON and chat].")
@click.option("--backend", type=click.Choice(PROBED), help="The backend for --target [default: by its files].")
@seconds_option("30s")
@out_option("Keep the records in this folder [default: nothing is kept].")
@AS_JSON
@QUIET
def try_draft(
    slo: Path | None,
    target: str | None,
    drafts: Sequence[str],
    canaries: Path | None,
    backend: str | None,
    *,
    seconds: float,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure for 30 seconds whether drafting helps on this machine.

    It tries the models of an SLO file, or --target and --draft, or the heaviest pair found in the caches of Hugging
    Face, LM Studio and Ollama and in the folder models. Exits 3 if there is none.
    """
    from gatekeeper.report.commands.try_pair_text import try_text
    from gatekeeper.report.commands.try_slo_text import try_slo_text
    from gatekeeper.run.start import try_pair as trying
    from gatekeeper.run.start import try_slo

    if slo is not None and (target or drafts or canaries):
        raise InputError(
            "an SLO file names its own models and canaries", hint="leave out --target, --draft and --canaries"
        )
    with observers(quiet=quiet) as watching:
        if slo is not None:
            again = f"gatekeeper try {shlex.quote(str(slo))}"
            document = try_slo.try_slo(slo, out, seconds=seconds, observers=watching, again=again)
        else:
            document = trying.try_pair(
                target, drafts, canaries, out, backend=backend, seconds=seconds, observers=watching
            )
    text = try_slo_text(document) if slo is not None else try_text(document, verbose=is_verbose())
    show(document, text, as_json=as_json)


@click.command()
@click.argument("target")
@click.option("--draft", help="Time the rounds of this draft too.")
@click.option(
    "--backend", type=click.Choice(TIMED),
    help="What loads the target [default: by its files].",
)  # fmt: skip
@click.option("--url", metavar="URL", help="A running server of --backend without a draft.")
@seconds_option("20s")
@click.option(
    "--context", type=click.IntRange(16, 100_000), default=256, show_default=True,
    help="Tokens that are cached before each pass.",
)  # fmt: skip
@AS_JSON
def ceiling(
    target: str, *, draft: str | None, backend: str | None, url: str | None, seconds: float, context: int, as_json: bool
) -> int:
    """Measure for 20 seconds the most that any draft can give on this machine.

    TARGET is a folder, a .gguf file or a hub id in the local cache. Exits 3 where passes cannot be timed, as behind a
    server without a prompt cache.
    """
    from gatekeeper.core.hidden_keys import address_of
    from gatekeeper.report.commands.ceiling_text import ceiling_text
    from gatekeeper.run.start.measured_ceiling import TimedTarget, backend_for, measure_ceiling

    server = None if url is None else address_of("--url", url)
    timed = TimedTarget(target, backend or backend_for(target), draft, server)
    document = measure_ceiling(timed, seconds=seconds, context=context)
    show(document, ceiling_text(document), as_json=as_json)
    return ExitCode.OK if document["measurable"] else ExitCode.UNPROVEN


COMMANDS = (try_draft, ceiling)
