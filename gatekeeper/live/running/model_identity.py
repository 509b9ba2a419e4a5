"""Model identity: whether the server runs the certified models, by its process, files and reported names."""

from collections.abc import Iterable, Mapping, Sequence
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Any

from gatekeeper.backends.http import control_requests
from gatekeeper.backends.listening_process import ListeningProcess, find_process
from gatekeeper.backends.models import artifacts, model_stores
from gatekeeper.backends.models.artifacts import Hashes
from gatekeeper.core.errors import InputError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.system.own_limits import check_own_limit
from gatekeeper.core.text import quote

_NAMELESS = frozenset({"default_model", "default", ""})
"""Placeholders that servers report in place of a model name."""


def models_on_command_line(process: ListeningProcess, hashes: Hashes) -> dict[str, str]:
    """Return the digest of every model on the command line, by its word.

    A folder or file that looks like a model but cannot be read has the digest "".
    """
    digests: dict[str, str] = {}
    for word in _words(process.argv):
        path = _model_at(word, process.folder)
        if path is not None:
            try:
                digests[word] = artifacts.freeze(word, path, hashes).digest
            except (InputError, OSError) as error:
                _check_own_limit_behind(error)
                digests[word] = ""
    return digests


def _check_own_limit_behind(error: Exception) -> None:
    """Raise OwnLimitError where a model cannot be read for a limit of ours: then the server is not to blame."""
    for cause in filter(None, (error, error.__cause__, error.__context__)):
        check_own_limit(cause)


def _words(argv: Sequence[str]) -> Iterable[str]:
    """Yield the arguments of a command line that may be paths, and the values after the = of options."""
    for word in argv[1:]:
        if not word.startswith("-"):
            yield word
        elif "=" in word:
            yield word.partition("=")[2]


def _model_at(word: str, folder: Path | None) -> Path | None:
    try:
        path = Path(word).expanduser()
        path = path if folder is None else folder / path
        if (path / "config.json").is_file() and next(path.glob("*.safetensors"), None) is not None:
            return path.resolve()
        if path.suffix == ".gguf" and path.is_file():
            return path
    except (OSError, ValueError, RuntimeError):  # not a path
        return None
    parts = word.split("/")
    if len(parts) == 2 and all(parts) and parts[0] not in {".", "..", "~"}:
        return model_stores.in_hub_cache(word)
    return None


def uncertified_model(manifest: Manifest, models: dict[str, str]) -> str | None:
    """Return which model on the server's command line was not certified; None if all were."""
    certified = {model.digest for model in (manifest.target, *manifest.drafts) if model is not None}
    for word, digest in models.items():
        if digest not in certified:
            difference = f"has the digest {digest[:12]}" if digest else "cannot be read as a model"
            return f"the server was started with {word}, which was not certified: it {difference}"
    if models and manifest.target is not None and manifest.target.digest not in models.values():
        return f"the server was started without the certified target '{manifest.target.name}'"
    return None


def drafting_plain(manifest: Manifest, url: Address, hashes: Hashes) -> str | None:
    """Return why the server at *url* cannot be the plain one, as far as its command line shows; None if it may be."""
    process = find_process(url)
    models = {} if process is None else models_on_command_line(process, hashes)
    drafts = {draft.digest for draft in manifest.drafts} - {manifest.target.digest if manifest.target else None}
    for word, digest in models.items():
        if digest in drafts:
            return f"the server was started with the draft {word}"
    return uncertified_model(manifest, models)


def changed_on_disk(manifest: Manifest, paths: Mapping[str, Path], hashes: Hashes) -> str | None:
    """Return which certified model changed on disk; None if all in *paths* are unchanged."""
    for model in (manifest.target, *manifest.drafts):
        if model is None or model.name not in paths:
            continue
        try:
            digest = artifacts.freeze(model.name, paths[model.name], hashes).digest
        except (InputError, OSError) as error:
            _check_own_limit_behind(error)
            return f"'{model.name}' cannot be read: {getattr(error, 'message', error)}"
        if digest != model.digest:
            return f"'{model.name}' changed on disk: digest {digest[:12]}, certified {model.digest[:12]}"
    return None


def model_name(name: str | None) -> str | None:
    """Return a model's name without its folder: servers report a path, a hub id, a file, or nothing (None)."""
    last = (name or "").rstrip("/").rpartition("/")[2].lower().removesuffix(".gguf")
    return None if last in _NAMELESS else last


def other_name(reported: str | None, certified: frozenset[str]) -> str | None:
    """Return that the server reports another model name; None for a *certified* name, or for no name."""
    name = model_name(reported)
    if name is None or not certified or name in certified:
        return None
    return f"the server reports the model '{reported}', certified: {' or '.join(sorted(certified))}"


def listed_model(document: str | None) -> str | None:
    """Return the name of the only model that a server lists under /v1/models; None if it lists none or several."""
    try:
        names = [quote(str(model["id"])) for model in loads(document or "{}").get("data") or ()]
    except (JSONDecodeError, AttributeError, KeyError, TypeError):
        return None
    return names[0] if len(names) == 1 else None


class ModelIdentity:
    """Compares files and processes at the start and after each restart of the server, and names with every answer."""

    def __init__(
        self,
        manifest: Manifest,
        *,
        url: Address | None,
        paths: Mapping[str, Path],
        names: frozenset[str],
        hashes: Hashes,
    ) -> None:
        """Check the server at *url*; *paths* are the certified models on this machine, *names* its allowed names."""
        self._manifest, self._url, self._paths = manifest, url, dict(paths)
        self._names, self._hashes = names, hashes
        self.process: ListeningProcess | None = None
        """The one that the last check found."""
        self._models: dict[str, str] = {}
        self._named = False
        self._due = True
        self.restarted = False
        """Whether the last check found a server that had just started."""

    @property
    def seen(self) -> bool:
        """Return whether the server shows its models: on its command line, or by name."""
        return bool(self._models) or self._named

    @property
    def target_path(self) -> Path | None:
        """Return where the certified target is stored on this machine; None where it is not."""
        target = self._manifest.target
        return None if target is None else self._paths.get(target.name)

    def pids(self) -> tuple[int, ...]:
        """Return the server's process id, if it runs on this machine."""
        return (self.process.pid,) if self.process is not None else ()

    def check(self) -> str | None:
        """Return why the server does not run the certified models; None if no difference was found."""
        before = self.process
        self.process = now = None if self._url is None else find_process(self._url, before)
        started = now is not None and (before is None or before.start != now.start)
        self._due, self.restarted = False, self._due or started
        if not self.restarted:
            return None
        self._models = {} if now is None else models_on_command_line(now, self._hashes)
        return (
            uncertified_model(self._manifest, self._models)
            or changed_on_disk(self._manifest, self._paths, self._hashes)
            or other_name(self._listed_name(), self._names)
        )

    def _listed_name(self) -> str | None:
        if self._url is None:
            return None
        name = listed_model(control_requests.fetch(self._url.at("/v1/models"), {}))
        self._named = self._named or (bool(self._names) and model_name(name) is not None)
        return name

    def check_answer(self, name: str | None, *, sound: bool) -> str | None:
        """Return that an answer reports another model *name*; after a fault the next check compares everything."""
        self._due = self._due or not sound
        if not sound:
            return None
        name = None if name is None else quote(name)
        plain_name = model_name(name)
        self._named = self._named or (bool(self._names) and plain_name is not None)
        if plain_name is not None and not self._names:
            # The certified name is unknown: the first reported name must stay the same.
            self._names = frozenset({plain_name})
        return other_name(name, self._names)

    def document(self) -> dict[str, Any]:
        """Return what is known about the models that the server runs."""
        return {
            "pid": self.process.pid if self.process is not None else None,
            "started_with": sorted(self._models),
            "on_disk": sorted(self._paths),
            "names": sorted(self._names),
        }

    def describe(self) -> str:
        """Return the document as one line of text."""
        parts = [f"process {self.process.pid}"] if self.process is not None else []
        parts += [f"started with {', '.join(sorted(self._models))}"] if self._models else []
        parts += [f"{', '.join(sorted(self._paths))} on disk as certified"] if self._paths else []
        parts += [f"model name {' or '.join(sorted(self._names))}"] if self._names else []
        return f"server: {'; '.join(parts)}" if parts else "cannot determine which model is serving"
