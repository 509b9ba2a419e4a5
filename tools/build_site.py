"""The docs site: `./run docs` builds it into `build/docs/site`, and fails where a link or an anchor leads nowhere.

The documents are copied with their folders, so the links that work in the repository work on the site.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "docs"
LINK = re.compile(r"\]\(([^)#\s]+)|(?:src|href)=\"([^\"#]+)\"")


def pages() -> list[Path]:
    """Return every document of the repository, below ROOT."""
    own = [path for path in ROOT.glob("*.md") if path.name != "README.md"]
    folders = [path for name in ("docs", "slos", "soak", "canaries", "models") for path in (ROOT / name).rglob("*.md")]
    return [ROOT / "README.md", *own, *folders, ROOT / "tests" / "analysis" / "SURVIVORS.md"]


def linked(page: Path) -> list[Path]:
    """Return the files of the repository that *page* links to; a folder stands for itself."""
    targets = [one or other for one, other in LINK.findall(page.read_text("utf-8"))]
    return [path for one in targets if ":" not in one and (path := (page.parent / one).resolve()).exists()]


def stage(into: Path) -> None:
    """Copy the documents, and the files they show or link to, with their folders."""
    shutil.rmtree(into, ignore_errors=True)
    documents = pages()
    files = {path for page in documents for path in linked(page) if path.is_file()}
    for path in sorted({*documents, *files}):
        target = into / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def main() -> None:
    """Stage the documents and build the site; exit with what the builder says."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    stage(BUILD / "pages")
    shutil.copy(ROOT / "docs" / "zensical.toml", BUILD)
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--clean", "--strict"]
    sys.exit(subprocess.run(command, cwd=BUILD, check=False).returncode)


if __name__ == "__main__":
    main()
