"""The commands that read a run, or a word: judge, report, open, explain."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.cli.common_options import AS_JSON, VERBOSE
from gatekeeper.cli.options import (
    LATEST,
    RUN_DIR,
    RunPath,
    SloPath,
    annotate,
    ends_with,
    show,
    show_decision,
    slo_of,
)
from gatekeeper.core.errors import GatekeeperError, InputError, nearest_word
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.system.environment_variables import DISPLAY, SSH_CONNECTION, SSH_TTY, WAYLAND_DISPLAY
from gatekeeper.report import FORMATS, Format, RenderedFrom

PAGE = "report.html"
ANSWERS = "answers"
ROWS = (ANSWERS, "host")
"""What `report --of` may name."""
METRICS = "metrics"
"""The word of `explain` that lists what an objective may name."""
CONFIGURED = "otlp"
"""The word that stands for an address in `report --to`: the collector of the SLO file or of the environment."""
DISPLAYS = (DISPLAY, WAYLAND_DISPLAY)
"""Variables of an X11 or a Wayland session."""
REMOTE_SESSION = (SSH_CONNECTION, SSH_TTY)
"""Variables of an ssh session: a browser would open on the remote machine."""


@click.command(name="open")
@click.argument("run_dir", type=RunPath(), default=LATEST, metavar="[RUN]")
@AS_JSON
def open_report(run_dir: Path, *, as_json: bool) -> None:
    """Open the report of a run in a browser [default: the newest run]; without a display, print its path.

    \b
    gatekeeper open latest
    """
    page = (run_dir / PAGE).absolute()
    if not page.is_file():
        hint = f"an unfinished run has none yet: gatekeeper report {run_dir} --output page.html"
        raise InputError(f"{run_dir} has no {PAGE}", hint=hint)
    opened = _open(page)
    note = "" if opened else "  (no display here: open it in a browser)"
    show({"report": str(page), "opened": opened}, f"{page}{note}\n", as_json=as_json)


def _open(page: Path) -> bool:
    """Open *page* with the system's own program; return whether there is one and a display."""
    import shutil

    mac = sys.platform == "darwin"
    if any(name in os.environ for name in REMOTE_SESSION) or not (mac or any(map(os.environ.get, DISPLAYS))):
        return False
    program = shutil.which("open" if mac else "xdg-open")
    if program is None:
        import webbrowser

        return webbrowser.open(page.as_uri())
    import subprocess

    ran = subprocess.run((program, str(page)), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ran.returncode:
        complaint = ran.stderr.strip().splitlines()[-1:] or [f"exit code {ran.returncode}"]
        raise GatekeeperError(
            f"{program} cannot open {page}: {complaint[0]}", hint="open the file in a browser yourself"
        )
    return True


@click.command()
@click.argument("words", nargs=-1, metavar="[WORD]")
@AS_JSON
def explain(words: Sequence[str], *, as_json: bool) -> None:
    """Explain a metric, an outcome, an exit code, a finding or another word; or print a page: worker-protocol.

    3 is exit code 3. `metrics` lists what an objective may name. Without WORD: every word.

    \b
    gatekeeper explain ttft_delta
    """
    from gatekeeper.core.document import document_of
    from gatekeeper.report.commands import explain_document as explained
    from gatekeeper.report.data import glossary

    if not words:
        every = glossary.entries()
        show([document_of(entry) for entry in every], explained.glossary_document(every), as_json=as_json)
        return
    if words == (METRICS,):
        show(explained.list_metrics(), explained.metrics_document(), as_json=as_json)
        return
    entries = glossary.find_entries(" ".join(words))
    page = None if entries else explained.find_page(" ".join(words))
    if page is not None:
        text = page.read_text(encoding="utf-8")
        show({"page": page.stem, "text": text}, text, as_json=as_json)
        return
    if not entries:
        near = nearest_word("_".join(words), {name for entry in glossary.entries() for name in entry.names})
        hint = f"did you mean '{near}'?" if near else "gatekeeper explain lists every word"
        raise InputError(f"unknown word '{' '.join(words)}'", hint=hint)
    show([document_of(entry) for entry in entries], explained.words_document(entries), as_json=as_json)


@click.command()
@RUN_DIR
@click.option("--slo", type=SloPath(), help="Judge the records by this SLO's objectives.")
@AS_JSON
@VERBOSE
@ends_with(ok=None, objective_failed=None, bad_input=None, unproven=None, internal_error=None)
def judge(run_dir: Path, slo: Path | None, *, as_json: bool, verbose: bool) -> int:
    """Judge the records of a run again: same exit code, same bytes.

    \b
    gatekeeper judge latest
    """
    # Here, not first by a module of ours: so many calls deeper, numpy's import crosses the end of a chunk of Python's
    # stack a thousand times, and each time memory is mapped and returned.
    import numpy  # noqa: F401, ICN001

    from gatekeeper.core.document import text_of
    from gatekeeper.run.stored.judge import load_decision

    decision = load_decision(run_dir, slo)
    annotate(decision, run_dir, slo)
    if as_json:
        sys.stdout.write(text_of(decision.verdict))
    else:
        show_decision(decision, run_dir, slo_of(run_dir, slo), verbose=verbose, newest=False, stored=slo is None)
    return decision.verdict.exit_code


@click.command()
@RUN_DIR
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format.")
@click.option("--of", "rows", type=click.Choice(ROWS), help="Rows of csv and ndjson [default: answers].")
@click.option(
    "--to", metavar="URL",
    help="Send the run to this OpenTelemetry collector; otlp: the one of the SLO file or OTEL_* variables.",
)  # fmt: skip
@AS_JSON
@VERBOSE
def report(run_dir: Path, form: str, rows: str | None, to: str | None, *, as_json: bool, verbose: bool) -> int:
    """Show a finished or interrupted run again, in any format.

    As text it is the last screen of certify; -v prints what it rests on. csv and ndjson are a row an answer, or with
    --of host a row a host sample; of a damaged run they hold its whole records, and the exit code is 3.

    \b
    gatekeeper report latest -o report.md
    """
    if to is not None:
        _send(run_dir, to, as_json=as_json)
        return ExitCode.OK
    chosen = FORMATS[form]
    if chosen.source is RenderedFrom.TABLE:
        return _show_table(run_dir, chosen, rows or ANSWERS)
    if rows is not None:
        raise InputError(f"--of {rows} needs a table", hint="--format csv, or --format ndjson")
    from gatekeeper.run.stored.judge import load_decision
    from gatekeeper.run.stored.stored_page import load_page_data

    page = load_page_data(run_dir) if chosen.source is RenderedFrom.PAGE else None
    decision = page.decision if page is not None else load_decision(run_dir)
    annotate(decision, run_dir, None)
    if form == "text":
        show_decision(decision, run_dir, slo_of(run_dir, None), verbose=verbose, newest=False)
    else:
        shown = decision.verdict if chosen.source is RenderedFrom.VERDICT else page or decision
        sys.stdout.write(chosen.load()(shown))
    return ExitCode.OK


def _show_table(run_dir: Path, chosen: Format, rows: str) -> int:
    """Print the answers or the host samples of a run; return 3 for a damaged record file."""
    from gatekeeper.core.text import printable_error
    from gatekeeper.deploy.loaded_run import LoadedRun
    from gatekeeper.report import tables

    run = LoadedRun(run_dir)
    if rows == ANSWERS:
        table = tables.answer_table(run.name, run.answer_files)
    else:
        table = tables.sample_table(run.name, run.host_columns)
    sys.stdout.write(chosen.load()(table))
    for trouble in run.troubles:
        click.echo(printable_error(f"{run_dir}/{trouble}; its whole records are shown"), err=True)
    return ExitCode.UNPROVEN if run.damaged else ExitCode.OK


def _send(run_dir: Path, to: str, *, as_json: bool) -> None:
    from gatekeeper.report.otel.live_export import export_stored

    document = export_stored(run_dir, None if to == CONFIGURED else to)
    text = "sent {spans} spans and {points} points to {endpoint}\n".format_map(document)
    show(document, text, as_json=as_json)


COMMANDS = (open_report, explain, judge, report)
