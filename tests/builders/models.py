"""Models in a home folder, stored as Hugging Face, LM Studio and Ollama do."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parents[2] / "models"
_KIND = "application/vnd.ollama.image."


def hub(home: Path, name: str, source: Path) -> Path:
    """Put the folder *source* into the hub cache of *home* as ORG/NAME: blobs, a snapshot of links, a reference."""
    root = home / ".cache" / "huggingface" / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("0123abc")
    for file in [source] if source.is_file() else sorted(source.iterdir()):
        blob = root / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copyfile(file, blob)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    return snapshot


def lm_studio(home: Path, name: str, source: Path, models: str = ".lmstudio/models") -> Path:
    """Put a folder or a file into LM Studio's models as PUBLISHER/NAME."""
    folder = home / models / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, folder)
        return folder
    folder.mkdir(exist_ok=True)
    return Path(shutil.copyfile(source, folder / source.name))


def ollama(models: Path, place: str, layers: dict[str, bytes], *, prefix: str = _KIND) -> Path:
    """Put blobs and a manifest at HOST/NAMESPACE/MODEL/TAG; a kind may stand with a suffix after a blank."""
    (models / "blobs").mkdir(parents=True, exist_ok=True)
    written: list[dict[str, Any]] = []
    for kind, content in layers.items():
        digest = hashlib.sha256(content).hexdigest()
        (models / "blobs" / f"sha256-{digest}").write_bytes(content)
        media = prefix + kind.partition(" ")[0]
        written.append({"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)})
    manifest = models / "manifests" / place
    manifest.parent.mkdir(parents=True, exist_ok=True)
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest.write_text(json.dumps({"schemaVersion": 2, "mediaType": kind, "layers": written}))
    return manifest
