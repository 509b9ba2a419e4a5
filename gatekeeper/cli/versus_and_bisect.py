"""The commands on regressions: versus, bisect."""

from collections.abc import Iterable, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gatekeeper.cli.certify_and_plan import observers
from gatekeeper.cli.common_options import AS_JSON, QUIET
from gatekeeper.cli.options import SLO, SloPath, out_option, seconds_option, show
from gatekeeper.core.errors import InputError

if TYPE_CHECKING:
    from gatekeeper.regression.searched_versions import Version

AFTER_INTERRUPT = {
    "versus": "with --output what was measured is kept: the same command with --resume continues",
    "bisect": "tested versions are kept: the same command with --resume continues",
}
SYMPTOMS = (
    "throughput_ratio",
    "answer_throughput_ratio",
    "ttft_delta",
    "acceptance_rate",
    "acceptance_length",
    "decode_throughput",
    "ttft",
    "token_agreement",
    "warm_cache_agreement",
    "footprint_peak",
)
WORKLOAD = click.option("--workload", metavar="NAME", help="The workload to measure [default: the first].")


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--slo", type=SloPath(), help="The SLO of both, if A and B are not SLO files.")
@click.option(
    "--canaries",
    multiple=True,
    metavar="FILE",
    help="Without an SLO: canary prompts; repeatable [default: json, chat].",
)
@click.option("--target", metavar="NAME", help="Without an SLO: the model, if a server lists several.")
@WORKLOAD
@seconds_option("60s")
@click.option("--fail-on", type=click.Choice(["worse"]), help="Exit 1 where B is proven worse.")
@click.option("--resume", is_flag=True, help="Continue the interrupted comparison in --output.")
@out_option("Folder of the answers [default: they are not kept].")
@AS_JSON
@QUIET
def versus(
    a: str,
    b: str,
    slo: Path | None,
    workload: str | None,
    canaries: Sequence[str],
    target: str | None,
    *,
    seconds: float,
    fail_on: str | None,
    resume: bool,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Compare two systems in one run, their requests interleaved: B over A, with intervals.

    A and B are the addresses of two running servers, two SLO files, or with --slo two environments (folders of venv),
    two drafts of the SLO or two programs.
    """
    from gatekeeper.regression.regression_text import versus_text
    from gatekeeper.regression.versus import versus as compare

    if slo is None:
        a, b = (side if "://" in side else str(SloPath().convert(side, None, None)) for side in (a, b))
    if a == b:
        click.echo("versus: A and B are the same: what differs will be noise", err=True)
    with observers(quiet=quiet) as watching:
        result = compare(
            (a, b), slo, workload, out,
            seconds=seconds, resume=resume, observers=watching, canaries=canaries, target=target,
        )  # fmt: skip
    show(result.document(), versus_text(result), as_json=as_json)
    return 1 if fail_on and result.is_worse else 0


@click.command()
@SLO
@click.option("--package", help="The package whose versions are searched; with --good and --bad.")
@click.option("--good", metavar="VERSION", help="A version without the symptom.")
@click.option("--bad", metavar="VERSION", help="A version with it.")
@click.option("--versions", help="The versions in order, with commas [default: those of the index].")
@click.option("--with", "also", multiple=True, metavar="REQUIREMENT", help="Installed beside it; repeatable.")
@click.option("--step", "steps", multiple=True, metavar="REQUIREMENTS", help="Packages of one version; in order.")
@click.option("--program", "programs", multiple=True, help="A program, such as a release of llama-server; in order.")
@click.option("--draft", "drafts", multiple=True, help="A draft, such as a revision's folder; in order.")
@click.option("--pip", multiple=True, metavar="OPTION", help="An option of the installer, such as --find-links=DIR.")
@click.option(
    "--metric", type=click.Choice(SYMPTOMS), default="throughput_ratio", show_default=True, help="The symptom."
)
@click.option("--at-least", type=float, help="A good version shows at least this.")
@click.option("--at-most", type=float, help="A good version shows at most this.")
@WORKLOAD
@click.option("--resume", is_flag=True, help="Continue the search in --output, or this SLO's latest.")
@out_option("Folder of the search [default: runs/bisect-FILE].")
@AS_JSON
@QUIET
def bisect(slo: Path, *, resume: bool, out: Path | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Find the first version with a symptom: each step is a short probe in an environment of its own.

    Unclear versions are skipped. Environments are made with uv or pip, and kept.

    \b
    Exit codes:
      0    the first bad version is known
      3    it is not: no difference between the ends, or unclear versions
    """
    from gatekeeper.regression.bisect import Search
    from gatekeeper.regression.bisect import bisect as find
    from gatekeeper.regression.regression_text import bisect_text
    from gatekeeper.regression.symptom import Symptom

    symptom = Symptom(options["metric"], *_bound(options["metric"], options["at_least"], options["at_most"]))
    versions = _versions(options)
    if _numbers(options["good"]) > _numbers(options["bad"]) > ():
        click.echo("bisect: --good is newer than --bad: this finds the last version with the symptom", err=True)
    _refuse_options((*(word for version in versions for word in version.requirements), *options["also"]))
    search = Search(slo, versions, symptom, options["workload"], options["also"], options["pip"])
    with observers(quiet=quiet) as watching:
        result = find(search, out or _folder(slo, resume=resume), resume=resume, observers=watching)
    show(result.document(), bisect_text(result), as_json=as_json)
    return int(result.exit_code)


def _numbers(version: str | None) -> tuple[int, ...]:
    """Return the numbers of a version, to compare two; empty where it has other parts."""
    parts = (version or "").split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def _folder(slo: Path, *, resume: bool) -> Path:
    """Return the folder of a new search, or that of the latest one to resume."""
    first = Path("runs") / f"bisect-{slo.stem}"
    names = (first if number == 1 else first.with_name(f"{first.name}-{number}") for number in count(1))
    taken = list(takewhile(Path.exists, names))
    if resume and taken:
        return taken[-1]
    return first if not taken else first.with_name(f"{first.name}-{len(taken) + 1}")


def _bound(metric: str, at_least: float | None, at_most: float | None) -> tuple[str, float | None]:
    from gatekeeper.core.metrics import BY_NAME

    if at_least is not None and at_most is not None:
        raise InputError("--at-least and --at-most are both set", hint="remove one of them")
    if at_most is not None:
        return "at_most", at_most
    row = BY_NAME[metric]
    if at_least is not None or (row.counted and row.against_plain):
        return "at_least", 1.0 if at_least is None else at_least
    return ("at_least" if row.higher_is_better else "at_most"), None


def _refuse_options(words: Iterable[str]) -> None:
    """Refuse a requirement that the installer would read as an option, such as `--index-url=…`."""
    for word in words:
        if word.strip().startswith("-"):
            raise InputError(f"'{word}' is an option and not a package", hint="options of the installer go to --pip")


def _versions(options: dict[str, Any]) -> "tuple[Version, ...]":
    """Return the versions to search, the good one first."""
    from gatekeeper.regression.searched_versions import Version, released_versions

    lists: dict[str, Sequence[str]] = {name: options[name] for name in ("steps", "programs", "drafts")}
    package, good, bad = options["package"], options["good"], options["bad"]
    lists_in_use = [name for name, versions in lists.items() if versions] + (["package"] if package else [])
    if len(lists_in_use) != 1:
        raise InputError("bisect needs one list of versions", hint="--package with --good and --bad, or --step …")
    if not package:
        return (
            *(Version(requirements=tuple(text.split())) for text in lists["steps"]),
            *(Version(program=text) for text in lists["programs"]),
            *(Version(draft=text) for text in lists["drafts"]),
        )
    _refuse_options(word for word in (package, good, bad) if word)
    if options["versions"]:
        versions = [version.strip() for version in options["versions"].split(",") if version.strip()]
    elif good and bad:
        versions = released_versions(package, good, bad, options["pip"])
    else:
        raise InputError("--package needs --good and --bad", hint="or --versions 0.31.2,0.31.3,0.32.0")
    return tuple(Version(requirements=(f"{package}=={version}",)) for version in versions)


COMMANDS = (versus, bisect)
