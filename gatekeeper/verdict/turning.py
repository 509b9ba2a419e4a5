"""The turning point: at which concurrency plain decoding, which batches, overtakes speculation, which does not."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from gatekeeper.terms.outcome import Estimate, Missing, rounded


def turning(ratios: Mapping[int, Estimate | Missing]) -> dict[str, Any]:
    """Return the system's ratio by number of streams, and between which of them its sign changes for certain."""
    ordered = sorted(ratios.items())
    signs = [(streams, _sign(ratio)) for streams, ratio in ordered]
    sure = [(streams, sign) for streams, sign in signs if sign]
    turns = [[before, after] for (before, was), (after, now) in pairwise(sure) if was != now]
    return {
        "measure": "system_throughput_ratio",
        "by_concurrency": [{"concurrency": streams, **_figures(ratio)} for streams, ratio in ordered],
        "turns": turns,
        "says": _says(sure, turns, len(ordered)),
    }


def _sign(ratio: Estimate | Missing) -> int:
    if isinstance(ratio, Missing):
        return 0
    return (ratio.lo > 1) - (ratio.hi < 1)


def _figures(ratio: Estimate | Missing) -> dict[str, Any]:
    if isinstance(ratio, Missing):
        return {"ratio": None, "lo": None, "hi": None, "n": ratio.n, "because": ratio.because}
    return {"ratio": rounded(ratio.center), "lo": rounded(ratio.lo), "hi": rounded(ratio.hi), "n": ratio.n}


def _says(sure: list[tuple[int, int]], turns: list[list[int]], seen: int) -> str:
    words = {1: "speculation wins", -1: "plain decoding wins"}
    if turns:
        first = dict(sure)[turns[0][0]]
        return f"{words[first]} at {turns[0][0]}, {words[-first]} at {turns[0][1]}: the sign changes between them"
    if not sure:
        return "at no concurrency is either proven faster"
    where = ", ".join(str(streams) for streams, _ in sure)
    rest = "" if len(sure) == seen else "; the others prove nothing"
    return f"{words[sure[0][1]]} at {where}{rest}"
