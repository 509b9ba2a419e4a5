"""The zlab-dflash worker: block-diffusion drafting with the `dflash` package of z-lab, on mlx-lm's models.

Runs as `python -m gatekeeper.backends.workers.zlab_dflash TARGET [DRAFT]` in the environment that has `dflash`. Written
from `dflash/model_mlx.py` of version 0.1.0: `stream_generate` yields once a verify round, with the tokens the round
gave. The first yield is the prefill's own token and no round; where the limit ends the answer, a last yield is empty.
Plain decoding is mlx-lm's, with the same target in the same process.
"""

import argparse
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.backends.workers.loop import WorkerChannel, find_versions
from gatekeeper.backends.workers.rounds import count_rounds
from gatekeeper.core.records import Rounds

FACTS = BackendFacts(name="zlab-dflash", module="dflash", install="pip install dflash mlx-lm", shipped="m5-pro-48gb")
SEES = ("arrivals", "token_count", "text", "token_ids", "cold")
INSTALL = (
    "pip install dflash and mlx-lm (0.32.2 or newer), or name a Python that has both: "
    "see: gatekeeper explain worker-protocol"
)


@dataclass
class Dflash:
    """Decoding with dflash, in blocks of *block_size*: one token of the target's own, the others drafted."""

    package: Any
    mlx: Any
    model: Any
    tokenizer: Any
    draft: Any
    request: dict[str, Any]
    block_size: int

    def pieces(self, prompt: list[int]) -> Iterable[Any]:
        """Generate pieces of one round each; raise ValueError for options that dflash lacks."""
        if self.block_size < 2:
            raise ValueError("a block of 1 drafts nothing, and dflash ends the answer after its first token")
        pieces: Iterable[Any] = self.package.stream_generate(
            self.model,
            self.draft,
            self.tokenizer,
            import_module("mlx.core").array(prompt),
            block_size=self.block_size,
            max_tokens=self.request["max_tokens"],
            **_sampling(self.package.stream_generate, self.request),
        )
        return pieces

    def keep(self, piece: Any) -> tuple[list[int], str | None]:
        """Keep a round's tokens and how the answer ended."""
        return piece.tokens, piece.finish_reason

    def tokens(self, timed: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Return the tokens, each at the time of its round.

        The last token of a round is taken to be the target's own. Where a stop token or the limit cuts a round short
        it may have been a drafted one: acceptance is understated by at most one token an answer, never overstated.
        """
        # We detokenize ourselves: a round's own text cannot be divided among its tokens.
        detokenizer = self.tokenizer.detokenizer
        detokenizer.reset()
        ended = timed[-1][1][1] if timed else None
        flat = [
            (at_ns, token, number > 0 and place < len(tokens) - 1)
            for number, (at_ns, (tokens, _)) in enumerate(timed)
            for place, token in enumerate(tokens)
        ]
        pieces = []
        for index, (at_ns, token, drafted) in enumerate(flat):
            last = index == len(flat) - 1
            if not (last and ended == "stop"):
                detokenizer.add_token(token)
            if last:
                detokenizer.finalize()
            pieces.append((at_ns, self.mlx.Token(token, drafted, detokenizer.last_segment, ended if last else None)))
        return pieces

    def prompt_read_at(self) -> None:
        """Return that it is not known: the package yields only whole rounds."""

    def rounds(self, drafted: list[bool]) -> Rounds:
        """Count the rounds: each proposes `min(block_size, what the limit leaves + 1) - 1` tokens."""
        rest = drafted[1:]
        return count_rounds(rest, draft_tokens=self.block_size - 1, max_tokens=self.request["max_tokens"] - 1)


def _sampling(generate: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return the sampling options; raise ValueError for one that this dflash lacks."""
    options = {
        "temperature": request["temperature"],
        "top_p": request["top_p"],
        "top_k": request["top_k"],
        "min_p": request["min_p"],
    }
    accepted = inspect.signature(generate).parameters
    present = {name: value for name, value in options.items() if value is not None}
    if unknown := sorted(set(present) - set(accepted)):
        raise ValueError(f"this dflash cannot sample with {', '.join(unknown)}")
    return present


class DflashWorker:
    """A target and a dflash draft; plain requests are answered by mlx-lm."""

    def __init__(self, package: Any, target: str, draft: str | None, beat: memoryview, loading: list[str]) -> None:
        self._package, self._mlx = package, import_module("gatekeeper.backends.workers.mlx_lm")
        self._plain = self._mlx.MlxWorker(target, None, beat, loading)
        self._layers_of = getattr(package, "_get_layers", None)
        self._layers = list(self._layers_of(self._plain.model)) if self._layers_of else []
        self._draft = None
        if draft is not None:
            loading[:] = [draft]
            # `load_draft` downloads a repository; ours is a local folder.
            if Path(draft).is_dir() and hasattr(package, "snapshot_download"):
                package.snapshot_download = lambda folder, **_: folder
            self._draft = package.load_draft(draft)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request."""
        reply: dict[str, Any]
        if request["setting"]["draft"] is None:
            self._unhook()
            reply = self._plain.answer(request)
            return reply
        assert self._draft is not None
        model, tokenizer = self._plain.model, self._plain.tokenizer
        block_size = request["setting"].get("block_size") or int(self._draft.config.block_size)
        reply = self._plain.reply(
            request, Dflash(self._package, self._mlx, model, tokenizer, self._draft, request, block_size=block_size)
        )
        return reply

    def _unhook(self) -> None:
        """Restore the target's own layers: dflash wraps some to read their states, which would slow plain decoding.

        It wraps them again where it finds no `_hidden_states`.
        """
        model = self._plain.model
        if self._layers_of is not None and hasattr(model, "_hidden_states"):
            self._layers_of(model)[:] = self._layers
            del model._hidden_states  # noqa: SLF001  the package's own mark


def main() -> None:
    """Load the package and the models, then answer until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("draft", nargs="?")
    arguments = parser.parse_args()
    channel = WorkerChannel()

    def load(loading: list[str]) -> DflashWorker:
        try:  # after the greeting: a plan needs no package
            package = import_module("dflash.model_mlx")
        except ImportError as error:
            channel.give_up(f"{type(error).__name__}: {error}", INSTALL)
        return DflashWorker(package, arguments.target, arguments.draft, channel.beat, loading)

    channel.serve(
        {
            "name": "zlab-dflash",
            "sees": [*SEES, "rounds", "plain", "logits", "forced", "widths"],
            "knobs": ["draft", "block_size", "temperature", "max_tokens", "thinking"],
            "shares_process": True,
            "versions": find_versions("dflash", "mlx", "mlx-lm", "transformers", "numpy"),
        },
        load,
    )


if __name__ == "__main__":
    main()
