"""Uploading the inputs of a run, laid out so that every path in the SLO means the same on the remote host."""

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from gatekeeper.backends import facts_of, stored_models
from gatekeeper.backends.models import artifacts
from gatekeeper.core import toml_file
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import Model, digest_of, sha256
from gatekeeper.core.system.file_digests import HashCache, user_hash_cache
from gatekeeper.core.system.inputs import SLO_NAME, Inputs, find_canaries, find_profile
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.units import show_bytes
from gatekeeper.run.remote.reconnect import Say
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.ssh_errors import AgentError

ROOT = "inputs"
"""The folder of a job that holds the inputs."""
ATTEMPTS = 4
"""How often one file is sent or requested: a connection that damages it so often will not transfer it."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """One model of the SLO, as this machine has it."""

    name: str
    place: str | None
    """Where the SLO looks for it in the job's folder; None where it is not named by a relative path."""
    model: Model | None
    """None: this machine does not have it."""
    path: Path | None = None
    mapped: str | None = None
    """Its path on the remote host, by the hosts file."""
    shippable: bool = False
    """It is on this machine, and an upload is the only way for the remote host to get it."""

    def contents(self) -> Iterator[tuple[str, str, Path]]:
        """Yield the name, digest and path of each of its files."""
        if self.model is not None and self.path is not None:
            folder = self.path if self.path.is_dir() else self.path.parent
            for name, digest in sorted(self.model.files.items()):
                yield name, digest, folder / name

    @property
    def remote_folder(self) -> str:
        """Return the folder it is uploaded to."""
        return f"models/{self.model.digest if self.model is not None else ''}"

    @property
    def complete(self) -> str:
        """Return the file that is written when all of it is uploaded."""
        return f"{self.remote_folder}.complete"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything a run is made from."""

    inputs: Inputs
    slo: str
    """Path of the SLO file in the job's folder."""
    files: Mapping[str, bytes]
    """By their place in the job's folder."""
    models: tuple[NamedModel, ...]
    programs: frozenset[str] = frozenset()
    """Which of the files may be executed."""
    run: Mapping[str, tuple[Path, str]] = field(default_factory=dict)
    """The files of the certified run that is uploaded with them and their digests, by their place."""

    @property
    def sha256(self) -> str:
        """Return one digest of all files; models have their own."""
        digests = {name: sha256(content) for name, content in self.files.items()}
        return digest_of(digests | {name: digest for name, (_, digest) in self.run.items()})


def pack(slo_path: Path, mapped: Mapping[str, str] | None = None) -> Bundle:
    """Read an SLO file and all files it names; a mistake in them, or a path that cannot be uploaded, is an InputError.

    *mapped* are the remote paths of models in the hosts file, by their names in the SLO.
    """
    inputs = read_inputs(slo_path)
    files_of_slo = dict(_named_files(inputs, slo_path))
    subject = inputs.slo.subject
    models = [name for name in (subject.target, *subject.drafts) if not _is_absolute(name)]
    depth = max(posixpath.normpath(name).split("/").count("..") for name in (*files_of_slo, *models, ""))
    folders = inputs.base.resolve().parts[1:]
    if depth > len(folders):
        raise InputError(f"{slo_path}: a path leads above the root folder", hint="remove a `..` from it")
    # The folders keep their names, so that ../models/x and ../../project/models/x stay one place.
    base = posixpath.join(ROOT, *folders[len(folders) - depth :])
    slo = posixpath.join(base, slo_path.name)
    files, programs = {slo: _read(slo_path, slo_path)}, set()
    for name, content in files_of_slo.items():
        place = posixpath.normpath(posixpath.join(base, name))
        if files.setdefault(place, content) != content:
            raise InputError(f"{slo_path}: two files would have the same path {place}", hint="rename one of them")
        if os.access(inputs.base / name, os.X_OK):
            programs.add(place)
    return Bundle(inputs, slo, files, tuple(_local_models(inputs, base, mapped or {})), frozenset(programs))


def _named_files(inputs: Inputs, slo_path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each file that is uploaded with the SLO, by its path relative to it."""
    slo, text = inputs.slo, inputs.texts[SLO_NAME]

    def relative(name: str, *key: str | int) -> str:
        if _is_absolute(name):
            where = f"{slo_path}: line {toml_file.line_of(text, key)}"
            hint = "write it relative to the SLO file: it is uploaded"
            raise InputError(f"{where}: '{name}' is an absolute local path", hint=hint)
        return name

    for number, workload in enumerate(slo.workload):
        name = relative(workload.canaries, "workload", number, "canaries")
        source = find_canaries(name, inputs.base)
        # A set that is named, like a profile, is put where it is searched first.
        yield name if source == inputs.base / name else f"{name}.jsonl", _read(source, slo_path)
    profile = slo.soak.profile
    # The first place a profile is searched in, so that the remote run uses this one, whatever gatekeeper ships.
    place = relative(profile, "soak", "profile") if profile.endswith(".toml") else f"profiles/{profile}.toml"
    yield place, _read(find_profile(profile, inputs.base), slo_path)
    subject = slo.subject
    if subject.script is not None:
        name = relative(subject.script, "subject", "script")
        yield name, _read(inputs.base / name, slo_path)
    if facts_of(subject.backend).commands_name_files:
        for word in (*(subject.command or ()), *(subject.plain_command or ()), *subject.args):
            path = inputs.base / word
            if "{" not in word and not Path(word).is_absolute() and path.is_file():
                yield word, _read(path, slo_path)


def _local_models(inputs: Inputs, base: str, mapped: Mapping[str, str]) -> Iterator[NamedModel]:
    hashes = HashCache(user_hash_cache())
    for name in stored_models(inputs.slo.subject):
        place = None if _is_absolute(name) else posixpath.normpath(posixpath.join(base, name))
        elsewhere = mapped.get(name)
        try:
            path = artifacts.find(name, inputs.base, inputs.slo.subject.backend)
        except InputError:
            yield NamedModel(name, place, None, mapped=elsewhere)
        else:
            by_path = (inputs.base / name).expanduser().exists() or name.startswith((".", "/", "~"))
            shippable = place is not None and elsewhere is None and by_path
            yield NamedModel(name, place, artifacts.freeze(name, path, hashes), path, elsewhere, shippable)


def _is_absolute(name: str) -> bool:
    return name.startswith(("/", "~"))


def _read(path: Path, slo_path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{slo_path}: cannot read {path}: {error.strerror}", hint="check the path") from error


def named_environment(bundle: Bundle, names: Sequence[str]) -> dict[str, str]:
    """Return the variables that are sent; a key the SLO needs must be named, and a named one must be set."""
    slo = bundle.inputs.slo
    needed = {"subject.api_key_env": slo.subject.api_key_env, "telemetry.headers_env": slo.telemetry.headers_env}
    for where, name in needed.items():
        if name is not None and name not in names:
            message = f"{where} = '{name}': no environment variable is sent unless you name it"
            raise InputError(message, hint=f"add --send-env {name}")
    for name in names:
        if name not in os.environ:
            hint = f"export {name}, or leave the option out"
            raise InputError(f"--send-env {name}: this variable is not set", hint=hint)
    return {name: os.environ[name] for name in names}


def folder(run_id: str) -> str:
    """Return the folder of a job below the state folder."""
    return f"jobs/{run_id}"


def missing_models(connection: Connection, bundle: Bundle) -> list[NamedModel]:
    """Return the models that have to be uploaded and are not on the remote host yet."""
    return [model for model in bundle.models if model.shippable and connection.digest(model.complete) is None]


def size(models: Sequence[NamedModel]) -> int:
    """Return how many bytes the models have."""
    return sum(path.stat().st_size for model in models for _, _, path in model.contents())


def upload_models(connection: Connection, models: Sequence[NamedModel], say: Say) -> None:
    """Upload models, each file once, by the digest of the whole."""
    for model in models:
        say(f"model {model.name}", f"uploading {show_bytes(size([model]))}")
        for name, digest, path in model.contents():
            upload_file(connection, f"{model.remote_folder}/{name}", path, digest)
        stamp = model.name.encode()
        upload_file(connection, model.complete, stamp, sha256(stamp))


def upload_inputs(connection: Connection, bundle: Bundle, run_id: str) -> None:
    """Upload the bundle into the job's folder, and link to the models that the remote host has already."""
    for place, content in bundle.files.items():
        mode = 0o755 if place in bundle.programs else 0o644
        upload_file(connection, f"{folder(run_id)}/{place}", content, sha256(content), mode=mode)
    for place, (path, digest) in bundle.run.items():
        upload_file(connection, f"{folder(run_id)}/{place}", path, digest)
    for model in bundle.models:
        link = f"{folder(run_id)}/{model.place}"
        if model.mapped is not None and model.place is not None:
            connection.request("link", path=link, to=model.mapped)
        elif model.shippable and connection.digest(model.complete):
            if model.path is not None and model.path.is_dir():
                connection.request("link", path=link, to=model.remote_folder)
            else:  # a GGUF file, or all parts of a split one
                for name, _, _ in model.contents():
                    place = posixpath.join(posixpath.dirname(link), name)
                    connection.request("link", path=place, to=f"{model.remote_folder}/{name}")


def upload_file(connection: Connection, place: str, content: bytes | Path, digest: str, *, mode: int = 0o644) -> None:
    """Upload a file unless the remote host has it; one that arrives damaged is uploaded again."""
    if connection.digest(place) == digest:
        return
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with content.open("rb") if isinstance(content, Path) else BytesIO(content) as source:
                connection.upload(place, source, sha256=digest, mode=mode)
        except AgentError as error:
            if error.kind != "damaged" or attempt == ATTEMPTS:
                raise
        else:
            return
