"""Tokens a round from the timing of bursts, against the rounds that each system counts itself.

python bench/burst_acceptance.py --record mlx mlx-server     # asks real systems with the little pair: 2 minutes
LLAMA_SERVER=$(tools/build_llama_server) python bench/burst_acceptance.py --record llama-server
python bench/burst_acceptance.py                             # the table, also for changed protocols of the same answers
"""

import argparse
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import environ
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script, from anywhere

from gatekeeper.analysis.metrics.timed_rounds import plain_timing, timed_rounds
from gatekeeper.backends import open_backend
from gatekeeper.core import canary
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters
from gatekeeper.core.records import Answer, Generation, Role, Setting
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.system.record_files import ANSWERS
from gatekeeper.core.verdict import Missing
from tools import write_gguf

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "build" / "burst-acceptance"
WORKLOADS = ("json", "math", "list", "random")
DRAFTS = ("little-draft", "little-draft-bad")
LENGTHS = (2, 4, 8)


def pair(kind: str, folder: Path) -> tuple[dict[str, Path], Subject]:
    """Return the little models, for llama-server as GGUF in *folder*, and the system that serves them."""
    names = ("little-target", *DRAFTS)
    written: dict[str, Any] = {"backend": kind, "target": names[0], "drafts": DRAFTS}
    if kind != "llama-server":
        return {name: ROOT / "models" / name for name in names}, Subject.model_validate(written)
    for name in names:
        write_gguf.write(ROOT / "models" / name, folder / f"{name}.gguf")
    # The little pair is too small for two threads: they wait for each other.
    written |= {"program": [environ["LLAMA_SERVER"]], "args": ["--threads", "1", "--ctx-size", "2048"]}
    return {name: folder / f"{name}.gguf" for name in names}, Subject.model_validate(written)


def record(kind: str, each: int, skip: int, file: Path) -> None:
    """Ask *each* canaries of every workload after the first *skip* with every setting, and write the answers."""
    file.parent.mkdir(parents=True, exist_ok=True)
    models, subject = pair(kind, file.parent)
    sets = {
        name: canary.parse((ROOT / "canaries" / "little" / f"{name}.jsonl").read_text(), name)[skip : skip + each]
        for name in WORKLOADS
    }
    settings: list[Setting] = [
        (("draft", None),),
        *((("draft", draft), ("num_draft_tokens", length)) for draft in DRAFTS for length in LENGTHS),
    ]
    with tempfile.TemporaryDirectory() as logs, file.open("wb") as out:
        backend = open_backend(subject, models=models, base=ROOT, logs=Path(logs))
        residents: dict[str, list[Setting]] = defaultdict(list)
        for setting in settings:
            residents[backend.residence(setting)].append(setting)
        for some in residents.values():
            system = backend.start(some[0])
            try:
                for setting in some:
                    for name, canaries in sets.items():
                        for one in canaries:
                            answer = system.answer(DecodeRequest(one, setting, SamplingParameters(max_tokens=160)))
                            made = Generation(
                                "t", kind, name, one.id, "candidate", setting, Role.MEASURED, 0, "", 1, answer
                            )
                            out.write(ANSWERS.dump_json(made) + b"\n")
            finally:
                system.close()


Change = Callable[[list[tuple[int, int]]], list[tuple[int, int]]]
"""From (time, tokens) of the pieces of one answer to those of another protocol."""


def by_round(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join what comes within 2 ms: a server that sends a round as one chunk."""
    out: list[tuple[int, int]] = []
    for at, tokens in pieces:
        if out and at - out[-1][0] < 2e6:
            out[-1] = out[-1][0], out[-1][1] + tokens
        else:
            out.append((at, tokens))
    return out


def every(milliseconds: float) -> Change:
    """Send what has gathered each so many milliseconds."""

    def change(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
        period, out = milliseconds * 1e6, dict[int, int]()
        for at, tokens in pieces:
            slot = int(math.ceil(at / period) * period)
            out[slot] = out.get(slot, 0) + tokens
        return sorted(out.items())

    return change


def each_tokens(count: int) -> Change:
    """Send whenever so many tokens have gathered."""

    def change(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [
            (pieces[min(at + count, len(pieces)) - 1][0], sum(tokens for _, tokens in pieces[at : at + count]))
            for at in range(0, len(pieces), count)
        ]

    return change


def paced(milliseconds: float) -> Change:
    """Send one token each so many milliseconds at the soonest: an even stream."""

    def change(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
        out: list[tuple[int, int]] = []
        for at, tokens in pieces:
            out.append((max(at, out[-1][0] + int(milliseconds * 1e6)) if out else at, tokens))
        return out

    return change


PROTOCOLS: dict[str, Change] = {
    "as recorded": lambda pieces: pieces,
    "one chunk a round": by_round,
    "flushed every 5 ms": every(5),
    "flushed every 100 ms": every(100),
    "flushed every 4 tokens": each_tokens(4),
    "one token every 8 ms": paced(8),
}


def changed(one: Generation, change: Change) -> Generation:
    """Return an answer as another protocol would have brought it."""
    pieces = change([(piece.at_ns, 1) for piece in one.answer.arrivals])
    arrivals = tuple(Arrival(at) for at, _ in pieces)
    return replace(one, answer=replace(one.answer, arrivals=arrivals))


def truth(answer: Answer) -> float | None:
    """Return tokens a round, as the system counted them."""
    counted = answer.rounds or answer.claims  # llama-server's own count
    if not counted.rounds or counted.accepted is None:
        return None
    return (counted.accepted + counted.rounds) / counted.rounds


def judge(answers: Sequence[Generation], *, told: bool) -> tuple[int, int, int, list[float]]:
    """Return how many intervals hold the truth, how many there are, how many answers are refused, and the widths."""
    held, given, refused, widths = 0, 0, 0, list[float]()
    for workload in WORKLOADS:
        mine = [one for one in answers if one.workload == workload and one.answer.fault is None]
        plain = plain_timing([one for one in mine if dict(one.setting)["draft"] is None])
        for one in mine:
            right = truth(one.answer)
            if right is None:
                continue
            known = dict(one.setting)["num_draft_tokens"] if told else None
            seen = plain.because if isinstance(plain, Missing) else timed_rounds(one.answer, plain, known)
            if isinstance(seen, str):
                refused += 1
                continue
            _, lo, hi = seen.length
            given += 1
            held += lo - 1e-9 <= right <= hi + 1e-9
            widths.append((hi - lo) / right)
    return held, given, refused, widths


def table(files: Iterable[Path]) -> None:
    """Print one line for each system, protocol, and whether the draft length was known."""
    print("| system | protocol | draft length | answers | refused | interval holds the truth | median width |")
    print("|---|---|---|---|---|---|---|")
    for file in sorted(files):
        answers = [ANSWERS.validate_json(line) for line in file.read_bytes().splitlines()]
        for name, change in PROTOCOLS.items():
            mine = [changed(one, change) for one in answers]
            for told in (True, False):
                held, given, refused, widths = judge(mine, told=told)
                width = f"{100 * sorted(widths)[len(widths) // 2]:.0f} %" if widths else "-"
                share = f"{held} of {given}" if given else "-"
                known = "known" if told else "unknown"
                print(f"| {file.stem} | {name} | {known} | {given + refused} | {refused} | {share} | {width} |")


def main() -> None:
    """Record the backends of `--record`, and print the table of all recordings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", nargs="*", default=[], metavar="BACKEND", help="ask these systems first")
    parser.add_argument("--each", type=int, default=4, help="canaries of a workload")
    parser.add_argument("--skip", type=int, default=4, help="canaries left out: bounds were set on the first four")
    parser.add_argument("--folder", type=Path, default=RECORDED)
    given = parser.parse_args()
    for kind in given.record:
        record(kind, given.each, given.skip, given.folder / f"{kind}.jsonl")
    table(given.folder.glob("*.jsonl"))


if __name__ == "__main__":
    main()
