"""One thin script per DVC stage: load, call the library, save, log.

A queued experiment runs in a snapshot of the project, where an installed coattail would still point
at the workspace. So the snapshot's own src/ goes first on the path.
"""

import os
import sys
from pathlib import Path

# Set before numpy is imported: sums in another order are other bits, and BLAS chooses its order by
# the number of threads. Our kernels and torch have threads of their own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
