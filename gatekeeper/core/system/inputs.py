"""The input files of a run: the SLO, its canaries and its soak profile, as text, parsed, and with their digests."""

import shlex
from codecs import BOM_UTF8
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from gatekeeper.core import canary, toml_file
from gatekeeper.core.canary import Canary
from gatekeeper.core.canary.filler import with_context
from gatekeeper.core.errors import InputError, OtherRulesError, did_you_mean, nearest_word
from gatekeeper.core.hidden_keys import hide_keys, key_in
from gatekeeper.core.manifest import File, Manifest, sha256
from gatekeeper.core.rules import RULES
from gatekeeper.core.slo import Profile, Slo, Workload
from gatekeeper.core.slo import parse as parse_slo
from gatekeeper.core.system import run_directory
from gatekeeper.core.system.files import MOST_BYTES, read_input

SLO_FILE = "SLO file"
SLO_NAME = "inputs/slo.toml"
PROFILE_NAME = "inputs/profile.toml"
CERTIFIED_NAME = "inputs/certified.json"
"""The copy of the figures of the certified run that a run is compared with."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Every file that a person wrote for a run."""

    slo: Slo
    canaries: dict[str, tuple[Canary, ...]]
    """The canaries of each workload."""
    profile: Profile
    base: Path
    """The folder that paths in the SLO are relative to."""
    texts: dict[str, str]
    """The text of every file, by its name in the run directory."""
    files: dict[str, File]
    """What the manifest records of them, by `slo`, `profile`, `workload NAME`."""


def read_text(path: Path, kind: str) -> str:
    """Return a file's text; a missing or unreadable one, a pipe and one over MOST_BYTES are an InputError.

    A byte order mark, which some editors of Windows write, is left out.
    """
    try:
        content = read_input(path, MOST_BYTES).removeprefix(BOM_UTF8)
        return content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        raise InputError(f"{kind} {path} does not exist", hint=_near(path, kind)) from None
    except UnicodeDecodeError as error:
        message = f"{kind} {path} is not UTF-8 at byte {error.start}"
        raise InputError(message, hint="name a text file, or save it as UTF-8") from error
    except IsADirectoryError as error:
        raise InputError(f"{kind} {path} is a folder", hint="name a file in it") from error
    except OSError as error:
        hint = "name a regular file that you may read"
        raise InputError(f"cannot read {kind} {path}: {error.strerror}", hint=hint) from error
    except ValueError as error:  # the path itself holds a NUL or half a character
        raise InputError(f"cannot read {kind} {str(path)!r}: {error}", hint="check the path") from error


def _near(path: Path, kind: str) -> str:
    """Return a hint for a file that does not exist: the file with a similar name in its folder, or a shipped one."""
    files = {file.stem: file for ending in ("toml", "jsonl") for file in path.parent.glob(f"*.{ending}")}
    if (name := nearest_word(path.stem, files)) is not None:
        return f"did you mean '{files[name]}'?"
    if kind == SLO_FILE:
        shipped = nearest_word(path.stem, (file.stem for file in shipped_folder("slos").glob("*.toml")))
        if shipped is not None:
            return f"did you mean '{shipped}'? It is a shipped SLO file"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "check the path, or write one: gatekeeper init" if kind == SLO_FILE else "check the path"


def read(path: Path) -> Inputs:
    """Read an SLO file and everything it names."""
    if (path / "config.json").is_file():
        hint = f"to write an SLO file for it, see which drafts fit: gatekeeper init --target {shlex.quote(str(path))}"
        raise InputError(f"{path} is the folder of a model, not an SLO file", hint=hint)
    run = run_directory.run_around(path)
    if run is not None and path != run / SLO_NAME:
        hint = f"the SLO file of that run is {run / SLO_NAME}"
        raise InputError(f"{path} is no SLO file: it is a part of the run {run}", hint=hint)
    text = read_text(path, SLO_FILE)
    slo = parse_slo(text, str(path))
    text = _without_keys(slo, text, str(path))
    base = path.parent
    texts, files = {SLO_NAME: text}, {"slo": File(name=_file_name(path), sha256=sha256(text))}
    canaries = {}
    for number, workload in enumerate(slo.workload):
        try:
            source = find_canaries(workload.canaries, base)
            content = read_text(source, "canary file")
        except InputError as error:
            line = toml_file.line_of(text, ("workload", number, "canaries"))
            where = f"{path}: line {line}: workload[{number + 1}].canaries"
            raise InputError(f"{where}: {error.message}", hint=error.hint) from error
        canaries[workload.name] = _prompts(slo, workload, content, str(source))
        texts[canary_name(workload.name)] = content
        count = len(canaries[workload.name])
        files[f"workload {workload.name}"] = File(
            name=_file_name(source), sha256=sha256(content), count=count, context=workload.context
        )
    try:
        source = find_profile(slo.soak.profile, base)
        content = read_text(source, "soak profile")
    except InputError as error:
        line = toml_file.line_of(text, ("soak", "profile"))
        raise InputError(f"{path}: line {line}: soak.profile: {error.message}", hint=error.hint) from error
    texts[PROFILE_NAME] = content
    files["profile"] = File(name=_file_name(source), sha256=sha256(content))
    profile = toml_file.parse(content, str(source), Profile, strict=True)
    _check_mix(profile, slo, source)
    return Inputs(slo, canaries, profile, base, texts, files)


def _prompts(slo: Slo, workload: Workload, text: str, name: str) -> tuple[Canary, ...]:
    """Return a workload's canaries, as many and as long as the SLO says, with its penalties where they set none."""
    checked = sha256(text) in _shipped_digests()
    prompts = with_context(canary.parse(text, name, checked=checked)[: workload.first], workload.context)
    written = {name: getattr(slo.sampling, name) for name in canary.PENALTIES}
    penalties = {name: value for name, value in written.items() if value is not None}
    return tuple(prompt.model_copy(update=penalties | prompt.options) for prompt in prompts) if penalties else prompts


@lru_cache(maxsize=1)
def _shipped_digests() -> frozenset[str]:
    """Return the SHA-256 of each shipped canary set, as `sha256sum` wrote them: our tests check these sets."""
    lines = (shipped_folder("canaries") / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition(" ")[0] for line in lines)


def _without_keys(slo: Slo, text: str, name: str) -> str:
    """Return the text of *slo* as it is stored, with the keys in its addresses hidden; one in a command is refused."""
    _refuse_keys(slo, name)
    addresses = (slo.subject.url, slo.subject.plain_url, slo.telemetry.endpoint)
    hidden = hide_keys(text, (address for address in addresses if address is not None))
    if hidden != text and parse_slo(hidden, name) != slo:
        message = f"{name}: a key stands in an address that is not a url, plain_url or endpoint, and would be recorded"
        raise InputError(message, hint="pass it to the program in an environment variable")
    return hidden


def _refuse_keys(slo: Slo, name: str) -> None:
    """Raise InputError for a key in a command: the SLO is stored as it is written, in every run directory."""
    commands = {key: getattr(slo.subject, key) or () for key in ("command", "plain_command", "program", "args")}
    commands |= {f"knobs.{knob}.argv": place.argv or () for knob, place in slo.subject.knobs.items()}
    for key, words in commands.items():
        if (option := key_in(words)) is not None:
            raise InputError(
                f"{name}: subject.{key} gives {option} a key, which every run directory would keep",
                hint="set the variable that the program reads, such as LLAMA_API_KEY or VLLM_API_KEY, or start it with "
                'command = ["sh", "-c", "exec serve --api-key $KEY --port {port}"]; for requests: subject.api_key_env',
            )


def _file_name(path: Path) -> str:
    """Return a file's name as text, with `?` for bytes that are none."""
    return path.name.encode("utf-8", "replace").decode()


def find_slo_file(run_dir: Path, slo_path: Path | None) -> tuple[Path, str]:
    """Return path and text of a run's SLO file: *slo_path*, else the run's copy or a file here with the same text.

    Looked for in the current folder, in the one that holds the folder of runs, and in `slos` of both.
    """
    if slo_path is not None:
        return slo_path, read_text(slo_path, "SLO file")
    copy = run_dir / SLO_NAME
    text = read_text(copy, "SLO file")
    parent = run_dir.parent.parent
    for folder in dict.fromkeys((Path(), Path("slos"), parent, parent / "slos")):
        for path in sorted(folder.glob("*.toml")):
            with suppress(OSError, InputError):  # skip files that cannot be read
                content = read_input(path, MOST_BYTES).removeprefix(BOM_UTF8).decode(errors="replace")
                if content != text and "hidden-" in text:
                    content = _without_keys(parse_slo(content, str(path)), content, str(path))
                if content == text:
                    return path, text
    return copy, text


def canary_name(workload: str) -> str:
    """Return the name of a workload's canaries in the run directory."""
    return f"inputs/canaries-{workload}.jsonl"


def _check_mix(profile: Profile, slo: Slo, source: Path) -> None:
    """Raise InputError if a profile leaves out a workload of the SLO, or names a tier that no workload has."""
    idle = [workload.name for workload in slo.workload if profile.weight(workload.name, workload.tier) <= 0]
    if idle:
        message = f"{source}: mix gives {', '.join(idle)} no weight, so the soak would never send it a request"
        raise InputError(message, hint="add a weight for it, or remove it from the SLO")
    absent = sorted(set(profile.tiers) - {workload.tier for workload in slo.workload})
    if absent:
        message = f"{source}: mix names the tier {', '.join(absent)}, which no workload of the SLO has"
        raise InputError(message, hint=f'set tier = "{absent[0]}" on a workload, or choose another profile')


def shipped_folder(folder: str) -> Path:
    """Return a folder of the data that ships with gatekeeper: in the wheel, or beside the package in a checkout."""
    package = Path(__file__).parents[2]
    inside = package / "data" / folder
    return inside if inside.is_dir() else package.parent / folder


def find_canaries(name: str, base: Path) -> Path:
    """Return a canary file: a path relative to the SLO, or a set by its name: the project's own, or a shipped one."""
    written = base / name
    if name.endswith(".jsonl") or (written.exists() and not written.is_dir()):
        return written
    places = (base, base / "canaries", base.parent / "canaries", shipped_folder("canaries"))
    return _find_by_name(name, ".jsonl", "canary set", places)


def find_profile(name: str, base: Path) -> Path:
    """Return a profile's file: a path relative to the SLO, a project's own by its name, or a shipped one."""
    if name.endswith(".toml"):
        return base / name
    places = (base / "profiles", base.parent / "soak" / "profiles", shipped_folder("soak/profiles"))
    return _find_by_name(name, ".toml", "soak profile", places)


def _find_by_name(name: str, suffix: str, kind: str, places: Sequence[Path]) -> Path:
    for place in places:
        if (place / f"{name}{suffix}").is_file():
            return place / f"{name}{suffix}"
    shipped = places[-1]
    names = {path.relative_to(shipped).with_suffix("").as_posix() for path in shipped.rglob(f"*{suffix}")}
    names |= {path.stem for place in places[:-1] if place.is_dir() for path in place.glob(f"*{suffix}")}
    looked = ", ".join(str(place) for place in {place.resolve(): place for place in places[:-1]}.values())
    hint = f"{did_you_mean(name, names)}; looked for {name}{suffix} in {looked} and among the shipped ones"
    raise InputError(f"unknown {kind} '{name}'", hint=hint)


def load_manifest(content: bytes) -> Manifest:
    """Parse manifest.json; one of other rules is an OtherRulesError, a newer or a damaged one an InputError."""
    document = run_directory.parse_json(content, "manifest.json")
    # Before the rest is parsed: whatever other rules froze, it must not be read as if it were ours.
    if (rules := document.get("rules")) != RULES:
        stated = f"planned by rules {rules}" if rules is not None else "planned by rules that it does not state"
        message = f"manifest.json: the run was {stated}, and this gatekeeper judges by rules {RULES}"
        hint = "certify again: a run is judged by its own rules alone"
        raise OtherRulesError(message, hint=hint, frozen_at=str(document.get("frozen_at", "")))
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        hint = "restore it from a copy of the run"
        raise InputError(f"manifest.json: damaged: {where}: {first['msg']}", hint=hint) from error


def stored_inputs(directory: run_directory.RunDirectory, manifest: Manifest) -> tuple[Inputs, list[str]]:
    """Read the copies that a run directory keeps; also name those that differ from the manifest's checksums."""
    names = [SLO_NAME, PROFILE_NAME, *(canary_name(name) for name in manifest.canaries)]
    texts = {name: directory.text(name) for name in names}
    slo = parse_slo(texts[SLO_NAME], SLO_NAME)
    frozen = {SLO_NAME: manifest.slo, PROFILE_NAME: manifest.profile}
    canaries = {}
    for workload in slo.workload:
        name = canary_name(workload.name)
        canaries[workload.name] = _prompts(slo, workload, texts[name], name)
        frozen[name] = manifest.canaries[workload.name]
    changed = [name for name, text in texts.items() if name not in frozen or sha256(text) != frozen[name].sha256]
    profile = toml_file.parse(texts[PROFILE_NAME], PROFILE_NAME, Profile)
    files = {"slo": manifest.slo, "profile": manifest.profile}
    files |= {f"workload {name}": file for name, file in manifest.canaries.items()}
    return Inputs(slo, canaries, profile, directory.path / "inputs", texts, files), [
        f"{name} was changed after the run was frozen" for name in changed
    ]
