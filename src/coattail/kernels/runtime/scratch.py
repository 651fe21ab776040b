"""Memory of a thread: scratch that is used again, and room that stays, from large pieces.

Fresh memory is slow: the system clears and maps it page by page, which for the many small arrays of
a large tree costs more than filling them. Names are those of the thread: two users of one name
share its memory.
"""

import threading
from contextlib import contextmanager

import numpy as np

LINE = 64  # bytes
PIECE = 1 << 25  # bytes that are taken from the system at once for room that stays
_own = threading.local()


def scratch(name, size, dtype):
    """An array of this thread, (size,), holding anything; until it asks for ``name`` again."""
    return whole(name, size, dtype)[:size]


def whole(name, least, dtype):
    """The same, as large as it has become: at least so much."""
    known = getattr(_own, name, None)
    if known is None or len(known) < least or known.dtype != dtype:
        known = _aligned(least, dtype)
        remember(name, known)
    return known


def remember(name, array):
    """What the thread has under a name from now on: a kernel needed a larger one."""
    setattr(_own, name, array)


@contextmanager
def kept(name, size, dtype, value=0):
    """Lend an array of this thread, (size,), filled with ``value``; the block gives it back so.

    Where the block fails, as a kernel does that finds no memory, the array may hold anything: the
    next one who asks for the name gets another. No two blocks of a thread share a name.
    """
    known = _own.__dict__.pop(f"kept {name}", None)
    if known is None or len(known) < size or known.dtype != dtype:
        known = _aligned(size, dtype)
        known[:] = value
    yield known[:size]
    setattr(_own, f"kept {name}", known)


def lasting(name, size, dtype):
    """An array (size,) of its own; the memory is shared only with others of this name."""
    piece = getattr(_own, f"lasting {name}", None)
    if piece is None or len(piece) < size or piece.dtype != dtype:
        piece = np.empty(max(size, PIECE // np.dtype(dtype).itemsize), dtype)
    setattr(_own, f"lasting {name}", piece[size:])
    return piece[:size]


def _aligned(size, dtype):
    """Begins at a cache line, so that a row of lanes never lies on one line more than it must."""
    room = np.empty(size * np.dtype(dtype).itemsize + LINE, np.uint8)
    skip = -room.ctypes.data % LINE
    return room[skip : skip + size * np.dtype(dtype).itemsize].view(dtype)
