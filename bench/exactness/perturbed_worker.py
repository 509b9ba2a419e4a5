"""gatekeeper's mlx worker with a target whose wider passes take another kernel, and with a planted defect.

    command = ["python", "-m", "bench.exactness.perturbed_worker", "{target}", "{draft}"]

Environment: EXACTNESS_LOGITS and EXACTNESS_INNER are scales of the noise, EXACTNESS_DEFECT is `KIND:RATE`
(`unverified:0.02`), EXACTNESS_SEED a number; EXACTNESS_BITS quantises the target's weights as it is loaded, and
EXACTNESS_TYPE is their type (bfloat16). `-s` on the command line beside the models sets them as well: `-slogits=0.1`.
"""

import os
import sys
from typing import Any

import mlx.core as mx
from mlx import nn

from bench.exactness.defective_engine import speculating_with
from bench.exactness.defects import Defect, Kind
from bench.exactness.noise import Noise
from bench.exactness.other_kernel import OtherKernel
from gatekeeper.backends.workers import mlx_lm as worker
from gatekeeper.backends.workers.answer_parts import generation

GROUP = 64
"""Weights that share a scale, as in most quantised models."""


def setting(name: str, default: str = "") -> str:
    """Return a setting of this worker: from the command line, else from the environment."""
    on_line = [word.partition("=")[2] for word in sys.argv if word.startswith(f"-s{name}=")]
    return on_line[-1] if on_line else os.environ.get(f"EXACTNESS_{name.upper()}", default)


def defect_from(text: str, seed: int) -> Defect | None:
    """Return the defect that `KIND:RATE` names; None where nothing is named."""
    kind, _, rate = text.partition(":")
    return Defect(Kind(kind), float(rate or 1), seed) if kind else None


def rounded(model: Any) -> Any:
    """Return *model* with the type and the bits of its weights that are set."""
    if kind := setting("type"):
        model.set_dtype(getattr(mx, kind))
    if bits := setting("bits"):
        nn.quantize(model, group_size=GROUP, bits=int(bits))
    return model


def main() -> None:
    """Put the other kernel and the defect into the worker, then run it."""
    seed = int(setting("seed", "0"))
    defect = defect_from(setting("defect"), seed)
    logits, inner = (Noise(float(setting(name, "0")), seed) for name in ("logits", "inner"))

    class Perturbed(worker.MlxWorker):
        """The mlx worker with the other target."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.model = OtherKernel(rounded(self.model), logits, inner, defect)

    worker.MlxWorker = Perturbed  # type: ignore[misc]
    if defect is not None:
        vars(generation)["speculative_generate_step"] = speculating_with(defect)
    sys.argv[:] = [word for word in sys.argv if not word.startswith("-s")]
    worker.main()


if __name__ == "__main__":
    main()
