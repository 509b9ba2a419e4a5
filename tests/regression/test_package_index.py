"""`gatekeeper bisect` from a package index over HTTP: releases whose metadata leave out what they need to run."""

import sys
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gatekeeper.regression.mlx_requirements import complete_requirements
from tests.builders.project_folder import ProjectFolder
from tests.regression.conftest import write_wheel, write_worker

ENDS = ("bisect", "slo.toml", "--package", "mlx-lm", "--good", "0.31.2", "--bad", "0.32.1")
ACCEPTANCE = ("--metric", "acceptance_rate", "--json", "--quiet", "--out", "search")
NEEDS_CPU = "import importlib.metadata\nimport mlx_cpu\nVERSIONS = {'mlx': importlib.metadata.version('mlx')}\n"
NEEDS_OLD_MLX = f"{NEEDS_CPU}import mlx\nif mlx.NEW: raise RuntimeError('There is no Stream(cpu, 0)')\n"
linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere mlx needs no library for the CPU")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An index with small stand-ins of mlx-lm: they need the library of the CPU, the older one also an older mlx.

    0.32.0 asks for a GPU build that the index lacks, and the draft of 0.32.1 is right half as often.
    """
    folder = tmp_path_factory.mktemp("index")
    for version in ("0.31.1", "0.32.4"):
        cpu = ("Provides-Extra: cpu", f'Requires-Dist: mlx-cpu=={version}; extra == "cpu"')
        write_wheel(folder, "mlx", version, f"NEW = {version == '0.32.4'}\n", *cpu)
        write_wheel(folder, "mlx_cpu", version, "")
    gpu = "Requires-Dist: mlx-cuda-12"
    write_worker(folder, "0.31.2", "4", begin=NEEDS_OLD_MLX, name="mlx_lm")
    write_worker(folder, "0.32.0", "4", begin=NEEDS_CPU, name="mlx_lm", metadata=(gpu,))
    write_worker(folder, "0.32.1", "2", begin=NEEDS_CPU, name="mlx_lm")
    for wheel in folder.glob("*.whl"):
        page = folder / "simple" / wheel.name.partition("-")[0].replace("_", "-") / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("a") as file:
            file.write(f'<a href="../../{wheel.name}">{wheel.name}</a>\n')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


@pytest.fixture
def project(worker: ProjectFolder, index: str) -> ProjectFolder:
    """The SLO of the packaged worker, now mlx-lm from the index alone."""
    other_variables = {
        name: value for name, value in worker.environment.items() if not name.startswith(("PIP_", "UV_"))
    }
    urls = {"PIP_INDEX_URL": index, "UV_INDEX_URL": index, "PIP_CONFIG_FILE": "/dev/null", "NO_PROXY": "127.0.0.1"}
    folder = ProjectFolder(worker.path, {**other_variables, **urls, "PIP_FIND_LINKS": "", "UV_FIND_LINKS": ""})
    slo = (folder.path / "slo.toml").read_text().replace("echo_worker", "mlx_lm")
    (folder.path / "slo.toml").write_text(slo)
    return folder


@pytest.mark.nightly
@linux
def test_releases_get_what_their_metadata_leave_out(project: ProjectFolder) -> None:
    """
    Each release gets the library of the CPU, and 0.31.2 an mlx that it can decode with, which is said. The release that
    asks for a GPU build cannot be installed: it is unclear, with the installer's reason and what to try.
    """
    document = project.run(*ENDS, *ACCEPTANCE, code=3).document

    answers = {step["name"].partition("==")[2]: step["answer"] for step in document["steps"]}
    assert {"0.31.2": "good", "0.32.0": "unclear", "0.32.1": "bad"} == answers
    assert ("mlx-lm==0.31.2", ["mlx-lm==0.32.0"]) == (document["last_good"], document["unclear"])
    (difference,) = document["also_differs"]
    assert ["mlx", "0.31.1", "to", "0.32.4"] == difference.split()[1:]
    because = document["steps"][1]["because"]
    assert because.startswith("cannot be installed: ")
    assert all(word in because for word in ("mlx-lm==0.32.0", "mlx-cuda-12"))
    assert "--with" in document["hint"]


@pytest.mark.nightly
@linux
def test_an_end_that_does_not_start_is_named_with_its_error(project: ProjectFolder) -> None:
    """
    With an mlx that the good version cannot decode with: which version, the line of its log that names the error, and
    what to try; neither a command nor a log is printed.
    """
    done = project.run(*ENDS, "--with", "mlx[cpu]==0.32.4", *ACCEPTANCE[:2], *ACCEPTANCE[3:], code=3)

    sentence = (
        "not found: the good version mlx-lm==0.31.2 cannot be started: RuntimeError: There is no Stream(cpu, 0)\n"
    )
    assert sentence in done.out
    assert "--with" in done.out.partition("hint: ")[2]
    assert "Traceback" not in done.out + done.err


REFUSED = {
    "a release that the worker cannot run": (
        {"backend": "mlx"},
        "backend mlx cannot run mlx-lm 0.27.1: it needs 0.28.0 or newer",
        'backend = "mlx-server"',
    ),
    "rounds that nothing counts": (
        {"backend": "mlx-server"},
        "only this gatekeeper's own mlx_lm.server counts rounds",
        'backend = "mlx"',
    ),
    "a model that is not there": (
        {"backend": "mlx-server", "target": "./nowhere"},
        "nowhere",
        "",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_release_could_show_is_refused_before_any_is_installed(case: str, project: ProjectFolder) -> None:
    """
    Exit code 2 at once, with what to do, and not minutes later.
    """
    subject, message, hint = REFUSED[case]
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    del slo["subject"]["command"]
    slo["subject"] |= subject
    project.write_slo(slo)
    metric = ("--metric", "ttft" if "target" in subject else "acceptance_rate")

    done = project.run("bisect", "slo.toml", "--package", "mlx-lm", "--versions", "0.27.1,0.28.0", *metric, code=2)

    text = " ".join(done.err.split())
    assert message in text
    assert hint in text
    assert not (project.path / "runs").exists()


ADDED = [
    ("mlx-lm==0.32.2", ["mlx[cpu]"]),
    ("mlx_lm==0.31.2", ["mlx[cpu]<0.31.2"]),
    ("mlx-lm==0.29.1", ["transformers<5", "mlx[cpu]<0.31.2"]),
    ("mlx-lm==0.29.1 transformers==4.53.3 mlx==0.29.3", ["mlx[cpu]"]),
    ("mlx-lm==0.31.1.dev0+repaired mlx[cpu]==0.31.1", []),
    ("mlx-lm[cuda13]==0.32.2", []),
    ("mlx-lm==0.32.2 mlx-cuda-12", []),
    ("mlx-vlm==0.1", ["mlx[cpu]"]),
    ("vllm==0.1", []),
]


@linux
@pytest.mark.parametrize(("requirement", "added"), ADDED, ids=[requirement for requirement, _ in ADDED])
def test_what_is_added_on_linux(requirement: str, added: list[str]) -> None:
    """
    The library of the CPU where none is named, and the bounds that old releases lack; what is named stays.
    """
    assert (*requirement.split(), *added) == complete_requirements(requirement.split())


def test_elsewhere_only_bounds_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    On a Mac mlx has its library; old releases need an older mlx there, too.
    """
    monkeypatch.setattr(sys, "platform", "darwin")

    assert ("mlx-lm==0.32.2",) == complete_requirements(["mlx-lm==0.32.2"])
    assert ("mlx-lm==0.31.2", "mlx<0.31.2") == complete_requirements(["mlx-lm==0.31.2"])
