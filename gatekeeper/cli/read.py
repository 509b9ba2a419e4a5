"""The commands that show what is there: open a report, explain a word."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gatekeeper.cli.options import AS_JSON, LATEST, RunPath, show
from gatekeeper.core.errors import GatekeeperError, InputError, did_you_mean

if TYPE_CHECKING:
    from gatekeeper.report.data.glossary import GlossaryEntry

PAGE = "report.html"
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
"""Variables of an X11 or a Wayland session."""
REMOTE_SESSION = ("SSH_CONNECTION", "SSH_TTY")
"""Variables of an ssh session: a browser would open on the remote machine."""


@click.command(name="open")
@click.argument("run_dir", type=RunPath(), default=LATEST, metavar="[RUN]")
@AS_JSON
def open_report(run_dir: Path, *, as_json: bool) -> None:
    """Open the report of a run in a browser [default: the newest run]; without a display, print its path."""
    page = (run_dir / PAGE).absolute()
    if not page.is_file():
        hint = f"an unfinished run has none yet: gatekeeper report {run_dir} --output page.html"
        raise InputError(f"{run_dir} has no {PAGE}", hint=hint)
    opened = _open(page)
    note = "" if opened else "  (no display here: open it in a browser)"
    show({"report": str(page), "opened": opened}, f"{page}{note}\n", as_json=as_json)


def _open(page: Path) -> bool:
    """Open *page* with the system's own program; return whether there is one and a display."""
    mac = sys.platform == "darwin"
    if any(name in os.environ for name in REMOTE_SESSION) or not (mac or any(map(os.environ.get, DISPLAYS))):
        return False
    program = shutil.which("open" if mac else "xdg-open")
    if program is None:
        import webbrowser  # noqa: PLC0415 (seldom needed)

        return webbrowser.open(page.as_uri())
    import subprocess  # noqa: PLC0415

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
    """Explain a metric, an outcome, a finding or a reason: what it means, its formula, what to do.

    A run directory in the place of WORD: draw its certified region. Without WORD: list every word.
    """
    from gatekeeper.report.commands.explain import explain_text, list_text  # noqa: PLC0415
    from gatekeeper.report.data import glossary  # noqa: PLC0415

    if not words:
        every = glossary.entries()
        show([entry.document() for entry in every], list_text(every), as_json=as_json)
        return
    entries = glossary.explained(" ".join(words))
    if not entries and len(words) == 1 and (run := RunPath().convert(words[0], None, None)).is_dir():
        from gatekeeper.report.terminal import region_text  # noqa: PLC0415
        from gatekeeper.run.judge import judge  # noqa: PLC0415

        verdict = judge(run)
        regions = {
            workload.name: workload.region.document() for workload in verdict.workloads if workload.region is not None
        }
        show(regions, region_text.render(verdict), as_json=as_json)
        return
    if not entries:
        word = "_".join(words).lower()
        raise InputError(f"unknown word '{' '.join(words)}'", hint=_nearest(word, glossary.entries()))
    show([entry.document() for entry in entries], explain_text(entries), as_json=as_json)


def _nearest(word: str, entries: "Sequence[GlossaryEntry]") -> str:
    hint = did_you_mean(word, {entry.word for entry in entries})
    return hint if hint.startswith("did you mean") else "gatekeeper explain lists every word"


COMMANDS = (open_report, explain)
