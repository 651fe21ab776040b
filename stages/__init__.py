"""One thin script per DVC stage: load, call the library, save, log.

A queued experiment runs in a snapshot of the project, where an installed coattail would still point
at the workspace. So the snapshot's own src/ goes first on the path.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from coattail import processor

# Before numpy is imported, which looks at the processor.
processor.settle(processor.read_wanted())
