"""The commands on this machine, its programs and this one: init, doctor, selftest, worker."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from gatekeeper.cli.common_options import AS_JSON, QUIET
from gatekeeper.cli.options import PATH, CommandGroup, SecondsRange, SloPath, ends_with, show, styled_printer
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode


@click.command()
@click.option(
    "-o", "--output", "--out", "output", type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write [default: slos/this-host.toml, or this-host-2.toml where that exists].",
)  # fmt: skip
@click.option("--target", help="A folder or a name in a cache [default: the heaviest found].")
@click.option("--draft", "drafts", multiple=True, help="A draft for --target; repeatable.")
@click.option("--backend", help="The serving system [default: the installed one with the heaviest pair].")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@AS_JSON
def init(
    output: Path | None, target: str | None, drafts: Sequence[str], *, backend: str | None, force: bool, as_json: bool
) -> int:
    """Write an SLO file for this machine, from the backends and models found on it.

    It finds the same models as try. Exits 3, with the commands, if something must be downloaded or installed first.

    \b
    gatekeeper init -o slos/this-host.toml
    """
    from gatekeeper.report.commands.init_document import init_document
    from gatekeeper.run.start.init_slo import propose

    document, exit_code = propose(output, force=force, backend=backend, target=target, drafts=drafts)
    show(document, init_document(document), as_json=as_json)
    return exit_code


@click.command()
@click.argument("slo", required=False, type=SloPath())
@click.option("--on", "remote_host", metavar="HOST", help="Examine this remote host over ssh.")
@click.option(
    "--samples", type=click.IntRange(min=1), metavar="N", help="Show N samples of the host's telemetry instead."
)
@click.option("--interval", type=SecondsRange(0.05), help="Time between samples [default: 1s].")
@click.option("--as", "platform", type=click.Choice(["macos", "linux"]), help="Sample by this platform's sources.")
@AS_JSON
def doctor(
    slo: Path | None,
    *,
    remote_host: str | None,
    samples: int | None,
    interval: float | None,
    platform: str | None,
    as_json: bool,
) -> int:
    """Show what this machine lacks, for which objective or backend, and the command that fixes it.

    With SLO also which of its models are missing. With --samples, every value with its source and status; as JSON, a
    line a sample.

    Exits 2 if an environment variable would make speculation lossy, and 3 if a remote host has no gatekeeper with the
    same rules.

    \b
    gatekeeper doctor --samples 10 --interval 5s
    """
    if samples is not None:
        if slo is not None or remote_host is not None:
            raise InputError("--samples is of this machine alone", hint="leave out the SLO file and --on")
        _show_host_samples(samples, interval, platform, as_json=as_json)
        return ExitCode.OK
    if interval is not None or platform is not None:
        option = "--as" if interval is None else "--interval"
        raise InputError(f"{option} goes with --samples", hint="for example: gatekeeper doctor --samples 10")
    from gatekeeper.report.commands.doctor_document import doctor_document
    from gatekeeper.run.start.doctor import examine

    if remote_host is None:
        document = examine(slo)
    else:
        from gatekeeper.run.remote.remote_checks import examine_host
        from gatekeeper.run.remote.ssh import RemoteHost

        document = examine_host(RemoteHost(remote_host), slo)
    show(document, doctor_document(document), as_json=as_json)
    if not document["ready"]:
        return ExitCode.UNPROVEN
    lossy = any(item["kind"] == "variable" for item in document["items"])
    return ExitCode.BAD_INPUT if lossy else ExitCode.OK


def _show_host_samples(samples: int, interval: float | None, platform: str | None, *, as_json: bool) -> None:
    """Print samples of the host as they are read: a table or a line of JSON each."""
    from gatekeeper.host.sampling.sampler import SAMPLE_INTERVAL_S, write_samples
    from gatekeeper.report.host_table import table

    write_hint = partial(click.echo, err=True)
    write_samples(
        samples, interval or SAMPLE_INTERVAL_S, platform,
        json_output=as_json, write=click.echo, write_hint=write_hint, table=table,
    )  # fmt: skip


AFTER_INTERRUPT = {"selftest": "what was gathered until then is in the file of --output"}
"""What to do after Ctrl-C, by command."""


@click.command()
@click.option(
    "-o", "--output", "--out", "output", type=click.Path(path_type=Path, dir_okay=False),
    default=Path("gatekeeper-selftest.json"), show_default=True, help="The file to write.",
)  # fmt: skip
@click.option("--read", "file", type=PATH, metavar="FILE", help="Show such a file instead of making one.")
@QUIET
def selftest(output: Path, *, file: Path | None, quiet: bool) -> None:
    """Try out gatekeeper on this machine and write one file for a bug report.

    It takes five minutes at most, with the little pair of models: each part is ended after a time of its own, and on a
    busy machine some are not reached. The file holds what each tool of the host printed and short measurements, without
    names of users and hosts, home folders and serial numbers.

    \b
    gatekeeper selftest -o selftest.json
    """
    from gatekeeper.report.commands.selftest_document import selftest_document
    from gatekeeper.run.start import selftest as trying

    report = styled_printer(quiet=quiet)
    document = trying.read_selftest(file) if file else trying.selftest(output, lambda name: report(f"{name} …", {}))
    show(document, selftest_document(document, file or output, sources=file is not None))


@click.group(cls=CommandGroup)
def worker() -> None:
    """Try a program of yours that speaks the worker protocol."""


@worker.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, metavar="COMMAND...")
@click.option("--target", metavar="PATH", default="target", help="What {target} in COMMAND stands for.")
@click.option("--draft", metavar="PATH", default="draft", help="What {draft} in COMMAND stands for.")
@click.option(
    "--timeout", type=SecondsRange(0.1), default="60s", show_default=True, metavar="TIME",
    help="The longest start, and the longest answer.",
)  # fmt: skip
@AS_JSON
@ends_with(
    ok="everything that it declares is there",
    objective_failed="something is missing or wrong",
    bad_input="it cannot be started, does not greet, or does not become ready",
)
def check(command: Sequence[str], target: str, draft: str, timeout: float, *, as_json: bool) -> ExitCode:
    """Start a worker, send it three requests, and show what is there and what is missing.

    Options of gatekeeper stand before COMMAND. A word with {draft} is left out where the worker decodes plainly.

    \b
    gatekeeper worker check python integrations/example_worker.py {target} {draft}
    """
    from gatekeeper.backends.worker_backend.worker_check import check_worker
    from gatekeeper.report.commands.worker_document import worker_document

    if len(command) == 1 and " " in command[0] and not Path(command[0]).is_file():
        command = shlex.split(command[0])  # the whole of it in quotes
    check = check_worker(command, target=target, draft=draft, timeout=timeout, start_timeout=timeout)
    show(check, worker_document(check), as_json=as_json)
    return ExitCode.OBJECTIVE_FAILED if check.to_repair else ExitCode.OK


COMMANDS = (init, doctor, selftest, worker)
