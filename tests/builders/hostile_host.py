"""A remote host that lies: a program in ssh's place, which answers gatekeeper's requests with what a test wants.

    python hostile_host.py ANSWERS.json [whatever ssh is called with]

ANSWERS.json holds the frames of each answer: `[[header, content], ...]`, where a header that is a text is sent as it
is. The last frame of the request `endless` is repeated for ever, the answer to the request `drip` comes byte by byte,
and the files of its run are those of the folder `holds`.
"""

import hashlib
import json
import os
import shlex
import struct
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

RUN_ID = "2026-11-22T0900Z-little-0badc0de"
JOB = {
    "run_id": RUN_ID, "state": "finished", "started": "2026-11-22T09:00:00Z", "owner": "eve@evil", "argv": ["certify"],
    "label": {"command": ["certify"], "slo": "little"}, "exit": {"code": 0, "signal": None}, "progress_bytes": 1,
}  # fmt: skip
HELLO = {
    "agent": 1, "python": "3.11.2", "system": "Darwin", "machine": "arm64", "user": "eve",
    "home": "/home/eve/.gatekeeper", "free_bytes": 10**12, "capable_python": "/usr/bin/python3",
    "pythons": {"/usr/bin/python3": "3.11.2"}, "without_venv": [],
}  # fmt: skip
END = [{"end": True}, ""]


def reply(**fields: Any) -> list[Any]:
    """Return the frames of a reply."""
    return [[{"reply": fields}, ""]]


def items(*headers: Any, end: bool = True) -> list[Any]:
    """Return the frames of a reply in parts; an item may be a pair with its content."""
    return [
        [{"item": header[0]}, header[1]] if isinstance(header, tuple) else [{"item": header}, ""] for header in headers
    ] + ([END] if end else [])


def hostile_ssh(folder: Path, *, endless: str = "", drip: str = "", holds: Path | None = None, **answers: Any) -> str:
    """Return what GATEKEEPER_SSH is set to for a host that gives these answers, and else those of an honest one."""
    job = answers.pop("job", JOB)
    honest = {
        "hello": reply(**HELLO),
        "clock": reply(time_ns=time.time_ns()),
        "jobs": reply(jobs=[job]),
        "digest": reply(sha256=None),
        "follow": items({"offset": 0, "lines": [], "job": job}),
        "put": reply(),
        "link": reply(),
        "verify": reply(differing=[], installed=[]),
    }
    config = folder / "answers.json"
    behaviour = {"answers": honest | answers, "endless": endless, "drip": drip, "holds": str(holds or "")}
    config.write_text(json.dumps(behaviour))
    return shlex.join([sys.executable, "-I", "-S", __file__, str(config)])


def frame(header: Any, content: str) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode("utf-8", "surrogatepass")
    return struct.pack("!II", len(text), len(content)) + text + content.encode("latin-1")


def listed(run: Path) -> list[Any]:
    """Return the frames that list the files of a run."""
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    return items(
        *(
            {
                "name": path.relative_to(run).as_posix(),
                "size": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in files
        )
    )


def sent(run: Path, path: str) -> list[Any]:
    """Return the frames of one file of a run."""
    content = (run / path.partition("/run/")[2]).read_bytes().decode("latin-1")
    step = 1 << 17
    return items(*(({}, content[at : at + step]) for at in range(0, len(content), step)))


def answer(behaviour: dict[str, Any], request: dict[str, Any], sink: BinaryIO) -> None:
    verb, run = request["verb"], Path(behaviour["holds"])
    frames = behaviour["answers"].get(verb)
    if frames is None:
        frames = listed(run) if verb == "files" else sent(run, request["arguments"]["path"])
    for header, content in frames:
        raw = frame(header, content)
        for piece in (raw[at : at + 1] for at in range(len(raw))) if behaviour["drip"] == verb else [raw]:
            sink.write(piece)
            sink.flush()
            time.sleep(0.05 if behaviour["drip"] == verb else 0)
    while behaviour["endless"] == verb:
        sink.write(frame(*frames[-1]))
        sink.flush()


def main() -> None:
    document = json.loads(Path(sys.argv[1]).read_text())
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    source.read(int(source.readline()))
    sink.write(b"\ngatekeeper-agent " + source.readline().strip() + b"\n")
    sink.flush()
    try:
        while head := source.read(8):
            header, content = struct.unpack("!II", head)
            request = json.loads(source.read(header))
            source.read(content)
            if "verb" in request:
                last = request
            if "verb" not in request and request["more"] is not False:
                continue  # a piece of an upload
            if last["verb"] != "put" or "more" in request:
                answer(document, last, sink)
    except BrokenPipeError:
        os._exit(0)  # nobody listens any more


if __name__ == "__main__":
    main()
