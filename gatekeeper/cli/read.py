"""The commands that read a run, or a word: judge, report, open, explain, export."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gatekeeper.cli.common_options import is_verbose
from gatekeeper.cli.options import AS_JSON, LATEST, PATH, RUN_DIR, RunPath, annotate, show
from gatekeeper.core.errors import GatekeeperError, InputError, did_you_mean
from gatekeeper.core.system.environment_variables import DISPLAY, SSH_CONNECTION, SSH_TTY, WAYLAND_DISPLAY
from gatekeeper.report import FORMATS

PAGE = "report.html"
DISPLAYS = (DISPLAY, WAYLAND_DISPLAY)
"""Variables of an X11 or a Wayland session."""
REMOTE_SESSION = (SSH_CONNECTION, SSH_TTY)
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
    """Explain a metric, an outcome, a finding or a reason: what it means, its formula, what to do.

    A run directory in the place of WORD: draw its certified region. Without WORD: list every word.
    """
    from gatekeeper.report.commands.explain import explain_text, list_text
    from gatekeeper.report.data import glossary

    if not words:
        every = glossary.entries()
        show([entry.document() for entry in every], list_text(every), as_json=as_json)
        return
    entries = glossary.explained(" ".join(words))
    if not entries and len(words) == 1 and (run := RunPath().convert(words[0], None, None)).is_dir():
        from gatekeeper.report.terminal import region_text
        from gatekeeper.run.judge import judge

        verdict = judge(run)
        regions = {
            workload.name: workload.region.document() for workload in verdict.workloads if workload.region is not None
        }
        show(regions, region_text.render(verdict), as_json=as_json)
        return
    if not entries:
        hint = did_you_mean("_".join(words).lower(), {entry.word for entry in glossary.entries()})
        hint = hint if hint.startswith("did you mean") else "gatekeeper explain lists every word"
        raise InputError(f"unknown word '{' '.join(words)}'", hint=hint)
    show([entry.document() for entry in entries], explain_text(entries), as_json=as_json)


@click.command()
@RUN_DIR
@click.option("--slo", type=PATH, help="Judge the records by this SLO's objectives.")
@AS_JSON
def judge(run_dir: Path, slo: Path | None, *, as_json: bool) -> int:
    """Derive the verdict again from the records of a run: same exit code, same bytes."""
    from gatekeeper.report import plain_text, verdict_json
    from gatekeeper.report.terminal import summary
    from gatekeeper.run.judge import load_decision

    decision = load_decision(run_dir, slo)
    annotate(decision, run_dir, slo)
    if as_json:
        sys.stdout.write(verdict_json.render(decision.verdict))
    elif sys.stdout.isatty() and not is_verbose():
        summary.show(decision, run=run_dir, slo=slo or "SLO.toml", newest=False)
    else:
        summary.show_stored(decision, plain_text.render(decision), run=run_dir, slo=slo or "SLO.toml")
    return decision.verdict.exit_code


@click.command()
@RUN_DIR
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format.")
@AS_JSON
def report(run_dir: Path, form: str, *, as_json: bool) -> None:  # noqa: ARG001 (--json sets the format)
    """Render a finished or interrupted run."""
    from gatekeeper.run.judge import load_decision, load_page_data, stored_policy

    chosen = FORMATS[form]
    page = load_page_data(run_dir) if chosen.needs_page else None
    decision = page.decision if page is not None else load_decision(run_dir)
    annotate(decision, run_dir, None)
    content = chosen.load()(page or (decision if chosen.needs_decision else decision.verdict))
    if form == "text" and (policy := stored_policy(run_dir)) is not None:
        from gatekeeper.report import plain_text

        content += plain_text.conditions(policy)
    if form == "text":
        from gatekeeper.report.terminal import summary

        summary.show_stored(decision, content, run=run_dir)
    else:
        sys.stdout.write(content)


@click.command()
@RUN_DIR
@AS_JSON
def export(run_dir: Path, *, as_json: bool) -> None:
    """Send a stored run to an OpenTelemetry collector; sending it again sends the same spans."""
    from gatekeeper.report.otel import export_stored

    document = export_stored(run_dir)
    text = "sent {spans} spans and {points} points to {endpoint}\n".format_map(document)
    show(document, text, as_json=as_json)


COMMANDS = (open_report, explain, judge, report, export)
