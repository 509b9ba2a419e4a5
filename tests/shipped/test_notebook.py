"""The notebook of the docs: every cell runs on a stored run, and prints what the notebook shows."""

import json
import os
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.builders.project_folder import ROOT

NOTEBOOK = ROOT / "docs" / "answers.ipynb"
RUN = ROOT / "tests" / "golden" / "runs" / "promoted"


def test_every_cell_prints_what_the_notebook_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The cells run one after another in one namespace, as a kernel would; GATEKEEPER_GOLDEN=write stores what they print.
    """
    shutil.copytree(RUN, tmp_path / "runs" / RUN.name)
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(NOTEBOOK.read_text())
    names: dict[str, Any] = {}

    for number, cell in enumerate((cell for cell in notebook["cells"] if cell["cell_type"] == "code"), start=1):
        with redirect_stdout(StringIO()) as out:
            exec("".join(cell["source"]), names)  # noqa: S102 (a notebook is code)
        stream = {"name": "stdout", "output_type": "stream", "text": out.getvalue().splitlines(keepends=True)}
        assert out.getvalue()
        if os.environ.get("GATEKEEPER_GOLDEN") == "write":
            cell |= {"execution_count": number, "outputs": [stream]}
            NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        assert [stream] == cell["outputs"]
