"""The docs site: `./run docs` builds it into `build/docs/site`, and fails where a link or an anchor leads nowhere.

The documents are copied with their folders, so the links that work in the repository work on the site. Its home is
`docs/index.md`, in the place of the README. `llms.txt` lists the pages of the sidebar; `--llms` writes it.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "docs"
HOME = ROOT / "docs" / "index.md"
SIDEBAR = ROOT / "docs" / "zensical.toml"
STYLE = (ROOT / "docs" / "site.css", ROOT / "docs" / "site.js")
"""What the theme lacks for a keyboard and for weak eyes."""
LLMS = ROOT / "llms.txt"
LINK = re.compile(r"\]\(([^)#\s]+)|(?:src|href)=\"([^\"#]+)\"")


def pages() -> list[Path]:
    """Return every document of the repository, below ROOT."""
    own = [path for path in ROOT.glob("*.md") if path.name != "README.md"]
    folders = [path for name in ("docs", "slos", "soak", "canaries", "models") for path in (ROOT / name).rglob("*.md")]
    return [*own, *(path for path in folders if path != HOME), ROOT / "tests" / "analysis" / "SURVIVORS.md"]


def linked(page: Path) -> list[Path]:
    """Return the files of the repository that *page* links to; a folder stands for itself."""
    targets = [one or other for one, other in LINK.findall(page.read_text("utf-8"))]
    return [path for one in targets if ":" not in one and (path := (page.parent / one).resolve()).exists()]


def stage(into: Path) -> None:
    """Copy the documents, and the files they show or link to, with their folders."""
    shutil.rmtree(into, ignore_errors=True)
    documents = pages()
    files = {path for page in [*documents, HOME] for path in linked(page) if path.is_file()} | set(STYLE)
    for path in sorted({*documents, *files}):
        target = into / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (into / "README.md").write_text(home(), "utf-8")


def home() -> str:
    """Return the page of `docs/index.md` with its links as they are one folder further up."""
    text = re.sub(r"\]\((?!\.\./|[a-z]+:|#)", "](docs/", HOME.read_text("utf-8"))
    return text.replace("](../", "](")


def sidebar() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the sections of the sidebar, each with the title and the path of its pages; the home page has none."""
    sections: list[tuple[str, list[tuple[str, str]]]] = []
    for entry in tomllib.loads(SIDEBAR.read_text("utf-8"))["project"]["nav"]:
        ((title, content),) = entry.items()
        single = isinstance(content, str)
        links = [(title, content)] if single else [link for item in content for link in item.items()]
        sections.append(("" if single else title, links))
    return sections


def llms() -> str:
    """Return `llms.txt`: what gatekeeper is, and the pages of the sidebar with their first sentences."""
    about = tomllib.loads(SIDEBAR.read_text("utf-8"))["project"]["site_description"]
    lines = ["# gatekeeper", "", f"> {about}", ""]
    for section, links in sidebar():
        lines += [f"## {section}", ""] if section else []
        for title, path in links:
            source = HOME if path == "README.md" else ROOT / path
            name = source.relative_to(ROOT).as_posix()
            lines.append(f"- [{title}]({name}): {first_sentence(source.read_text('utf-8'))}")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def first_sentence(text: str) -> str:
    """Return the first sentence of a page's prose: no heading, comment, table, list, picture or code."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n") if not part.startswith(" "))
    prose = next(part for part in paragraphs if part and part[0] not in "#<|-!0123456789" and part[:3] != "```")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)|\*\*", lambda match: match[1] or "", prose)
    return re.split(r"(?<=[.:?])\s", plain)[0].rstrip(":")


def main() -> None:
    """Stage the documents and build the site; exit with what the builder says. With --llms, write `llms.txt` alone."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--llms", action="store_true", help="write llms.txt from the sidebar, and build nothing")
    if read.parse_args().llms:
        LLMS.write_text(llms(), "utf-8")
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    stage(BUILD / "pages")
    shutil.copy(SIDEBAR, BUILD)
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--clean", "--strict"]
    code = subprocess.run(command, cwd=BUILD, check=False).returncode
    if code == 0:
        shutil.copy(LLMS, BUILD / "site")
        for page in (path for path in (BUILD / "pages").rglob("*.md")):  # llms.txt names the Markdown of each page
            shutil.copy(page, BUILD / "site" / page.relative_to(BUILD / "pages"))
    sys.exit(code)


if __name__ == "__main__":
    main()
