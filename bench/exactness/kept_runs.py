"""Runs of the bench on disk, so that other rules judge the same answers without writing them again."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.exactness.evidence import LittlePair, Run
from bench.exactness.many_answers import Written

PAIR = "pair"


class _Writer(pickle.Pickler):
    """Leaves out the models and plain decoding's answers, which every run has in common."""

    def __init__(self, file: Any, pair: LittlePair) -> None:
        super().__init__(file)
        self._pair, self._numbers = pair, {id(written): number for number, written in enumerate(pair.plain)}

    def persistent_id(self, value: Any) -> Any:
        """Return what stands for *value*; None: it is written."""
        if value is self._pair:
            return PAIR
        return self._numbers.get(id(value)) if isinstance(value, Written) else None


class _Reader(pickle.Unpickler):
    def __init__(self, file: Any, pair: LittlePair) -> None:
        super().__init__(file)
        self._pair = pair

    def persistent_load(self, pid: Any) -> Any:
        """Return what *pid* stands for."""
        return self._pair if pid == PAIR else self._pair.plain[pid]


def kept_run(folder: Path | None, name: str, pair: LittlePair, make: Callable[[], Run]) -> Run:
    """Return the run that *folder* has under *name*; make and keep it there where it has none. The folder is ours."""
    if folder is None:
        return make()
    path = folder / f"{name}.pickle"
    if path.exists():
        with path.open("rb") as file:
            return _Reader(file, pair).load()  # type: ignore[no-any-return]
    run = make()
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        _Writer(file, pair).dump(run)
    part.replace(path)
    return run
