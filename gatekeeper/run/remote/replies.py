"""The replies a remote host may give: their shape and limits. Everything it sends passes here before it is used.

Names become paths and numbers become sizes, so a name is a plain name, a number has a range, a text has a length and no
control characters, and keys that are not listed are dropped. The host decides nothing else about this machine.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from gatekeeper.core.manifest import Manifest
from gatekeeper.core.parse import ParseError, moment
from gatekeeper.core.text import printable, quote
from gatekeeper.run.remote.agent.state_folder import PLAIN

JOBS_MOST = 10_000
PACKAGES_MOST = 2_000
TEXT_MOST = 1 << 16
LINE_MOST = 1 << 12


def _run_id(text: str) -> str:
    """Accept what can be the name of a folder and nothing else."""
    if not PLAIN.fullmatch(text):
        raise ValueError("not a plain name")
    return text


def _instant(text: str) -> str:
    moment(text)
    return text


def _manifest(document: dict[str, Any]) -> dict[str, Any]:
    Manifest.model_validate(document)
    return document


def _lines(text: str) -> str:
    return printable(text, instead="")


def _one_line(text: str) -> str:
    return printable(text, instead="").replace("\n", " ")


RunId = Annotated[str, AfterValidator(_run_id)]
Text = Annotated[str, Field(max_length=TEXT_MOST), AfterValidator(_lines)]
Line = Annotated[str, Field(max_length=LINE_MOST), AfterValidator(_one_line)]
Path = Annotated[str, Field(max_length=LINE_MOST)]
Instant = Annotated[Line, AfterValidator(_instant)]
Version = Annotated[str, Field(pattern=r"^\d{1,4}\.\d{1,4}\.\d{1,4}$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Packages = Annotated[list[Line], Field(max_length=PACKAGES_MOST)]


class Reply(BaseModel):
    """One JSON object from a remote host."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Hello(Reply):
    """What that machine is; a capable Python is one of those it lists."""

    agent: Count
    python: Version
    system: Line
    machine: Line
    user: Line
    home: Path
    free_bytes: Count
    capable_python: Path | None
    pythons: dict[Path, Version]
    without_venv: list[Path]

    @model_validator(mode="after")
    def _is_listed(self) -> Self:
        if self.capable_python is not None and self.capable_python not in self.pythons:
            raise ValueError("capable_python is not among pythons")
        return self


class Label(Reply):
    """What this gatekeeper, or another one, noted about a run when it started it."""

    command: Annotated[list[Line], Field(max_length=1000)] = []
    slo: Line = ""
    parcel: Line = ""
    installed: Packages = []


class Ended(Reply):
    """How the process of a run ended."""

    code: Annotated[int, Field(ge=0, le=255)] | None
    signal: Annotated[int, Field(ge=1, le=128)] | None = None


class Cancelled(Reply):
    """Who ended a run, and when."""

    who: Line = ""
    at: Line = ""


class Job(Reply):
    """A run."""

    run_id: RunId
    state: Literal["running", "finished", "died", "rebooted"]
    started: Instant
    owner: Line
    argv: Annotated[list[Line], Field(max_length=1000)]
    label: Label | None = None
    exit: Ended | None = None
    cancelled: Cancelled | None = None
    progress_bytes: Count = 0
    log: Text = ""
    boot_id: Line = ""
    named: Annotated[list[Line], Field(max_length=1000)] = []
    """Names of the variables that were sent."""
    fetched_by: Line = ""
    """Who downloaded the run last; empty: no one, or it cannot be read."""


class Denial(Reply):
    """Why a request was denied."""

    kind: Annotated[str, Field(pattern="^[a-z_]{1,32}$")]
    message: Text
    job: Job | None = None


def _reply(**fields: Any) -> type[Reply]:
    return create_model("Reply", __base__=Reply, **fields)


class Facts(Reply):
    """What is compared with `[host]` of the SLO file."""

    chip: Line | None = None
    memory_bytes: Annotated[float, Field(ge=0)] | None = None
    os: Line | None = None
    power_source: Line | None = None


class Looked(Facts):
    """What a machine says of itself before anything is installed on it."""

    absent: Annotated[list[Path], Field(max_length=1000)] = []
    """Those of the named models that it does not have."""


NOTHING = _reply()
REPLIES: Mapping[str, type[Reply]] = {
    "hello": Hello,
    "facts": Looked,
    "clock": _reply(time_ns=(Count, ...)),
    "jobs": _reply(jobs=(Annotated[list[Job], Field(max_length=JOBS_MOST)], ...)),
    "start": Job,
    "digest": _reply(sha256=(Digest | None, ...)),
    "verify": _reply(differing=(Packages, ...), installed=(Packages, ...)),
    "remove": _reply(removed=(bool, ...)),
    "put": NOTHING,
    "link": NOTHING,
}
"""By the request."""
ITEMS: Mapping[str, type[Reply]] = {
    "follow": _reply(offset=(Count, ...), lines=(list[str], ...), job=(Job | None, None)),
    "files": _reply(name=(Path, ...), size=(Count, ...), sha256=(Digest, ...)),
    "get": NOTHING,
    "run": _reply(
        stream=(Literal["stdout", "stderr"] | None, None), code=(Annotated[int, Field(ge=-128, le=255)] | None, None)
    ),
    "install": _reply(line=(Text, ""), path=(Path | None, None), installed=(Packages, [])),
    "cancel": _reply(
        how=(Literal["ended", "graceful", "killed"] | None, None), killed=(list[Count], []), job=(Job | None, None)
    ),
}
"""Each item of a reply that comes in parts, by the request."""
LAST_HAS: Mapping[str, str] = {"follow": "job", "run": "code", "install": "path", "cancel": "job"}
"""A key that the last item must have."""


class Holding(Reply):
    """Who holds the lock of that host."""

    who: Line
    run: Line
    pid: Count
    since: Instant


class Refused(Reply):
    """Why the run would be refused there."""

    message: Text
    hint: Text


class RemoteModel(Reply):
    """A model on that host, or why there is none."""

    digest: Digest | None = None
    missing: Text | None = None
    hint: Text = ""


class Inventory(Reply):
    """What that host has for an SLO: the document of `gatekeeper remote inventory`."""

    host: Facts
    models: dict[str, RemoteModel]
    sleeps_after: Annotated[float, Field(ge=0)] | None = None
    occupant: Holding | None = None
    refused: Refused | None = None
    manifest: Annotated[dict[str, Any], AfterValidator(_manifest)] | None = None


class ProbedWorkload(Reply):
    """One workload of a probe."""

    model_config = ConfigDict(extra="allow")

    answer: Line
    because: Text
    acceptance_rate: float | None
    next: Text


class Probe(Reply):
    """The document of `gatekeeper try`; keys that are not printed stay as they are."""

    model_config = ConfigDict(extra="allow")

    slo: Line
    setting: dict[str, Any]
    seconds: Annotated[float, Field(ge=0)]
    workloads: dict[Line, ProbedWorkload]
    notes: list[Text]
    run: Line | None


def checked(kind: type[Reply], value: object) -> dict[str, Any]:
    """Return a reply as plain JSON without unknown keys; raise ParseError with the first thing that is wrong."""
    try:
        return kind.model_validate(value).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ParseError(quote(f"{where}: {first['msg']}" if where else first["msg"])) from error
