"""The release notes of a tag: its section of CHANGELOG.md. `python tools/release_notes.py v0.3.0` prints it."""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r'__version__ = "([^"]+)"')


def notes(tag: str) -> str:
    """Return the section; refuse a tag that is not the version of the package, and a version that is not released."""
    found = VERSION.search((ROOT / "gatekeeper" / "__init__.py").read_text("utf-8"))
    version = found[1] if found else "unknown"
    if tag != f"v{version}":
        raise SystemExit(f"the tag {tag} is not v{version}, the version of the package")
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    for section in sections[1:]:
        head, _, body = section.partition("\n")
        if re.match(rf"\[{re.escape(version)}\]", head):
            return body.strip() + "\n"
    raise SystemExit(f"CHANGELOG.md has no section [{version}]: rename [Unreleased] to [{version}] with the date")


if __name__ == "__main__":
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("tag")
    sys.stdout.write(notes(read.parse_args().tag))
