"""ps: the CPU use of the system's own batch jobs, which may run during a soak, and the CPU time of every process."""

import re
import shutil

from gatekeeper.core.system.system_names import is_real_mac
from gatekeeper.host.sources import Status, Tool, Values, failure
from gatekeeper.host.tool_commands import Output

JOBS = (
    "mds", "mds_stores", "mdworker", "mdworker_shared", "mdsync", "spotlightknowledged", "corespotlightd",
    "photoanalysisd", "photolibraryd", "mediaanalysisd", "backupd", "XProtect", "softwareupdated", "mobileassetd",
    "bird", "cloudd", "intelligenceplatformd", "knowledgeconstructiond", "WallpaperAerialsExtension", "replayd",
)  # fmt: skip
"""Spotlight, photo and media analysis, Time Machine, malware scans, updates, iCloud, Apple Intelligence: a new Mac runs
them for hours. Moving wallpapers and screen recordings keep the GPU busy, too."""


def cores_of_jobs(text: str) -> dict[str, float] | None:
    """Return the cores that each of these jobs uses; None where no row holds a share and a program."""
    rows = re.findall(r"^\s*(\d{1,5}\.\d{1,9})[ \t]+(\S.*?)\s*\n", text, re.MULTILINE)
    cores_by_job: dict[str, float] = {}
    for share, program in rows:
        name = program.rsplit("/", 1)[-1]
        if name in JOBS or name.startswith("XProtect"):
            cores_by_job[name] = cores_by_job.get(name, 0.0) + float(share) / 100
    return cores_by_job if rows else None


PROVIDES = ("background_cpu",)


def parse(output: Output) -> Values:
    """Return the cores that all of these jobs use together."""
    status = failure(output)
    # Program names may be in any encoding; only a failed run makes the value missing.
    if status is not None and output.code != 0:
        return dict.fromkeys(PROVIDES, status)
    cores_by_job = cores_of_jobs(output.out.decode("utf-8", "replace"))
    return {"background_cpu": sum(cores_by_job.values(), 0.0) if cores_by_job is not None else Status.PARSE_ERROR}


ARGV = ("ps", "-A", "-o", "%cpu=", "-o", "comm=")
"""Full paths and shares of all processes, in columns that macOS and Linux share."""


def argv() -> tuple[str, ...] | None:
    """Return the command on a Mac, or where stand-ins for its tools are on PATH; None elsewhere."""
    return ARGV if is_real_mac() or shutil.which("vm_stat") else None


TOOL = Tool("ps", PROVIDES, argv, parse, period=10.0)

TIMES = ("ps", "-A", "-o", "pid=", "-o", "time=", "-o", "comm=")
"""Pid, CPU time in minutes and seconds, and full path of all processes, those of other users too."""
_TIME = re.compile(r"^\s*(\d{1,9})\s+(\d{1,9}):(\d\d\.\d\d)\s+(\S.*?)\s*$", re.MULTILINE)


def processor_seconds(text: str) -> dict[int, tuple[str, float]]:
    """Return name and CPU seconds of each process by its pid, as a Mac prints TIMES: `  412   3:07.25 /usr/bin/foo`."""
    rows = _TIME.findall(text)
    return {int(pid): (program.rsplit("/", 1)[-1], 60 * int(m) + float(s)) for pid, m, s, program in rows}
