"""The inputs of a remote run, laid out so that every path in the SLO means the same on the remote host."""

import os
import posixpath
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from gatekeeper.backends import facts_of, stored_models
from gatekeeper.backends.models import artifacts
from gatekeeper.core import toml_file
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.manifest import digest_of, sha256
from gatekeeper.core.system.files import HashCache, user_hash_cache
from gatekeeper.core.system.inputs import SLO_NAME, Inputs, find_canaries, find_profile
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.run.remote import host_scripts
from gatekeeper.run.remote.ssh import RemoteHost, ssh_words
from gatekeeper.run.remote.ssh_errors import RemoteScriptError, explain

ROOT = "inputs"
"""The folder of a job that holds the inputs."""


@dataclass(frozen=True, slots=True)
class UploadedModel:
    """A model that the SLO names by a relative path: it is uploaded, once, under the digest of its files."""

    name: str
    place: str
    """Where the SLO looks for it in the folder of the job."""
    digest: str
    folder: Path
    files: tuple[str, ...]
    is_folder: bool
    """False: GGUF files, each of which is named."""

    @property
    def bytes(self) -> int:
        """Return the size of its files."""
        return sum((self.folder / name).stat().st_size for name in self.files)

    def links(self) -> Iterator[tuple[str, str]]:
        """Yield the links that lead from the folder of a job to the uploaded model, each with its target."""
        uploaded = f"models/{self.digest}"
        if self.is_folder:
            yield self.place, uploaded
            return
        for name in self.files:
            yield posixpath.join(posixpath.dirname(self.place), name), f"{uploaded}/{name}"


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Everything that is copied for a run."""

    inputs: Inputs
    slo: str
    """Path of the SLO file in the folder of the job."""
    files: Mapping[str, bytes]
    """The contents by their place in the folder of the job."""
    programs: frozenset[str]
    """Which of the files may be executed."""
    models: tuple[UploadedModel, ...]

    @property
    def sha256(self) -> str:
        """Return one digest of all files and models."""
        digests = {place: sha256(content) for place, content in self.files.items()}
        return digest_of(digests | {model.place: model.digest for model in self.models})

    def write(self, folder: Path) -> None:
        """Write the files into *folder*, which becomes that of the job, with the links to the models."""
        for place, content in self.files.items():
            file = folder / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(0o755 if place in self.programs else 0o644)
        for model in self.models:
            for place, target in model.links():
                link = folder / place
                link.parent.mkdir(parents=True, exist_ok=True)
                above = "../" * (place.count("/") + 2)  # out of the folders in the job's, and of jobs/RUN
                link.symlink_to(f"{above}{target}")


def collect_inputs(slo_path: Path) -> RunInputs:
    """Read an SLO file and all that it names; a mistake in them, or a path that cannot be copied, is an InputError."""
    inputs = read_inputs(slo_path)
    content_by_name = dict(_named_files(inputs, slo_path))
    relative = [name for name in stored_models(inputs.slo.subject) if _is_local_path(name, inputs.base)]
    depth = max(posixpath.normpath(name).split("/").count("..") for name in (*content_by_name, *relative, ""))
    folders = inputs.base.resolve().parts[1:]
    if depth > len(folders):
        raise InputError(f"{slo_path}: a path leads above the root folder", hint="remove a `..` from it")
    # The folders keep their names, so that ../models/x and ../../project/models/x stay one place.
    base = posixpath.join(ROOT, *folders[len(folders) - depth :])
    slo = posixpath.join(base, slo_path.name)
    files, programs = {slo: _read(slo_path, slo_path)}, set()
    for name, content in content_by_name.items():
        place = posixpath.normpath(posixpath.join(base, name))
        if files.setdefault(place, content) != content:
            raise InputError(f"{slo_path}: two files would have the same path {place}", hint="rename one of them")
        if os.access(inputs.base / name, os.X_OK):
            programs.add(place)
    models = tuple(_local_model(name, inputs, base) for name in relative)
    return RunInputs(inputs, slo, files, frozenset(programs), models)


def _named_files(inputs: Inputs, slo_path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each file that is copied with the SLO, by its path relative to it."""
    slo, text = inputs.slo, inputs.texts[SLO_NAME]

    def relative(name: str, *key: str | int) -> str:
        if name.startswith(("/", "~")):
            where = f"{slo_path}: line {toml_file.line_of(text, key)}"
            hint = "write it relative to the SLO file: it is copied to the remote host"
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


def _is_local_path(name: str, base: Path) -> bool:
    """Return whether the SLO names a model by a relative path; any other model has to be on the remote host."""
    return not name.startswith(("/", "~")) and (name.startswith(".") or (base / name).exists())


def _local_model(name: str, inputs: Inputs, base: str) -> UploadedModel:
    try:
        path = artifacts.find(name, inputs.base, inputs.slo.subject.backend)
    except InputError as error:
        hint = "a model named by a relative path is uploaded; one that is on the remote host is named by its hub name "
        raise InputError(error.message, hint=f"{hint}or as ~/PATH") from error
    model = artifacts.freeze(name, path, HashCache(user_hash_cache()))
    folder = path if path.is_dir() else path.parent
    place = posixpath.normpath(posixpath.join(base, name))
    return UploadedModel(name, place, model.digest, folder, tuple(sorted(model.files)), is_folder=path.is_dir())


def _read(path: Path, slo_path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{slo_path}: cannot read {path}: {error.strerror}", hint="check the path") from error


def upload_inputs(host: RemoteHost, inputs: RunInputs, run_id: str) -> None:
    """Copy the inputs into the folder of the job, and the models to theirs; what is there already is skipped."""
    upload_files(host, inputs, run_id)
    upload_models(host, inputs)


def upload_files(host: RemoteHost, inputs: RunInputs, run_id: str) -> None:
    """Copy the SLO and the small files that it names into the folder of the job."""
    with tempfile.TemporaryDirectory(prefix="gatekeeper-inputs-") as folder:
        inputs.write(Path(folder))
        _copy(host, folder, f"jobs/{run_id}")


def upload_models(host: RemoteHost, inputs: RunInputs) -> None:
    """Copy the models that the SLO names by relative paths."""
    for model in inputs.models:
        with tempfile.TemporaryDirectory(prefix="gatekeeper-model-") as folder:
            for name in model.files:
                link = Path(folder, name)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to((model.folder / name).resolve())
            _copy(host, folder, f"models/{model.digest}", follow_links=True)


def _copy(host: RemoteHost, folder: str, target: str, *, follow_links: bool = False) -> None:
    """Copy the content of *folder* to *target* below ~/.gatekeeper by rsync; by tar where either side has none.

    After a broken connection rsync goes on where it stopped.
    """
    has_rsync = host.run(host_scripts.MAKE_FOLDER, {"target": target}, limit_s=60).strip() == "rsync"
    links = "--copy-links" if follow_links else "--links"
    # In the host part of an address rsync reads a colon as the end of the name.
    if has_rsync and which("rsync") is not None and ":" not in host.name:
        shell = " ".join(f"'{word}'" for word in ssh_words(alone=host.alone))
        options = ["-rpt", links, "--partial", "--timeout=120", "--rsync-path=cd ~ && rsync", "-e", shell]
        words = ["rsync", *options, f"{folder}/", f"{host.name}:.gatekeeper/{target}/"]
        ended = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            check=False,
            timeout=COPY_MOST_S,
        )
        if ended.returncode != 0:
            stderr = ended.stderr.decode(errors="replace")
            raise (
                explain(host.name, 255, stderr)
                if ended.returncode in LOST
                else RemoteScriptError(host.name, ended.returncode, stderr)
            )
        return
    words = ["tar", *(["-h"] if follow_links else []), "-C", folder, "-cf", "-", "."]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=os.environ | {"COPYFILE_DISABLE": "1"}) as archive:
        host.run(host_scripts.UNPACK, {"target": target}, limit_s=COPY_MOST_S, sent=archive.stdout)
    if archive.returncode != 0:
        raise GatekeeperError(f"tar ended with exit code {archive.returncode}", hint=f"check that {folder} can be read")


COPY_MOST_S = 24 * 3600.0
"""A model of a hundred gigabytes over a slow line takes hours."""
LOST = {10, 12, 30, 35, 255}
"""Exit codes of rsync for a connection that failed or broke."""


def check_environment(inputs: Inputs, names: Sequence[str]) -> dict[str, str]:
    """Return the variables that are sent; a key the SLO needs must be named, and a named one must be set."""
    slo = inputs.slo
    needed = {"subject.api_key_env": slo.subject.api_key_env, "telemetry.headers_env": slo.telemetry.headers_env}
    for where, name in needed.items():
        if name is not None and name not in names:
            message = f"{where} = '{name}': no environment variable is sent unless you name it"
            raise InputError(message, hint=f"add --send-env {name}")
    for name in names:
        if name not in os.environ or not name.isidentifier() or not name.isascii():
            hint = f"export {name}, or leave the option out"
            raise InputError(f"--send-env {name}: this variable is not set", hint=hint)
    return {name: os.environ[name] for name in names}
