"""The hosts file: names of remote hosts, and where they keep what a run needs."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gatekeeper.core import toml_file
from gatekeeper.core.errors import InputError

PLACES = (Path("soak/hosts.toml"), Path("~/.config/gatekeeper/hosts.toml"))
"""Where hosts are looked up where no file is named; only the first that exists is read."""


class _HostsTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class HostSettings(_HostsTable):
    """One remote host."""

    ssh: str | None = Field(default=None, min_length=1, description="its ssh address; default: its name in this file")
    home: str | None = Field(default=None, min_length=1, description="where it keeps runs; default ~/.gatekeeper")
    python: str | None = Field(default=None, min_length=1, description="the Python that environments are made with")
    environment: str | None = Field(
        default=None, min_length=1, description="an existing environment that holds the same gatekeeper"
    )
    models: dict[str, str] = Field(default={}, description="remote paths of models, by their names in the SLO")
    why: str = ""

    @field_validator("models")
    @classmethod
    def _absolute(cls, models: dict[str, str]) -> dict[str, str]:
        for name, path in models.items():
            if not path.startswith(("/", "~")):
                raise ValueError(f"'{name}' = '{path}': write an absolute path, or one that begins with ~/")
        return models


class Hosts(_HostsTable):
    """The whole file."""

    schema_: int = Field(default=1, alias="schema", ge=1, le=1)
    host: dict[str, HostSettings] = {}


def find(name: str, file: Path | None) -> tuple[str, HostSettings]:
    """Return the ssh address of host *name* and its table; a name that is not in the file is an ssh address."""
    if file is None:
        file = next((place.expanduser() for place in PLACES if place.expanduser().is_file()), None)
    if file is None:
        return name, HostSettings()
    hosts = read(file).host
    host = hosts.get(name, HostSettings())
    return host.ssh or name, host


HOSTS_HINT = "check the path of --hosts; soak/hosts.example.toml shows what a hosts file holds"


def read(file: Path) -> Hosts:
    """Read a hosts file; a mistake in it is an InputError with its line."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"cannot read hosts file {file}: {why}", hint=HOSTS_HINT) from error
    return toml_file.parse(text, str(file), Hosts)
