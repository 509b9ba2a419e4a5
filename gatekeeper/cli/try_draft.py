"""The command that measures for seconds whether drafting helps: try."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.cli.certify_and_plan import observers
from gatekeeper.cli.common_options import AS_JSON, QUIET, VERBOSE
from gatekeeper.cli.options import PATH, SloPath, out_option, seconds_option, show
from gatekeeper.core.backend_registry import PROBED
from gatekeeper.core.errors import InputError

AFTER_INTERRUPT = {"try": "it cannot be resumed: run it again, with a lower --seconds if it took too long"}
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
@VERBOSE
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
    verbose: bool,
) -> None:
    """Measure for 30 seconds whether drafting helps on this machine.

    It tries the models of an SLO file, or --target and --draft, or the heaviest pair found in the caches of Hugging
    Face, LM Studio and Ollama and in the folder models. Exits 3 if there is none.

    \b
    gatekeeper try --seconds 20
    """
    from gatekeeper.report.commands.try_document import try_pair_document, try_slo_document
    from gatekeeper.run.start import try_pair as trying
    from gatekeeper.run.start import try_slo

    if slo is not None and (target or drafts or canaries):
        raise InputError(
            "an SLO file names its own models and canaries", hint="leave out --target, --draft and --canaries"
        )
    with observers(quiet=quiet) as watching:
        if slo is not None:
            again = f"gatekeeper try {shlex.quote(str(slo))}"
            answer = try_slo.try_slo(slo, out, seconds=seconds, observers=watching, again=again)
        else:
            answer = trying.try_pair(
                target, drafts, canaries, out, backend=backend, seconds=seconds, observers=watching
            )
    shown = try_slo_document(answer) if slo is not None else try_pair_document(answer, verbose=verbose)
    show(answer, shown, as_json=as_json)


COMMANDS = (try_draft,)
