"""Numbers to text and back for the XMC repository format, at memory speed.

A decimal is accepted as float32 only when it is certain to equal ``np.float32(float(text))``; the
rare decimal that lies too close to the middle between two float32 values is reported as slow, and
the caller asks Python.
"""

import math

import numpy as np
from numba import njit

# What `parse` found wrong; coattail.data.formats.xmc turns each into a sentence.
FINE, BAD_LABEL, LABEL_RANGE, BAD_FEATURE, FEATURE_RANGE, BAD_VALUE, DUPLICATE = range(7)
TOO_MANY_ROWS, SLOW_FULL = 7, 8

# What `_decimal` thinks of its answer.
EXACT, SLOW, TOO_LARGE = range(3)

LARGEST_POWER = 300
POWERS = np.array([float(f"1e{k}") for k in range(-LARGEST_POWER, LARGEST_POWER + 1)])
# float64 holds 10^0 .. 10^22 and whole numbers up to 2^53 exactly, so one operation on them is
# correctly rounded. Otherwise three roundings and a cut after 18 digits stay far below 2^-49.
EXACT_POWER, EXACT_WHOLE, SLACK = 22, 2**53, 2.0**-49
MOST_DIGITS = 18
BEYOND = 2**40  # an index that is larger than any allowed one, without overflow

TAB, NEWLINE, RETURN, BLANK = 9, 10, 13, 32
PLUS, COMMA, MINUS, POINT, ZERO, NINE, COLON = 43, 44, 45, 46, 48, 57, 58
UPPER_E, LOWER_E = 69, 101


@njit(cache=True)
def count(text):
    """Lines, colons and commas: upper bounds for rows, features and labels."""
    lines = colons = commas = 0
    for character in text:
        lines += character == NEWLINE
        colons += character == COLON
        commas += character == COMMA
    return lines, colons, commas


@njit(cache=True)
def _decimal(mantissa, power, cut):
    """``mantissa * 10^power`` as float32; ``cut`` says that digits beyond the 18th were dropped."""
    if mantissa == 0 or power < -LARGEST_POWER:
        return np.float32(0.0), EXACT
    if power > LARGEST_POWER - MOST_DIGITS - 1:
        return np.float32(0.0), TOO_LARGE
    if not cut and mantissa <= EXACT_WHOLE and -EXACT_POWER <= power <= EXACT_POWER:
        if power < 0:
            low = high = mantissa / POWERS[LARGEST_POWER - power]
        else:
            low = high = mantissa * POWERS[LARGEST_POWER + power]
    else:
        value = mantissa * POWERS[LARGEST_POWER + power]
        low, high = value * (1.0 - SLACK), value * (1.0 + SLACK)
    single = np.float32(low)
    if single != np.float32(high):
        return single, SLOW
    return single, (TOO_LARGE if np.isinf(single) else EXACT)


@njit(cache=True)
def _integer(text, at):
    """The digits at ``at`` as a number (-1 if there are none) and where they end."""
    value = np.int64(-1)
    while ZERO <= text[at] <= NINE:
        value = min(max(value, 0) * 10 + (text[at] - ZERO), BEYOND)
        at += 1
    return value, at


@njit(cache=True)
def _exponent(text, at):
    """The exponent after an e at ``at`` and where it ends (-1 if no digit follows)."""
    at += 1
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    value, end = _integer(text, at)
    if value < 0:
        return np.int64(0), np.int64(-1)
    return (-value if negative else value), end


@njit(cache=True)
def _few_digits(text, at):
    """Mantissa, power, end and number of digits of a decimal that has at most 18 of them."""
    mantissa, start = np.int64(0), at
    while ZERO <= text[at] <= NINE:
        mantissa = mantissa * 10 + (text[at] - ZERO)
        at += 1
    digits, power = at - start, np.int64(0)
    if text[at] == POINT:
        at += 1
        start = at
        while ZERO <= text[at] <= NINE:
            mantissa = mantissa * 10 + (text[at] - ZERO)
            at += 1
        digits += at - start
        power = np.int64(start - at)
    return mantissa, power, at, digits


@njit(cache=True)
def _many_digits(text, at):
    """Mantissa of the first 18 digits that count, power, and whether others than 0 were cut."""
    mantissa, digits, power = np.int64(0), 0, np.int64(0)
    cut, after_point = False, False
    while ZERO <= text[at] <= NINE or (text[at] == POINT and not after_point):
        if text[at] == POINT:
            after_point = True
        elif digits < MOST_DIGITS:
            mantissa = mantissa * 10 + (text[at] - ZERO)
            digits += mantissa > 0
            power -= after_point
        else:
            cut = cut or text[at] != ZERO
            power += not after_point
        at += 1
    return mantissa, power, cut


@njit(cache=True)
def _number(text, at):
    """A decimal at ``at``: its float32, where it ends (-1 if it is none), and how sure that is."""
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    mantissa, power, end, digits = _few_digits(text, at)
    cut = False
    if digits > MOST_DIGITS:  # the mantissa has overflowed
        mantissa, power, cut = _many_digits(text, at)
    if digits == 0:
        return np.float32(0.0), np.int64(-1), EXACT
    if text[end] == LOWER_E or text[end] == UPPER_E:
        exponent, end = _exponent(text, end)
        power += exponent
    value, sure = _decimal(mantissa, power, cut)
    return (-value if negative else value), np.int64(end), sure


@njit(cache=True)
def _skip_blanks(text, at):
    while text[at] == BLANK or text[at] == TAB or text[at] == RETURN:
        at += 1
    return at


@njit(cache=True)
def _ends_token(character):
    return character in (BLANK, NEWLINE, TAB, RETURN)


@njit(cache=True)
def _sort(keys, values):
    """Sort ``keys`` in place and ``values`` along with them (Shell's sort; rows are short)."""
    gap = 1
    while gap < len(keys):
        gap = 3 * gap + 1
    while gap > 1:
        gap //= 3
        for start in range(gap, len(keys)):
            key, value, place = keys[start], values[start], start
            while place >= gap and keys[place - gap] > key:
                keys[place], values[place] = keys[place - gap], values[place - gap]
                place -= gap
            keys[place], values[place] = key, value


@njit(cache=True)
def _labels(text, at, n_labels, out, used):
    """Labels at the start of a line into ``out``: code, position, entries used afterwards."""
    first, sorted_ = used, True
    while True:
        value, end = _integer(text, at)
        if value >= 0 and text[end] == COLON and used == first:
            return FINE, at, used  # the line starts with a feature: a text without labels
        if value < 0 or not (_ends_token(text[end]) or text[end] == COMMA):
            return BAD_LABEL, at, used
        if value >= n_labels:
            return LABEL_RANGE, at, used
        sorted_ = sorted_ and (used == first or value > out[used - 1])
        out[used] = value
        used += 1
        at = end
        if text[at] != COMMA:
            break
        at += 1
    if sorted_:
        return FINE, at, used
    _sort(out[first:used], out[first:used])
    kept = first + 1
    for entry in range(first + 1, used):  # a label named twice counts once
        if out[entry] != out[kept - 1]:
            out[kept] = out[entry]
            kept += 1
    return FINE, at, kept


@njit(cache=True)
def _features(text, at, n_features, row, indices, values, used, slow, n_slow):
    """Features of one line: code, position, entries used, slow decimals noted afterwards."""
    previous, sorted_ = np.int64(-1), True
    first = used
    while True:
        at = _skip_blanks(text, at)
        if text[at] == NEWLINE:
            break
        index, end = _integer(text, at)
        if index < 0 or text[end] != COLON:
            return BAD_FEATURE, at, used, n_slow
        if index >= n_features:
            return FEATURE_RANGE, at, used, n_slow
        value, stop, sure = _number(text, end + 1)
        if stop < 0 or not _ends_token(text[stop]) or sure == TOO_LARGE:
            return BAD_VALUE, at, used, n_slow
        if sure == SLOW:
            if n_slow == len(slow):
                return SLOW_FULL, at, used, n_slow
            slow[n_slow, 0], slow[n_slow, 1] = row, at
            n_slow += 1
        indices[used], values[used] = index, value
        used += 1
        sorted_ = sorted_ and index > previous
        previous, at = index, stop
    if not sorted_:
        _sort(indices[first:used], values[first:used])
        for entry in range(first + 1, used):
            if indices[entry] == indices[entry - 1]:
                return DUPLICATE, np.int64(indices[entry]), used, n_slow
    return FINE, at, used, n_slow


@njit(cache=True)
def parse(text, shape, row, x_indptr, x_indices, x_values, y_indptr, y_indices, slow):
    """Parse whole lines into CSR arrays, from row ``row`` on.

    Parameters
    ----------
    text : uint8, ends with a newline
    shape : (rows, features, labels) as the header has them
    x_indptr, x_indices, x_values, y_indptr, y_indices : arrays with room for what `count` found
    slow : int64 (m, 2), filled with (row, position) of features that Python has to read

    Returns
    -------
    code, position of the trouble, row reached, number of slow decimals
    """
    at, n_slow = np.int64(0), 0
    n_rows, n_features, n_labels = shape
    while at < len(text):
        x_used, y_used = x_indptr[row], y_indptr[row]
        start, code = at, FINE
        at = _skip_blanks(text, at)
        if row == n_rows:
            if text[at] != NEWLINE:
                return TOO_MANY_ROWS, start, row, n_slow
            at += 1
            continue
        if at == start and text[at] != NEWLINE:
            code, at, y_used = _labels(text, at, n_labels, y_indices, y_used)
        if code == FINE:
            code, at, x_used, n_slow = _features(
                text, at, n_features, row, x_indices, x_values, x_used, slow, n_slow
            )
        if code != FINE:
            return code, at, row, n_slow
        row += 1
        x_indptr[row], y_indptr[row] = x_used, y_used
        at += 1
    return FINE, at, row, n_slow


# --- writing -------------------------------------------------------------------------------------

BYTES_PER_FEATURE, BYTES_PER_LABEL, BYTES_PER_ROW = 32, 12, 2


@njit(cache=True)
def _write_integer(value, out, at):
    end = at + 1
    rest = value // 10
    while rest > 0:
        end += 1
        rest //= 10
    for place in range(end - 1, at - 1, -1):
        out[place] = ZERO + value % 10
        value //= 10
    return end


@njit(cache=True)
def _shortest(value):
    """Digits and decimal exponent of the shortest decimal (at most 9 digits) that reads back."""
    exponent = np.int64(math.floor(math.log10(value)))
    while POWERS[LARGEST_POWER + exponent] > value:
        exponent -= 1
    while POWERS[LARGEST_POWER + exponent + 1] <= value:
        exponent += 1
    for digits in range(1, 10):
        # Nine digits always identify a float32, even if this product is off by one in the last.
        power = exponent - digits + 1
        mantissa = np.int64(value * POWERS[LARGEST_POWER - power] + 0.5)
        again, sure = _decimal(mantissa, power, False)
        if digits == 9 or (sure == EXACT and again == np.float32(value)):
            break
    while mantissa % 10 == 0:
        mantissa //= 10
        power += 1
    return mantissa, power


@njit(cache=True)
def _write_number(value, out, at):
    if math.copysign(1.0, value) < 0:
        out[at] = MINUS
        at += 1
    value = abs(np.float64(value))
    if value == math.floor(value) and value < 1e7:
        return _write_integer(np.int64(value), out, at)
    mantissa, power = _shortest(value)
    if -14 <= power < 0:
        unit = np.int64(POWERS[LARGEST_POWER - power])
        at = _write_integer(mantissa // unit, out, at)
        out[at] = POINT
        rest = mantissa % unit
        for place in range(at - power, at, -1):
            out[place] = ZERO + rest % 10
            rest //= 10
        return at - power + 1
    at = _write_integer(mantissa, out, at)
    if power == 0:
        return at
    out[at] = LOWER_E
    at += 1
    if power < 0:
        out[at] = MINUS
        at += 1
    return _write_integer(abs(power), out, at)


@njit(cache=True)
def format_rows(first, last, x_indptr, x_indices, x_values, y_indptr, y_indices, out):
    """Rows first .. last-1 as text into ``out``; returns the number of bytes written."""
    at = 0
    for row in range(first, last):
        for entry in range(y_indptr[row], y_indptr[row + 1]):
            if entry > y_indptr[row]:
                out[at] = COMMA
                at += 1
            at = _write_integer(np.int64(y_indices[entry]), out, at)
        for entry in range(x_indptr[row], x_indptr[row + 1]):
            out[at] = BLANK
            at = _write_integer(np.int64(x_indices[entry]), out, at + 1)
            out[at] = COLON
            at = _write_number(x_values[entry], out, at + 1)
        out[at] = NEWLINE
        at += 1
    return at
