"""The documents that people read: every path, link and command they name exists, and the map leaves no package out."""

import dataclasses
import html
import os
import re
from functools import cache
from pathlib import Path

import click
import pytest

from gatekeeper import __version__
from gatekeeper.cli.main import gatekeeper
from gatekeeper.cli.options import PAGE_PORT
from gatekeeper.cli.watch_and_proxy import METRICS_PORT, PROXY_PORT
from tools.build_site import sidebar, stage
from tools.write_reference import PAGES, RECORDS, attribute_docs

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gatekeeper"
DOCUMENTS = [
    *(
        "README.md",
        "METHODOLOGY.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "RELEASING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ),
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")),
    *("canaries/README.md", "models/README.md", "slos/README.md", "soak/README.md", "tests/analysis/SURVIVORS.md"),
    *("tests/README.md", "bench/README.md", "tools/README.md"),
]
MOST_WORDS = 600
REFERENCE = ("docs/reference/", "ARCHITECTURE.md", "CHANGELOG.md", "bench/README.md")
"""Pages to look something up in, which may be long."""
LONGER_PAGES = {"METHODOLOGY.md": 1600}
"""Pages that may have more than MOST_WORDS, and how many."""
FILE = re.compile(r"`((?:[\w.-]+/)*[\w.-]+(?:/|\.py|\.md|\.toml|\.sh|\.plist|\.service|\.timer))`")
"""In backquotes: a folder that ends in a slash, or a file of one of these kinds."""
IN_REPOSITORY = re.compile(
    r"(?<![\w/.~-])(?:bench|canaries|docs|gatekeeper|models|slos|soak|tests|tools)/[\w./-]*[\w/](?![\w*-])"
)
"""Anywhere: a path that begins with a folder of the repository."""
SET_FOR_A_HOOK = "GATEKEEPER_WORKLOAD"
"""One of the variables that `live/outputs.py` names after the keys of a change."""
MADE_LATER = {"policy.toml", "policy.live.toml", "slos/this-host.toml", "soak/hosts.toml"}
PLACEHOLDER = re.compile("NAME|HOST|SLO|OTHER|qwen")
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^ {4}|^\| `|`|\()(gatekeeper [^`#\n]+)", re.MULTILINE)
SCRIPT = r"python (?:-m (?=bench))?(?=bench|models|tools)|\./run |tools/(?=\w+[` ])|soak/nightly"
PROGRAM = re.compile(rf"(?:^ {{4}}|`)(?:[A-Z_]+=\S+ |chrt -r 5 )*((?:{SCRIPT})[^`#\n]+)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def text_of(document: str) -> str:
    return (ROOT / document).read_text()


@cache
def package_and_tests() -> str:
    """Return the source of the package and its tests."""
    return "".join(path.read_text() for path in [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])


@cache
def names_below(root: Path) -> set[str]:
    """Return the names of all files and folders below *root*, without what hidden folders hold, such as .venv."""
    names: set[str] = set()
    for _, folders, files in os.walk(root):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        names.update(folders, files)
    return names


def exists(path: str, beside: Path) -> bool:
    """Say if *path* is in the repository, next to the document, or in the package; a mere name may be in any folder."""
    if path in MADE_LATER or PLACEHOLDER.search(path) or (ROOT / path).exists():
        return True
    if "/" in path.rstrip("/"):
        return any((root / path).exists() for root in (beside, PACKAGE))
    return any(path.rstrip("/") in names_below(root) for root in (beside, PACKAGE))


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of *document*."""
    prose = re.sub(r"(?ms)^```.*?^```", "", document.read_text())
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(line: str) -> list[click.Command]:
    """Return the commands that *line* names, several where it reads `list|attach`."""
    context = click.Context(gatekeeper)
    commands_found: list[click.Command] = [gatekeeper]
    for word in line.split()[1:]:
        groups = [command for command in commands_found if isinstance(command, click.Group)]
        if not groups or word.startswith("-"):
            break
        candidates = [(group, name) for group in groups for name in re.split(r"\\?\|", word)]
        commands_found = [command for group, name in candidates if (command := group.get_command(context, name))]
        assert len(commands_found) == len(candidates), line
    return commands_found


def options(shown_commands: list[click.Command]) -> set[str]:
    return {
        name for command in shown_commands for param in command.params for name in (*param.opts, *param.secondary_opts)
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_a_document_names_exists(document: str) -> None:
    """A file or folder that a document names is in the repository, unless a command makes it."""
    text = text_of(document)
    paths = {*FILE.findall(text), *IN_REPOSITORY.findall(text)}

    assert [] == sorted(path for path in paths if not exists(path, (ROOT / document).parent))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_of_a_document_resolves(document: str) -> None:
    """A link within the repository leads to a file, and its anchor to a heading."""
    folder = (ROOT / document).parent
    links = [link.partition("#") for link in LINK.findall(text_of(document)) if "://" not in link]
    targets = [
        (link, folder / path if path else ROOT / document, anchor) for link, _, anchor in links for path in [link]
    ]

    lost = [link or anchor for link, target, anchor in targets if not target.exists()]
    lost += [anchor for _, target, anchor in targets if anchor and target.exists() and anchor not in anchors(target)]

    assert [] == lost


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_that_a_document_shows_exists(document: str) -> None:
    """A command of gatekeeper has every option it is shown with, those elsewhere in its row of a table included."""
    lost = []
    for line in COMMAND.findall(text_of(document)):
        lost += [f"{line}: {option}" for option in OPTION.findall(line) if option not in options(commands(line))]
    for row in re.findall(r"^\| `gatekeeper .*$", text_of(document), re.MULTILINE):
        known_options = options([command for line in COMMAND.findall(row) for command in commands(line)])
        lost += [f"{row}: {option}" for option in OPTION.findall(row) if option not in {*known_options, "--version"}]

    assert [] == lost


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_program_that_a_document_shows_exists(document: str) -> None:
    """A script of the repository knows every option it is shown with; `./run` knows its first word."""
    lost = []
    for line in PROGRAM.findall(text_of(document)):
        program, *words = line.removeprefix("python ").removeprefix("-m ").split()
        path = ROOT / (program if "/" in program else program.replace(".", "/") + ".py")
        path = path if path.is_file() else path.with_suffix("") / "__main__.py"
        source = path.read_text()
        words_needed = [f"\n{words[0]})\n"] if program == "./run" else OPTION.findall(line)
        lost += [f"{line}: {word}" for word in words_needed if word not in source]

    assert [] == lost


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_variable_that_a_document_names_is_read(document: str) -> None:
    """A variable of the environment that begins with GATEKEEPER_ is one that the package or its tests use."""
    lost = [
        name
        for name in re.findall(r"GATEKEEPER_[A-Z_]*[A-Z]", text_of(document))
        if name not in package_and_tests() + SET_FOR_A_HOOK
    ]

    assert [] == lost


def test_the_patterns_find_what_they_look_for() -> None:
    """The checks above are not empty by mistake."""
    text = "".join(map(text_of, ("README.md", "docs/regressions.md", "docs/reference/watch.md", "bench/README.md")))

    assert len(FILE.findall(text_of("ARCHITECTURE.md"))) > 60
    assert min(len(pattern.findall(text)) for pattern in (IN_REPOSITORY, LINK, COMMAND)) > 10
    assert len(PROGRAM.findall(text)) > 5


def test_every_section_that_a_message_names_exists() -> None:
    """An error or a comment in a written file sends its reader to a page of docs/, and to a section that it has."""
    code = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    references = set(re.findall(r"(docs/[\w-]+\.md)(?:, '?(\w[\w ]+))?", code))

    own_references = [(page, section) for page, section in references if page in DOCUMENTS]
    assert own_references
    lost = [(page, section) for page, section in own_references if section and f"\n## {section}\n" not in text_of(page)]
    assert [] == lost


def test_documents_name_the_ports_that_the_program_takes_by_default() -> None:
    """A guide that kept an old port would lead nowhere: of the proxy, of the page of a run, and of the metrics of a
    watch.
    """
    assert f"http://127.0.0.1:{PROXY_PORT}/" in text_of("docs/proxy.md")
    assert f"http://127.0.0.1:{PAGE_PORT}/" in text_of("docs/reading-the-report.md")
    assert f"--listen 0.0.0.0:{METRICS_PORT}" in text_of("docs/alerts.md")


@pytest.mark.parametrize("kind", [kind for _, kind, _ in RECORDS], ids=lambda kind: kind.__name__)
def test_every_field_of_a_record_has_a_meaning(kind: type) -> None:
    """Each field of a record, and each column of a row, has its text below it, for the page of the record files."""
    fields = {field.name for field in dataclasses.fields(kind)}

    assert fields
    assert set() == fields - attribute_docs(kind).keys()


def test_the_readme_is_short_and_opens_with_two_commands() -> None:
    """A reader finds what to type first, and the README ends before reference matter begins."""
    lines = text_of("README.md").splitlines()

    assert [line.split("#")[0].strip() for line in lines[2:4]] == ["./run quickstart", "./run tests"]
    assert len(lines) <= 150


def test_the_site_leads_to_every_document(tmp_path: Path) -> None:
    """The sidebar has at most twenty pages, each other page of the site is reached by links from them, and what a page
    links to is copied next to it.
    """
    stage(tmp_path)
    sidebar_pages = [path for _, links in sidebar() for _, path in links]
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}

    reached: set[str] = set()
    ahead = list(sidebar_pages)
    while ahead:
        page = ahead.pop()
        if page in reached or page not in pages:
            continue
        reached.add(page)
        links = [link.partition("#")[0] for link in LINK.findall((tmp_path / page).read_text()) if "://" not in link]
        ahead += [os.path.normpath(Path(page).parent / link) for link in links if link.endswith(".md")]

    assert len(sidebar_pages) <= 20
    assert set(sidebar_pages) <= pages
    assert set() == {page for page in pages if page.startswith("docs/")} - reached
    assert (tmp_path / "slos" / "m4-24gb-used.toml").exists()


def words_of(document: str) -> int:
    """Count the words of a document: what holds a letter or a digit, tables included, blocks of code left out."""
    prose = re.sub(r"(?ms)^```.*?^```", "", (ROOT / document).read_text())
    return sum(any(letter.isalnum() for letter in word) for word in prose.split())


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if not name.startswith(REFERENCE)])
def test_a_page_is_short(document: str) -> None:
    """A page outside the reference has at most 600 words, METHODOLOGY some more."""
    assert words_of(document) <= LONGER_PAGES.get(document, MOST_WORDS), "move reference matter to docs/reference/"


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if Path(name).name not in PAGES])
def test_a_line_is_short(document: str) -> None:
    """A line has at most 120 characters, but for a row of a table, and the pages that the program writes."""
    lines = enumerate((ROOT / document).read_text().splitlines(), 1)

    assert [] == [number for number, line in lines if len(line) > 120 and not line.startswith("|")]


def test_the_tutorials_share_one_example() -> None:
    """The figures of the first run are those of its recording, and other tutorials quote the same."""
    screen = html.unescape(re.sub("<[^>]+>", " ", (ROOT / "docs" / "quickstart.svg").read_text()))
    text = " ".join(screen.split())
    interval = re.compile(r"\d\.\d\dx \[\d\.\d\d, \d\.\d\d\]")
    first = interval.findall(text_of("docs/first-run.md"))
    quoted = [
        figure for name in ("reading-the-report", "unproven") for figure in interval.findall(text_of(f"docs/{name}.md"))
    ]

    assert 3 == len(first)
    assert [] == [figure for figure in first if figure not in text]
    assert set() < set(quoted) <= set(first)


def test_the_changelog_begins_with_this_version() -> None:
    """The first section of the changelog is about the version that the package has."""
    (first, *_) = re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), re.MULTILINE)

    assert __version__ in first


def test_a_floor_of_the_map_holds_what_its_row_names() -> None:
    """In the table of floors, a file or folder is in the package of its row."""
    rows = re.findall(r"^\| \d \| `(\w+)/` \| (.*) \|$", text_of("ARCHITECTURE.md"), re.MULTILINE)

    lost = [(name, path) for name, row in rows for path in FILE.findall(row) if not any((PACKAGE / name).rglob(path))]

    assert len(rows) > 6
    assert [] == lost


def test_the_map_names_every_package() -> None:
    """A folder of the package that the map does not name is a folder that a reader cannot find."""
    text = (ROOT / "ARCHITECTURE.md").read_text()

    folders = [path.parent for path in PACKAGE.rglob("__init__.py")]
    unnamed = [folder for folder in folders if folder != PACKAGE and f"{folder.name}/" not in text]

    assert {"agent"} >= {folder.name for folder in unnamed}


@pytest.mark.parametrize("folder", ["bench", "tools"])
def test_every_program_is_in_the_table_of_its_folder(folder: str) -> None:
    """A bench or a tool that nobody lists is found by nobody."""
    text = text_of(f"{folder}/README.md")
    names = [path.stem for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in {"", ".py", ".c"}]

    assert [] == [
        name for name in names if name not in {"__init__", "__main__"} and not re.search(rf"\b{name}\b", text)
    ]
