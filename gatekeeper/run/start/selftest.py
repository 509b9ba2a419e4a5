"""`gatekeeper selftest`: what works on this machine, measured in minutes, in one file that can be sent to others."""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.core.backend_registry import PROBED
from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import GatekeeperError, InputError, OutOfTimeError
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.system.files import read_input, write_atomically
from gatekeeper.core.system.record_files import write_errors
from gatekeeper.host.sampling.raw_readings import raw_readings
from gatekeeper.host.tool_commands import run_for
from gatekeeper.report.commands.selftest_document import AGAIN
from gatekeeper.run.active_run import ending_after
from gatekeeper.run.start import doctor, selftest_runs
from gatekeeper.run.start.cut_names import cut_names, own_names
from gatekeeper.run.start.versions import versions

MOST_BYTES = 16 << 20
DEVICE_S = 20.0
"""Seconds for the first import of MLX, for which a new Mac scans every library of it: 10 to 20 s."""
_DEVICE = (
    "import json, mlx.core as mx; tell = getattr(mx, 'device_info', None) or mx.metal.device_info; "
    "print(json.dumps({'metal': mx.metal.is_available(), 'default': str(mx.default_device()), 'info': tell()}))"
)

Measure = Callable[[Path], Any]
"""Measures something, with a folder of its own for files, and returns it as JSON."""


@dataclass(frozen=True, slots=True)
class SelftestPart:
    """A part of the file."""

    measure: Measure
    limit: float
    """Seconds after which it is ended: more than it takes on two slow cores that do nothing else.

    All limits together are five minutes.
    """


WORKER, SERVER = PROBED
SECTIONS: Mapping[str, SelftestPart] = {
    "versions": SelftestPart(lambda _: versions(), 5),
    "conditions": SelftestPart(lambda _: host.facts(), 5),
    "telemetry": SelftestPart(lambda _: raw_readings(), 15),
    "device": SelftestPart(lambda _: device(), 25),
    "doctor": SelftestPart(lambda _: examine_installation(), 10),
    f"certify {WORKER}": SelftestPart(partial(selftest_runs.certify_little, WORKER), 60),
    f"certify {SERVER}": SelftestPart(partial(selftest_runs.certify_little, SERVER), 60),
    "sampling": SelftestPart(partial(selftest_runs.time_tokens, SERVER), 45),
    f"pause {WORKER}": SelftestPart(partial(selftest_runs.time_after_pause, WORKER), 20),
    f"pause {SERVER}": SelftestPart(partial(selftest_runs.time_after_pause, SERVER), 20),
    "widths": SelftestPart(partial(selftest_runs.flips_by_width, WORKER), 35),
}
"""What is measured, by its name in the file, in this order: first what needs no model."""


def selftest(
    path: Path, report: Callable[[str], None], sections: Mapping[str, SelftestPart] = SECTIONS
) -> dict[str, Any]:
    """Measure section after section, and write *path* after each; return the document.

    What goes wrong in one is its `error`. Names of the user and the host are cut out of all texts.
    """
    if not path.parent.is_dir():
        raise InputError(f"--output {path}: there is no folder {path.parent}", hint="make it, or name another file")
    names, at = own_names(), stamp(SystemClock().wall())
    document: dict[str, Any] = {"schema": 1, "at": at, "planned": [*sections], "sections": {}}
    for name, section in sections.items():
        report(name)
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gatekeeper-") as folder:
            entry = _run_section(section, Path(folder))
        entry["took_s"] = round(time.monotonic() - begun, 1)
        document["sections"][name] = cut_names(entry, names)
        with write_errors(path):
            write_atomically(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return document


def _run_section(section: SelftestPart, folder: Path) -> dict[str, Any]:
    message = f"not reached within {section.limit:g} s"
    try:
        with ending_after(section.limit, message, AGAIN):
            return {"result": section.measure(folder), "error": None}
    except OutOfTimeError as error:
        return {"result": None, "error": error.message, "hint": error.hint, "out_of_time": True}
    except GatekeeperError as error:
        return {"result": None, "error": error.message, "hint": error.hint}
    except Exception as error:  # noqa: BLE001  any failure is what the file is to show
        return {"result": None, "error": f"{type(error).__name__}: {error}", "hint": "please report it"}


def read_selftest(path: Path) -> dict[str, Any]:
    """Return the document in *path*; raise InputError where it holds another."""
    try:
        document = json_object(read_input(path, MOST_BYTES))
        planned, sections = document.get("planned"), document.get("sections")
        if document.get("schema") == 1 and isinstance(planned, list) and isinstance(sections, dict):
            return {**document, "planned": [str(name) for name in planned]}
        reason = "it has no sections"
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="make one: gatekeeper selftest") from error
    except ParseError as error:
        reason = str(error)
    raise InputError(f"{path} is no file of a selftest: {reason}", hint="make one: gatekeeper selftest")


def examine_installation() -> dict[str, Any]:
    """Return what `gatekeeper doctor` finds, without what the user runs now."""
    document = {key: value for key, value in doctor.examine().items() if key not in {"facts", "lock"}}
    return {**document, "items": [item for item in document["items"] if item["kind"] != "now"]}


def device() -> dict[str, Any]:
    """Return what MLX says of the device that computes; it is imported in a process of its own, as anywhere here."""
    output = run_for([sys.executable, "-c", _DEVICE], DEVICE_S)
    if output.code != 0:
        raise GatekeeperError(f"MLX: exit {output.code}: {output.messages[-500:]}", hint="gatekeeper doctor")
    return json_object(output.out)
