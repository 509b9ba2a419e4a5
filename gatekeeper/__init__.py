"""gatekeeper: certify speculative decoding before it is deployed. docs/python.md is about what can be imported here."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadVerdict
    from gatekeeper.core.errors import GatekeeperError
    from gatekeeper.core.judgement import Check
    from gatekeeper.deploy.loaded_run import LoadedRun
    from gatekeeper.report.data.run_rows import AnswerRow, SampleRow

__version__ = "0.3.0"
__all__ = ["AnswerRow", "Check", "GatekeeperError", "LoadedRun", "SampleRow", "Verdict", "WorkloadVerdict", "load"]

_MODULES = {
    "AnswerRow": "report.data.run_rows",
    "Check": "core.judgement",
    "GatekeeperError": "core.errors",
    "SampleRow": "report.data.run_rows",
    "LoadedRun": "deploy.loaded_run",
    "Verdict": "analysis.verdict.run_verdict",
    "WorkloadVerdict": "analysis.verdict.run_verdict",
}
"""Where each name is defined: it is imported when it is used, so that a command starts as fast without it."""


def load(run: str | Path) -> "LoadedRun":
    """Open the run in the folder *run*, or the newest one in `runs` for `latest`; GatekeeperError where it is none."""
    from gatekeeper.deploy.loaded_run import LoadedRun  # noqa: PLC0415 (see _MODULES)

    return LoadedRun(run)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'gatekeeper' has no attribute {name!r}")
    return getattr(import_module(f"gatekeeper.{_MODULES[name]}"), name)
