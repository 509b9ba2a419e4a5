"""The hosts file of a fleet: the names of its hosts, and how ssh reaches them."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from gatekeeper.core import toml_file
from gatekeeper.core.errors import InputError


class _HostsTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class HostSettings(_HostsTable):
    """One remote host."""

    ssh: str | None = Field(default=None, min_length=1, description="its ssh address; default: its name in this file")
    why: str = ""


class Hosts(_HostsTable):
    """The whole file."""

    schema_: int = Field(default=1, alias="schema", ge=1, le=1)
    host: dict[str, HostSettings] = {}


HOSTS_HINT = "check the path of --hosts; soak/hosts.example.toml shows what a hosts file holds"


def read(file: Path) -> Hosts:
    """Read a hosts file; a mistake in it is an InputError with its line."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"cannot read hosts file {file}: {reason}", hint=HOSTS_HINT) from error
    return toml_file.parse(text, str(file), Hosts)
