"""A remote host that lies: a program in ssh's place, which answers gatekeeper's scripts with what a test wants.

    python hostile_host.py ANSWERS.json [whatever ssh is called with]

ANSWERS.json holds the output for each script by its kind, base64 and with `{run}` for the name of the run; the last
piece of the kind `endless` is repeated for ever, and the output of the kind `drip` comes byte by byte.
"""

import base64
import io
import json
import os
import re
import shlex
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

RUN_ID = "2026-11-22T0900Z-little-0badc0de"
RECORD = (
    '{"owner": "eve@evil", "started": "2026-11-22T09:00:00Z", "slo": "little", "inputs_sha256": "' + "0" * 64 + '", '
    '"options": []}'
)
KINDS = {
    "list_jobs": "list",
    "print_versions": "versions",
    "make_folder": "folder",
    "unpack": "unpack",
    "check_inputs": "check",
    "remove_inputs": "remove",
    "start_run": "start",
    "follow_run": "follow",
    "print_run": "fetch",
    "mark_fetched": "mark",
    "cancel_run": "cancel",
}
"""By the function that a script calls in its last line."""


def job_line(run: str = RUN_ID, state: str = "ended", code: object = 0, record: str = RECORD) -> bytes:
    """Return what an honest host prints of a finished run."""
    return f"{run}\t{state}\t{code}\t\t\tyes\t{record}\n".encode()


def archive(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """Return an archive of files, or of members of any kind."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", format=tarfile.USTAR_FORMAT) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return content.getvalue()


def packed(run: Path) -> bytes:
    """Return the archive of a run."""
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    return archive(*((f"./{path.relative_to(run).as_posix()}", path.read_bytes()) for path in files))


def hostile_ssh(folder: Path, *, endless: str = "", drip: str = "", **answers: bytes) -> str:
    """Return what GATEKEEPER_SSH is set to for a host that gives these answers, and else those of an honest one."""
    from gatekeeper import __version__  # noqa: PLC0415 (the program below runs without it)
    from gatekeeper.core.rules import RULES  # noqa: PLC0415

    versions = f"gatekeeper {__version__};rules {RULES};python 3.12.1;"
    honest = {
        "list": job_line(),
        "versions": f"clock\t{time.time():.0f}\ngatekeeper\t/g\nversions\t{versions}\n".encode(),
        "folder": b"",
        "unpack": b"",
        "check": b'0\n{"complaints": [], "doubts": []}\n\n',
        "start": job_line("{run}", "running", ""),
        "follow": b"\n" + job_line("{run}"),
        "fetch": archive(),
        "mark": b"",
        "remove": b"",
        "cancel": b"graceful\n",
    }
    config = folder / "answers.json"
    encoded = {kind: base64.b64encode(answer).decode() for kind, answer in (honest | answers).items()}
    config.write_text(json.dumps({"answers": encoded, "endless": endless, "drip": drip}))
    return shlex.join([sys.executable, "-I", "-S", __file__, str(config)])


def main() -> None:
    behaviour: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    size = re.search(r"count=(\d+)", sys.argv[-1])
    assert size is not None
    script = sys.stdin.buffer.read(int(size[1])).decode()
    kind = KINDS[script.rstrip().rpartition("\n")[2].partition(" ")[0]]
    mark, run = re.search(r"[0-9a-f]{32}", script), re.search(r"(?m)^run=(\S+)$", script)
    assert mark is not None
    sink = sys.stdout.buffer
    answer = base64.b64decode(behaviour["answers"][kind])
    if run is not None:
        answer = answer.replace(b"{run}", run[1].strip("'").encode())
    try:
        sink.write(f"\n{mark[0]}\n".encode())
        for piece in (answer[at : at + 1] for at in range(len(answer))) if behaviour["drip"] == kind else [answer]:
            sink.write(piece)
            sink.flush()
            time.sleep(0.05 if behaviour["drip"] == kind else 0)
        while behaviour["endless"] == kind:
            sink.write(answer)
            sink.flush()
        sys.stdin.buffer.read()
    except BrokenPipeError:
        os._exit(0)  # nobody listens any more


if __name__ == "__main__":
    main()
