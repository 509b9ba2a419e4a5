"""Rules of the whole package that one file does not show."""

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import pytest

import gatekeeper
from gatekeeper.cli import main
from gatekeeper.core import errors
from gatekeeper.core.backend_registry import backend_names

PACKAGE = Path(gatekeeper.__file__).parent
ROOT = Path(__file__).parents[1]
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("mlx", "mlx_lm", "transformers", "rich", "opentelemetry")
OURS = {
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.GatekeeperError)
}


def loaded_by(script: str) -> list[str]:
    """Run *script* in its own process and name the heavy packages it pulled in."""
    probe = f"import sys\n{script}\nprint([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=True, cwd=ROOT
    )
    modules: list[str] = ast.literal_eval(ran.stderr.strip().splitlines()[-1])
    return modules


TOOLS_OF_TESTS = ("hypothesis", "pytest", "scipy", "xdist")
IMPORT_BENCHES = f"""
import importlib, sys
from pathlib import Path
sys.modules.update(dict.fromkeys({TOOLS_OF_TESTS!r}))
for path in sorted(Path("bench").rglob("[!_]*.py")):
    try:
        importlib.import_module(".".join(path.with_suffix("").parts))
    except ModuleNotFoundError as error:
        if error.name in {TOOLS_OF_TESTS!r}:
            print(path, error.name)
"""


def test_benches_need_no_tools_of_the_tests() -> None:
    """Every bench runs from an installation with the extras that its page names: none imports what only tests need."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT_BENCHES], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )

    assert (0, "") == (ran.returncode, ran.stdout), ran.stderr


def test_import_contracts_hold() -> None:
    """Layers stand on the layers below, stages do not know each other, and the arithmetic touches nothing outside."""
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists() or not (ROOT / "pyproject.toml").exists() or not (ROOT / "gatekeeper").is_dir():
        pytest.skip("import-linter is not installed, or this is no checkout")

    ran = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)

    assert 0 == ran.returncode, ran.stdout


@pytest.mark.parametrize(
    "script",
    [
        "import gatekeeper.cli.main",
        "from gatekeeper.cli.main import gatekeeper as g\ng(['--help'], standalone_mode=False)",
        "from gatekeeper.cli.main import gatekeeper as g\ng(['judge', '--help'], standalone_mode=False)",
        "from gatekeeper.cli.main import gatekeeper as g\ng(['explain', 'metrics', '--json'], standalone_mode=False)",
    ],
    ids=["import", "help", "judge help", "metrics"],
)
def test_light_commands_import_nothing_heavy(script: str) -> None:
    """Help, metrics and the judge start in a moment and on any machine: no MLX, no terminal, no telemetry."""
    assert [] == loaded_by(script)


@pytest.mark.parametrize(
    ("words", "further"),
    [(["--help"], set()), (["remote", "--help"], {"cli.output_file", "cli.remote"})],
)
def test_help_imports_the_commands_alone(words: list[str], further: set[str]) -> None:
    """`--help` starts in a moment: click, and nothing that a command needs; one command's help, and its own module."""
    script = f"from gatekeeper.cli.main import run\nrun({words})"
    others_listed = "[name for name in sys.modules if name.split('.')[0] not in sys.stdlib_module_names]"
    slow = (
        "asyncio",
        "importlib.metadata",
        "logging",
        "multiprocessing",
        "socket",
        "subprocess",
        "tomllib",
        "unittest",
    )
    probe = f"import sys\nbefore = set(sys.modules)\n{script}\n"
    probe += f"print([name for name in {others_listed} if name not in before], file=sys.stderr)\n"
    probe += f"print([name for name in {slow!r} if name in sys.modules and name not in before], file=sys.stderr)"

    ran = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=True, cwd=ROOT
    )

    imported, slow_ones = (ast.literal_eval(line) for line in ran.stderr.splitlines())
    own_modules = {name for name in imported if name.startswith("gatekeeper.")}
    assert {"gatekeeper", "click"} == {name.split(".")[0] for name in imported}
    assert {
        "cli",
        "cli.common_options",
        "cli.main",
        "cli.options",
        "core",
        "core.errors",
        "core.exit_codes",
        "core.reasons",
        "core.system",
        "core.system.environment_variables",
    } | further == {name.removeprefix("gatekeeper.") for name in own_modules}
    assert [] == slow_ones


def test_every_command_is_found_in_the_module_that_is_named_for_it() -> None:
    """`--help` knows commands by their names alone; each name leads to a command in its module, and none is left
    out.
    """
    context = click.Context(main.gatekeeper)
    commands = [main.gatekeeper.get_command(context, name) for name in main.gatekeeper.commands]
    modules = [importlib.import_module(f"gatekeeper.cli.{name}") for name in main.MODULES]

    assert list(main.gatekeeper.commands) == [command.name for command in commands if command is not None]
    assert sorted(main.gatekeeper.commands) == sorted(command.name for module in modules for command in module.COMMANDS)


@pytest.mark.whole
def test_judging_a_stored_run_imports_nothing_heavy(tmp_path: Path) -> None:
    """A run made on a Mac is judged on a machine without MLX, and a pipe needs no terminal library."""
    truth = {
        "seed": 3,
        "token": "200 ms",
        "verify": "220 ms",
        "draft_token": {"heavy": "20 ms"},
        "canaries": {"c-": {"acceptance": 0.9}},
    }
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    words = "amber birch cedar delta ember frost grove haven inlet jetty"
    (tmp_path / "c.jsonl").write_text(
        "".join(
            json.dumps(
                {"id": f"c-{at}", "messages": [{"role": "user", "content": f"Say {at}."}], "expect": {"equals": words}}
            )
            + "\n"
            for at in range(6)
        )
    )
    (tmp_path / "slo.toml").write_text(
        'schema = 1\nname = "made"\n[subject]\nbackend = "scripted"\ntarget = "t"\ndrafts = ["heavy"]\n'
        'script = "truth.json"\n[[workload]]\nname = "w"\ncanaries = "c.jsonl"\n'
        "[sweep]\nrepeats = 1\nnum_draft_tokens = [4]\n"
        '[[objective]]\nmetric = "throughput_ratio"\nat_least = 1.01\nwhy = "it must pay"\n'
    )
    certify = [sys.executable, "-m", "gatekeeper", "certify", "slo.toml", "--out", "run", "--quiet"]
    process = subprocess.run(
        certify, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path, env=_with_package()
    )
    assert process.returncode == 0, process.stderr

    judged = (
        "from pathlib import Path\nfrom gatekeeper.run.stored.judge import judge\n"
        "from gatekeeper.core.document import text_of\n"
        f"assert text_of(judge(Path({str(tmp_path / 'run')!r}))) == "
        f"Path({str(tmp_path / 'run' / 'verdict.json')!r}).read_text()"
    )

    assert [] == loaded_by(judged)


def _with_package() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}


COMMANDS = PACKAGE / "report" / "commands"
"""What commands show: each module has the name of its command and ends in `_document`."""
MOST_VAGUE = 0.01
"""Of the names that a folder binds, those that do not say what they hold."""
FOLDERS_OF_NAMES = sorted(
    folder for tree in ("gatekeeper", "tests") for folder in (ROOT / tree).iterdir() if [*folder.glob("**/*.py")]
)
VAGUE = frozenset(
    [
        "one",
        "ones",
        "found",
        "seen",
        "known",
        "mine",
        "made",
        "given",
        "some",
        "many",
        "other",
        "others",
        "both",
        "here",
        "whole",
        "wanted",
        "named",
        "own",
        "asked",
        "told",
        "said",
        "kept",
        "left",
        "moved",
        "turned",
        "shown",
        "held",
        "meant",
        "such",
        "same",
        "what",
        "who",
        "theirs",
        "ours",
    ]
)


@dataclass(frozen=True)
class Source:
    """What these tests read in the source of a module."""

    lines: int
    says_its_noun: bool
    """It has a docstring, or is empty."""
    classes: list[str]
    """Those of its top level."""
    bound_names: list[str]
    """Each name that is assigned or looped over, and each parameter."""
    texts: list[str]
    """Every string that is no docstring."""
    raised: list[tuple[int, bool]]
    """Where one of our errors is raised: its line, and whether with a hint that is not empty."""
    hints_with_period: list[int]
    """The lines of hints that end with a period."""


@cache
def source_of(path: Path) -> Source:
    """Read a module once for all tests: to parse the package takes a second."""
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    bound_names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    bound_names += [node.arg for node in nodes if isinstance(node, ast.arg) and node.arg not in {"self", "cls"}]
    return Source(
        len(text.splitlines()),
        bool(ast.get_docstring(tree)) or not tree.body,
        [node.name for node in tree.body if isinstance(node, ast.ClassDef)],
        bound_names,
        [
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        ],
        [
            (node.exc.lineno, _has_hint(node.exc))
            for node in nodes
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _name(node.exc) in OURS
        ],
        [value.lineno for value in _hints(nodes) if _ends_with_period(value)],
    )


def _name(call: ast.Call) -> str | None:
    return call.func.id if isinstance(call.func, ast.Name) else None


def _has_hint(call: ast.Call) -> bool:
    return any(
        word.arg == "hint" and not (isinstance(word.value, ast.Constant) and not word.value.value)
        for word in call.keywords
    )


def _hints(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Yield what is passed as `hint=`, or assigned to a name that ends so."""
    for node in nodes:
        names = [node.arg] if isinstance(node, ast.keyword) else []
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if isinstance(node, ast.keyword | ast.Assign) and any((name or "").lower().endswith("hint") for name in names):
            yield node.value


def _ends_with_period(hint: ast.expr) -> bool:
    match hint:
        case ast.Constant(value=str(text)):
            return text.rstrip().endswith(".") or ".\n" in text
        case ast.JoinedStr(values=[*_, _] as pieces):
            inner = [piece for piece in pieces[:-1] if isinstance(piece, ast.Constant) and ".\n" in str(piece.value)]
            return bool(inner) or _ends_with_period(pieces[-1])
        case ast.BinOp(right=last):
            return _ends_with_period(last)
        case ast.IfExp(body=body, orelse=other):
            return _ends_with_period(body) or _ends_with_period(other)
    return False


def test_no_two_modules_share_a_name() -> None:
    """A module is found by its name alone."""
    count = Counter(path.stem for path in MODULES if path.stem not in {"__init__", "__main__"})

    assert {} == {stem: number for stem, number in count.items() if number > 1}


def test_what_a_command_prints_is_found_by_its_name() -> None:
    """A module of report/commands/ is the document of a command, apart from the module that computes."""
    modules = {path.stem for path in COMMANDS.glob("*.py")} - {"__init__"}

    assert modules <= {f"{name}_document" for name in main.gatekeeper.commands}


def test_no_two_classes_share_a_name() -> None:
    """A class name means one thing in the whole package."""
    defined = [(name, path.relative_to(PACKAGE).as_posix()) for path in MODULES for name in source_of(path).classes]
    count = Counter(name for name, _ in defined)

    assert [] == [(name, path) for name, path in defined if count[name] > 1]


@pytest.mark.parametrize("folder", FOLDERS_OF_NAMES, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_local_names_say_what_they_hold(folder: Path) -> None:
    """Pronouns and participles are rare, in tests too: `objective` and `estimate`, not `one` and `found`."""
    names = Counter(name for path in folder.rglob("*.py") for name in source_of(path).bound_names)
    vague = Counter({name: count for name, count in names.items() if name in VAGUE})

    assert vague.total() <= MOST_VAGUE * names.total(), vague.most_common()


COMMON_WORDS = {"mlx", "openai", "scripted", "worker"}
"""Names that are also packages or plain words: only a text that is nothing else names the backend."""
MAY_NAME_A_SERVER = {
    "analysis/plan/complaints/unprovable_objectives.py": "hints that name a backend as an example",
    "cli/main.py": "the command of that name",
    "core/backend_registry.py": "the registry",
    "run/start/versions.py": "mlx, the Python package",
}
"""Modules outside backends/ that name one, each with its reason."""


def test_nothing_outside_the_backends_names_a_server() -> None:
    """What is known of a server is a fact of its dialect: a new one is one file there and one line in the registry."""
    own_words = "|".join(sorted({*backend_names()} - COMMON_WORDS, key=len, reverse=True))
    server_name = re.compile(rf"(?<![\w.-])({own_words})(?![\w-])")
    other_modules = [path for path in MODULES if PACKAGE / "backends" not in path.parents]

    naming = {
        str(path.relative_to(PACKAGE))
        for path in other_modules
        if any(text in COMMON_WORDS or server_name.search(text) for text in source_of(path).texts)
    }

    assert MAY_NAME_A_SERVER.keys() == naming


def test_every_stored_text_is_still_compared() -> None:
    """A text in tests/golden/words/ has a test that says it; a kind that lost its last one has no file."""
    tests_folder = Path(__file__).parent
    sources = "".join(path.read_text() for path in tests_folder.rglob("test_*.py"))
    stored = [
        name for path in (tests_folder / "golden" / "words").glob("*.toml") for name in tomllib.loads(path.read_text())
    ]

    assert stored
    assert [] == [name for name in stored if f'"{name}"' not in sources]


def test_each_module_says_its_noun() -> None:
    """The first line of a module says what it is about; an empty __init__ says nothing."""
    assert [] == [path.relative_to(PACKAGE).as_posix() for path in MODULES if not source_of(path).says_its_noun]


def test_every_error_says_what_to_do_next() -> None:
    """Each of our errors is raised with a hint, and the hint is not an empty string."""
    raised = [(path.relative_to(PACKAGE).as_posix(), *place) for path in MODULES for place in source_of(path).raised]

    assert [] == [f"{module}: line {line}" for module, line, has_hint in raised if not has_hint]


def test_no_hint_ends_with_a_period() -> None:
    """A hint is a phrase, and often a command that is pasted: a period at its end would be pasted with it."""
    ended = {path.relative_to(PACKAGE).as_posix(): source_of(path).hints_with_period for path in MODULES}

    assert {} == {module: lines for module, lines in ended.items() if lines}
    assert _ends_with_period(ast.parse('f"raise it.\\n{log}"', mode="eval").body)


def test_the_scan_sees_raises() -> None:
    """The scan above is not empty by mistake."""
    assert 30 < sum(len(source_of(path).raised) for path in MODULES)
    assert {"GatekeeperError", "InputError", "UnprovableError", "HostLacksError"} <= OURS


def test_the_command_is_installed() -> None:
    """`gatekeeper` on the PATH of this environment answers with its version."""
    program = shutil.which("gatekeeper", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("the package is not installed in this environment")

    ran = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True)

    assert f"gatekeeper {gatekeeper.__version__}" == ran.stdout.splitlines()[0]


def test_the_recipe_of_certify_is_short() -> None:
    """`certify` reads as a recipe: it imports few modules of ours."""
    tree = ast.parse((PACKAGE / "run" / "certify.py").read_text())
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    own_imports = [module for module in imported if module.split(".")[0] == "gatekeeper"]

    assert len(own_imports) <= 20, own_imports
