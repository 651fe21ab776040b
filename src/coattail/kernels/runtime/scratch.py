"""Memory per thread: scratch that is used again, and arrays cut from large pieces.

Fresh memory is slow: the system clears and maps it page by page. For the many small arrays of a
large tree that costs more than filling them. Every thread has its own names; within a thread, two
users of one name share its memory.
"""

import threading
from contextlib import contextmanager

import numpy as np

LINE = 64  # bytes
PIECE = 1 << 25  # bytes taken from the system at once for arrays that stay
_own = threading.local()


def scratch(name, size, dtype):
    """Return this thread's array ``name``, (size,), with any content.

    It is the caller's until the thread asks for ``name`` again.
    """
    return whole(name, size, dtype)[:size]


def whole(name, least, dtype):
    """Return all of this thread's array ``name``, which has at least ``least`` values."""
    known = getattr(_own, name, None)
    if known is None or len(known) < least or known.dtype != dtype:
        known = _aligned(least, dtype)
        remember(name, known)
    return known


def remember(name, array):
    """Put ``array`` in the place of this thread's array ``name``: a kernel needed a larger one."""
    setattr(_own, name, array)


@contextmanager
def kept(name, size, dtype, value=0):
    """Lend this thread's array ``name``, (size,), filled with ``value``.

    The ``with`` block restores the value before it ends. If the block fails, as a kernel does that
    finds no memory, the array is dropped, and the next block gets a new one. Blocks of a thread
    that overlap must use different names.
    """
    known = _own.__dict__.pop(f"kept {name}", None)
    if known is None or len(known) < size or known.dtype != dtype:
        known = _aligned(size, dtype)
        known[:] = value
    yield known[:size]
    setattr(_own, f"kept {name}", known)


def lasting(name, size, dtype):
    """Return a new array, (size,), cut from this thread's current piece of memory for ``name``."""
    piece = getattr(_own, f"lasting {name}", None)
    if piece is None or len(piece) < size or piece.dtype != dtype:
        piece = np.empty(max(size, PIECE // np.dtype(dtype).itemsize), dtype)
    setattr(_own, f"lasting {name}", piece[size:])
    return piece[:size]


def _aligned(size, dtype):
    """An array that begins at a cache line, so that a row of lanes spans as few lines as it can."""
    room = np.empty(size * np.dtype(dtype).itemsize + LINE, np.uint8)
    skip = -room.ctypes.data % LINE
    return room[skip : skip + size * np.dtype(dtype).itemsize].view(dtype)
