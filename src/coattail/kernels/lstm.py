"""The recurrent half of an LSTM: all steps of a batch, forward and backward.

Of every step only what depends on the one before it is computed here; the products with the inputs
are one large product outside. Gates lie side by side as torch has them: in, forget, cell, out.
exp is a polynomial of our own and nothing is contracted or reordered, so that every processor gives
the same bits as long as its BLAS does.
"""

import numpy as np
from numba import njit

LOG2E = np.float32(1.4426950408889634)
# Added to a small number it leaves the nearest whole number in the lowest bits.
TO_WHOLE = np.float32(1.5 * 2**23)
MANTISSA, EXPONENT_OF_ONE = np.int32(23), np.int32(127)
LN2_HIGH = np.float32(0.693359375)  # few bits: its product with a small whole number is exact
LN2_LOW = np.float32(-2.12194440e-4)
# exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2) / 2, by Cephes
P0, P1, P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
P3, P4, P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
ONE, HALF, TWO, MOST = np.float32(1), np.float32(0.5), np.float32(2), np.float32(87)


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _exp(x):
    """float32 exp of -87 <= x <= 87, to an ulp or two."""
    near = np.float32(x * LOG2E + TO_WHOLE)
    n = near - TO_WHOLE
    r = x - n * LN2_HIGH - n * LN2_LOW
    p = ((((P0 * r + P1) * r + P2) * r + P3) * r + P4) * r + P5
    power = np.int32((near.view(np.int32) + EXPONENT_OF_ONE) << MANTISSA).view(np.float32)
    return (p * r * r + r + ONE) * power


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _sigmoid(x):
    low = x if x > -MOST else -MOST
    return ONE / (ONE + _exp(-(low if low < MOST else MOST)))


@njit(nogil=True, cache=True, error_model="numpy")
def _sigmoids(x, y):
    """x <- sigmoid(x + y)"""
    for j in range(len(x)):
        x[j] = _sigmoid(x[j] + y[j])


@njit(nogil=True, cache=True, error_model="numpy")
def _tanhs(x, y):
    """x <- tanh(x + y)"""
    for j in range(len(x)):
        x[j] = TWO * _sigmoid(TWO * (x[j] + y[j])) - ONE


@njit(nogil=True, cache=True, error_model="numpy")
def _cells(gates, before, cell):
    """cell <- f * before + i * g"""
    n = len(cell)
    for j in range(n):
        cell[j] = gates[n + j] * before[j] + gates[j] * gates[2 * n + j]


@njit(nogil=True, cache=True, error_model="numpy")
def _states(gates, cell, squashed, state):
    """squashed <- tanh(cell); state <- o * squashed"""
    n = len(cell)
    for j in range(n):
        squashed[j] = TWO * _sigmoid(TWO * cell[j]) - ONE
    for j in range(n):
        state[j] = gates[3 * n + j] * squashed[j]


@njit(nogil=True, cache=True, error_model="numpy")
def forward(gates, weights, state, cells, squashed, states):
    """Run all steps.

    Parameters
    ----------
    gates : float32 (T, B, 4 H)
        What the inputs add to the gates; the gates themselves afterwards.
    weights : float32 (H, 4 H)
        From a state to the gates.
    state : float32 (B, H)
        Before the first step.
    cells : float32 (T + 1, B, H)
        The first is given, the others are written.
    squashed, states : float32 (T, B, H), written
        tanh of the cells, and what the LSTM says.
    """
    steps, batch, width = states.shape
    own = np.empty((batch, 4 * width), np.float32)
    for t in range(steps):
        np.dot(state if t == 0 else states[t - 1], weights, own)
        for b in range(batch):
            g, o = gates[t, b], own[b]
            _sigmoids(g[: 2 * width], o[: 2 * width])
            _tanhs(g[2 * width : 3 * width], o[2 * width : 3 * width])
            _sigmoids(g[3 * width :], o[3 * width :])
            _cells(g, cells[t, b], cells[t + 1, b])
            _states(g, cells[t + 1, b], squashed[t, b], states[t, b])


@njit(nogil=True, cache=True, error_model="numpy")
def _backward_row(gates, before, squashed, d_state, d_own, d_cell, d_gates):
    """Gradients of one text at one step; d_cell becomes that of the cell before."""
    n = len(d_cell)
    for j in range(n):
        d_h = d_state[j] + d_own[j]
        o, s = gates[3 * n + j], squashed[j]
        d_gates[3 * n + j] = d_h * s * o * (ONE - o)
        d_cell[j] += d_h * o * (ONE - s * s)
    for j in range(n):
        i, g = gates[j], gates[2 * n + j]
        d_gates[j] = d_cell[j] * g * i * (ONE - i)
        d_gates[2 * n + j] = d_cell[j] * i * (ONE - g * g)
    for j in range(n):
        f = gates[n + j]
        d_gates[n + j] = d_cell[j] * before[j] * f * (ONE - f)
        d_cell[j] *= f


@njit(nogil=True, cache=True, error_model="numpy")
def backward(gates, weights, cells, squashed, d_states, d_gates, d_state, d_cell):
    """Gradients of all steps, the last first.

    ``weights`` are (4 H, H) here; d_states (T, B, H) is given, d_gates (T, B, 4 H) written; d_state
    and d_cell (B, H) are zero before, and afterwards the gradients of the states at the start.
    """
    steps, batch, _ = d_states.shape
    for t in range(steps - 1, -1, -1):
        for b in range(batch):
            _backward_row(
                gates[t, b],
                cells[t, b],
                squashed[t, b],
                d_states[t, b],
                d_state[b],
                d_cell[b],
                d_gates[t, b],
            )
        np.dot(d_gates[t], weights, d_state)
