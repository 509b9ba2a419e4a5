"""The commands that try a draft for seconds: probe, try."""

from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.cli.common_options import is_verbose
from gatekeeper.cli.options import AS_JSON, OUT, PATH, QUIET, seconds_option, show
from gatekeeper.cli.run import observers
from gatekeeper.core.backend_registry import PROBED
from gatekeeper.core.errors import InputError

AFTER_INTERRUPT = {
    "try": "it keeps nothing: run it again, with a lower --seconds if it took too long",
    "probe": "a probe cannot be resumed: run it again, with a lower --seconds if it took too long",
}
"""What to do after Ctrl-C, by command."""
DRAFTS = click.option("--draft", "drafts", multiple=True, help="A draft for --target; repeatable.")
BACKEND = click.option(
    "--backend", type=click.Choice(PROBED), default=PROBED[0], show_default=True, help="The backend for --target."
)
SECONDS = seconds_option("30s")


@click.command()
@click.argument("slo", type=PATH, required=False)
@click.option("--target", help="Instead of an SLO file: the target, a folder or a hub id in the local cache.")
@DRAFTS
@click.option("--canaries", type=PATH, help="A file of canary prompts [default: shipped JSON and chat].")
@BACKEND
@SECONDS
@OUT
@AS_JSON
@QUIET
def probe(
    slo: Path | None,
    target: str | None,
    drafts: Sequence[str],
    canaries: Path | None,
    backend: str,
    *,
    seconds: float,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure in about 30 seconds whether a draft helps on this machine. Writes no policy; exits 0 once finished."""
    from gatekeeper.report.commands.probe import probe_text
    from gatekeeper.run.start import quick_probe

    if (slo is None) == (target is None):
        raise InputError("probe needs an SLO file, or --target and --draft", hint="give exactly one of the two")
    if target is not None and not drafts:
        raise InputError("--target needs --draft", hint="name the draft to try")
    if slo is not None and (drafts or canaries):
        raise InputError("--draft and --canaries need --target", hint="an SLO file names its own drafts and canaries")
    with observers(quiet=quiet) as watching:
        if slo is not None:
            again = f"gatekeeper probe {slo}"
            document = quick_probe.probe(slo, out, seconds=seconds, observers=watching, again=again)
        else:
            again = f"gatekeeper probe --target {target} " + " ".join(f"--draft {draft}" for draft in drafts)
            document = quick_probe.probe_pair(
                str(target), drafts, canaries, out, backend=backend, seconds=seconds, observers=watching, again=again
            )
    show(document, probe_text(document), as_json=as_json)


@click.command(name="try")
@click.option("--target", help="The target, a folder or a hub id in the local cache [default: the heaviest found].")
@DRAFTS
@BACKEND
@SECONDS
@AS_JSON
@QUIET
def try_pair(
    target: str | None, drafts: Sequence[str], backend: str, *, seconds: float, as_json: bool, quiet: bool
) -> None:
    """Find a model and a draft on this machine, probe them for 30 seconds and say whether drafting helps.

    Models are looked for in the caches of Hugging Face, LM Studio and Ollama and in the folder models. Nothing is
    written; -v prints the reasons. Exits 3 if no pair is found.
    """
    from gatekeeper.report.commands.try_pair import try_text
    from gatekeeper.run.start import try_pair as trying

    if (target is None) != (not drafts):
        raise InputError("--target and --draft belong together", hint="give both, or neither to search this machine")
    with observers(quiet=quiet) as watching:
        document = trying.try_pair(target, drafts, backend=backend, seconds=seconds, observers=watching)
    show(document, try_text(document, verbose=is_verbose()), as_json=as_json)


COMMANDS = (probe, try_pair)
