"""mlx_lm.server with a target whose wider passes take another kernel, and with a planted defect.

    program = ["python", "-m", "bench.exactness.perturbed_server"]

The settings are those of `perturbed_worker`: `-sdefect=stale:0.02 -slogits=0.1` after the module.
"""

import sys
from importlib import import_module
from typing import Any

from bench.exactness.defective_engine import speculating_with
from bench.exactness.noise import Noise
from bench.exactness.other_kernel import OtherKernel
from bench.exactness.perturbed_worker import defect_from, rounded, setting
from gatekeeper.backends.workers import mlx_tap


def main() -> None:
    """Put the other kernel and the defect into the server, then run it with the tap that counts its rounds."""
    seed = int(setting("seed", "0"))
    defect = defect_from(setting("defect"), seed)
    logits, inner = (Noise(float(setting(name, "0")), seed) for name in ("logits", "inner"))
    server: Any = import_module("mlx_lm.server")
    load = server.ModelProvider.load

    def loading(self: Any, *paths: Any, **options: Any) -> Any:
        """Load as the server does; then its target has the other kernel, and answers one request at a time."""
        model, tokenizer = load(self, *paths, **options)
        if not isinstance(model, OtherKernel):
            self.model = model = OtherKernel(rounded(model), logits, inner, defect)
        self.is_batchable = False
        return model, tokenizer

    server.ModelProvider.load = loading
    if defect is not None:
        vars(import_module("mlx_lm.generate"))["speculative_generate_step"] = speculating_with(defect)
    sys.argv[:] = [word for word in sys.argv if not word.startswith("-s")]
    mlx_tap.main()


if __name__ == "__main__":
    main()
