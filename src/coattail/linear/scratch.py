"""Memory of a thread: scratch that is used again, and room that stays, from large pieces.

Fresh memory is slow: the system clears and maps it page by page, which for the many small arrays of
a large tree costs more than filling them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

PIECE = 1 << 25  # bytes that are taken from the system at once for room that stays
_own = threading.local()


def scratch(name: str, size: int, dtype: DTypeLike) -> NDArray[Any]:
    """An array of this thread, (size,), holding anything; until it asks for ``name`` again."""
    known: NDArray[Any] | None = getattr(_own, name, None)
    if known is None or len(known) < size or known.dtype != dtype:
        known = np.empty(size, dtype)
        setattr(_own, name, known)
    return known[:size]


def lasting(name: str, size: int, dtype: DTypeLike) -> NDArray[Any]:
    """An array (size,) of its own; the memory is shared only with others of this name."""
    piece: NDArray[Any] | None = getattr(_own, f"lasting {name}", None)
    if piece is None or len(piece) < size or piece.dtype != dtype:
        piece = np.empty(max(size, PIECE // np.dtype(dtype).itemsize), dtype)
    setattr(_own, f"lasting {name}", piece[size:])
    return piece[:size]
