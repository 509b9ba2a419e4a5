"""The commands of `gatekeeper canaries`: sets of canary prompts from your own traffic."""

from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.cli.common_options import AS_JSON, add_common
from gatekeeper.cli.options import LOG, PATH, CommandGroup, SloPath, show
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode

CONTEXT = 8192
"""Tokens of prompt and answer that `check` allows where no --context is given."""


@click.group(cls=CommandGroup)
def canaries() -> None:
    """Make canary prompts from logs of your own requests, and check sets of them."""


@canaries.command(name="import")
@click.argument("logs", nargs=-1, required=True, type=PATH, metavar="LOG...")
@click.option(
    "-o", "--output", "--out", "out", type=click.Path(path_type=Path, file_okay=False), required=True,
    help="Folder for the canaries and the profile.",
)  # fmt: skip
@click.option(
    "-n", "most", type=click.IntRange(1, 100_000), default=128, show_default=True, help="At most N canaries a workload."
)
@click.option(
    "--conversations", "conversations_most", type=click.IntRange(0, 10_000), default=0, show_default=True,
    help="Keep also N conversations a workload, in a set of their own.",
)  # fmt: skip
@click.option("--redact-with", metavar="COMMAND", help="Pipe each text through COMMAND [default: nothing is removed].")
@click.option("--force", is_flag=True, help="Replace the canaries in the folder.")
@AS_JSON
def import_(
    logs: Sequence[Path],
    out: Path,
    *,
    most: int,
    conversations_most: int,
    redact_with: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write canaries from logs of chat requests as JSON lines; nothing is removed from them.

    \b
    gatekeeper canaries import requests.jsonl -o canaries/NAME
    """
    from gatekeeper.canaries.canary_text import import_text
    from gatekeeper.canaries.import_log import import_logs

    document = import_logs(
        logs, out, most=most, conversations_most=conversations_most, redact_with=redact_with, force=force
    )
    show(document, import_text(document), as_json=as_json)


@canaries.command()
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="PATH...")
@click.option("--slo", type=SloPath(), help="Check also whether they suffice for its objectives.")
@click.option(
    "--context", type=click.IntRange(min=1), default=CONTEXT, show_default=True,
    help="Tokens that prompt and answer may take together.",
)  # fmt: skip
@click.option(
    "--tokenizer", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
    help="Count with this model's tokenizer [default: four characters a token].",
)  # fmt: skip
@LOG
@AS_JSON
def check(
    paths: Sequence[Path],
    *,
    slo: Path | None,
    context: int,
    tokenizer: Path | None,
    logs: Sequence[Path],
    as_json: bool,
) -> int:
    """Say what is wrong with canary files: repeats, answers in prompts, sizes, too few.

    Exits 2 if anything is. With --log, which needs --slo, also how many requests of a log a certificate would cover.

    \b
    gatekeeper canaries check canaries/json.jsonl --slo smoke
    """
    from gatekeeper.canaries.canary_text import check_text
    from gatekeeper.canaries.check_set import check as check_sets

    if logs and slo is None:
        raise InputError("--log needs --slo: a certificate is of one SLO", hint="add --slo SLO")
    document = check_sets(paths, limit=context, slo=slo, tokenizer=tokenizer)
    text = check_text(document)
    if logs and slo is not None:
        from gatekeeper.live.log_coverage import cover_logs, coverage_text

        document["coverage"] = cover_logs(slo, logs)
        text += coverage_text(document["coverage"])
    show(document, text, as_json=as_json)
    return ExitCode.BAD_INPUT if document["errors"] else ExitCode.OK


add_common(canaries)


COMMANDS = (canaries,)
