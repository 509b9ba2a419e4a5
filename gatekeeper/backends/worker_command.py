"""The commands of a worker: both arms' command lines, their places filled in and their programs found."""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.backends.launch import find_program
from gatekeeper.backends.worker_protocol import MANUAL
from gatekeeper.terms.errors import InputError

_PLACE = re.compile(r"\{(target|draft|port)\}")


@dataclass(frozen=True, slots=True)
class Commands:
    """The command lines of both arms, with their places still open."""

    drafting: tuple[str, ...]
    plain: tuple[str, ...] | None
    """None: the same program, whose words with {draft} are left out where there is no draft."""
    models: Mapping[str, Path]
    folder: Path
    """Where the programs run: the SLO file's folder, so that paths mean what they mean there."""

    def filled(self, target: str, draft: str | None) -> list[str]:
        """Return one arm's command line; raise InputError where its program is not here."""
        words = self.drafting if draft is not None or self.plain is None else self.plain
        if not (kept := [word for word in words if draft is not None or "{draft}" not in word]):
            raise InputError(f"`{' '.join(words)}` names no program once {{draft}} is left out", hint=MANUAL)
        places = {"target": str(self._model(target)), "draft": str(self._model(draft)) if draft else ""}
        filled = [_PLACE.sub(lambda place: places.get(place[1], place[0]), word) for word in kept]
        return [self._program(filled[0]), *filled[1:]]

    def told(self) -> dict[str, str]:
        """Return the command lines as written and the digests of the files they name, for the manifest."""
        told = {"command": " ".join(self.drafting)}
        if self.plain is not None:
            told["plain_command"] = " ".join(self.plain)
        for word in (*self.drafting, *(self.plain or ())):
            if not _PLACE.search(word) and (path := self.folder / word).is_file():
                with path.open("rb") as file:
                    told[f"file {word}"] = hashlib.file_digest(file, "sha256").hexdigest()
        return told

    def _model(self, name: str) -> Path:
        if name not in self.models:
            raise InputError(f"model '{name}' has no local folder", hint=f"fetch it: hf download {name}")
        return self.models[name]

    def _program(self, word: str) -> str:
        if "/" not in word:
            hint = "install it, or write its path with a slash: paths are relative to the SLO file"
            return find_program(word, install=hint)
        path = self.folder / word
        if not path.is_file():
            raise InputError(f"worker program {path} does not exist", hint="paths are relative to the SLO file")
        if not os.access(path, os.X_OK):
            hint = f"chmod +x {word}, or name its interpreter first, as in python3 {word}"
            raise InputError(f"worker program {path} is not executable", hint=hint)
        return str(path)
