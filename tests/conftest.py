"""What holds for every test: properties are searched without a clock, and no run waits for another test process."""

import os
import tempfile
from pathlib import Path

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)  # this machine may be busy
settings.load_profile("unhurried")

# Two test processes measure nothing that the other could spoil; what they start inherits the lock of their own.
_LOCKS = tempfile.TemporaryDirectory(prefix="gatekeeper-tests-")
os.environ["GATEKEEPER_HOST_LOCK"] = str(Path(_LOCKS.name) / "host.lock")
