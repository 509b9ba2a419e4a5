"""The batch jobs of macOS itself that keep a machine busy: their names, and how many cores they use."""

import re

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
