"""What the project claims of itself, each by a command; README.md has them."""

import os

# numpy's threads wait for each other by spinning, which costs the small matrices here several times their own work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
