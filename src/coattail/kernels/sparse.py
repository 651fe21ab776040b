"""Sparse primitives written in LLVM vectors: numba's own vectoriser leaves gathers scalar.

The functions below are numba intrinsics: they can be called only from compiled code. They take
whole arrays, not addresses, so the arrays stay alive while they work, and they check no bounds.
Rows are ``indices[start:stop]``, ``values[start:stop]``; indices within a row must be distinct.
"""

import platform

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.extending import intrinsic

LANES = 32  # labels whose margins are accumulated side by side: four 8-wide registers

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_VEC = ir.VectorType(_F32, LANES)


def _pointer(context, builder, typ, value):
    return context.make_array(typ)(context, builder, value).data


def _feature(builder, indices, k):
    return builder.zext(builder.load(builder.gep(indices, [k])), _I64)


def _fma(builder, a, b, c):
    """a * b + c in one rounding, so that every path to a score gives the same bits."""
    if a.type == _F32:
        return builder.fma(a, b, c)
    name = f"llvm.fma.v{a.type.count}f32"
    if name not in builder.module.globals:
        ir.Function(builder.module, ir.FunctionType(a.type, [a.type] * 3), name)
    return builder.call(builder.module.globals[name], [a, b, c])


def _splat(builder, scalar):
    undefined = ir.Constant(_VEC, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, LANES), [ir.Constant(_I32, 0)] * LANES)
    return builder.shuffle_vector(first, undefined, zeros)


def _load_lanes(builder, pointer):
    vector = builder.load(builder.bitcast(pointer, _VEC.as_pointer()))
    vector.align = 4
    return vector


def _unrolled(builder, start, stop, unroll, init, step):
    """``for k in range(start, stop)`` with ``unroll`` independent accumulators; their list.

    ``step(k, accumulator)`` emits one iteration and returns the new accumulator.
    """
    entry = builder.basic_block
    head, body, tail_head, tail_body, end = (
        builder.append_basic_block(name) for name in ("head", "body", "tailhead", "tail", "end")
    )
    last = builder.sub(stop, ir.Constant(_I64, unroll - 1))
    builder.branch(head)
    builder.position_at_end(head)
    k = builder.phi(_I64)
    k.add_incoming(start, entry)
    accumulators = [builder.phi(init.type) for _ in range(unroll)]
    for accumulator in accumulators:
        accumulator.add_incoming(init, entry)
    builder.cbranch(builder.icmp_signed("<", k, last), body, tail_head)
    builder.position_at_end(body)
    for u, accumulator in enumerate(accumulators):
        new = step(builder.add(k, ir.Constant(_I64, u)), accumulator)
        accumulator.add_incoming(new, body)
    k.add_incoming(builder.add(k, ir.Constant(_I64, unroll)), body)
    builder.branch(head)
    builder.position_at_end(tail_head)
    rest = builder.phi(_I64)
    rest.add_incoming(k, head)
    first = builder.phi(init.type)
    first.add_incoming(accumulators[0], head)
    builder.cbranch(builder.icmp_signed("<", rest, stop), tail_body, end)
    builder.position_at_end(tail_body)
    first.add_incoming(step(rest, first), tail_body)
    rest.add_incoming(builder.add(rest, ir.Constant(_I64, 1)), tail_body)
    builder.branch(tail_head)
    builder.position_at_end(end)
    return [first, *accumulators[1:]]


@intrinsic
def dot(typing, indices, values, start, stop, w):
    """Sum of ``values[k] * w[indices[k]]`` over the row."""
    sig = types.float32(indices, values, types.int64, types.int64, w)

    def codegen(context, builder, sig, args):
        ids, xs, weights = (_pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4))

        def step(k, acc):
            x = builder.load(builder.gep(xs, [k]))
            at = builder.load(builder.gep(weights, [_feature(builder, ids, k)]))
            return _fma(builder, x, at, acc)

        sums = _unrolled(builder, args[2], args[3], 4, ir.Constant(_F32, 0.0), step)
        pairs = builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3])
        return builder.fadd(*pairs)

    return sig, codegen


@intrinsic
def dot_pair(typing, indices, values, start, stop, W):
    """Sums of ``values[k] * W[indices[k], j]`` over the row, j < 2; W is (words, 2)."""
    sig = types.UniTuple(types.float32, 2)(indices, values, types.int64, types.int64, W)
    pair = ir.VectorType(_F32, 2)

    def codegen(context, builder, sig, args):
        ids, xs, weights = (_pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4))

        def step(k, acc):
            offset = builder.shl(_feature(builder, ids, k), ir.Constant(_I64, 1))
            place = builder.bitcast(builder.gep(weights, [offset]), pair.as_pointer())
            at = builder.load(place)
            at.align = 4
            x = builder.load(builder.gep(xs, [k]))
            both = ir.Constant(pair, ir.Undefined)
            for j in range(2):
                both = builder.insert_element(both, x, ir.Constant(_I32, j))
            return _fma(builder, both, at, acc)

        sums = _unrolled(builder, args[2], args[3], 4, ir.Constant(pair, [0.0, 0.0]), step)
        total = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
        ends = [builder.extract_element(total, ir.Constant(_I32, j)) for j in range(2)]
        return context.make_tuple(builder, sig.return_type, ends)

    return sig, codegen


@intrinsic
def axpy(typing, indices, values, start, stop, scale, w):
    """``w[indices[k]] += scale * values[k]`` over the row."""
    sig = types.void(indices, values, types.int64, types.int64, types.float32, w)

    def codegen(context, builder, sig, args):
        ids, xs, weights = (_pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 5))

        def group(k, size):
            # Distinct indices: all loads of a group may go ahead of its stores.
            new = []
            for u in range(size):
                at = builder.add(k, ir.Constant(_I64, u))
                place = builder.gep(weights, [_feature(builder, ids, at)])
                x = builder.load(builder.gep(xs, [at]))
                new.append((place, _fma(builder, args[4], x, builder.load(place))))
            for place, value in new:
                builder.store(value, place)

        def loop(first, last, size):
            entry = builder.basic_block
            head, body, end = (builder.append_basic_block(n) for n in ("head", "body", "end"))
            limit = builder.sub(last, ir.Constant(_I64, size - 1))
            builder.branch(head)
            builder.position_at_end(head)
            k = builder.phi(_I64)
            k.add_incoming(first, entry)
            builder.cbranch(builder.icmp_signed("<", k, limit), body, end)
            builder.position_at_end(body)
            group(k, size)
            k.add_incoming(builder.add(k, ir.Constant(_I64, size)), body)
            builder.branch(head)
            builder.position_at_end(end)
            return k

        loop(loop(args[2], args[3], 4), args[3], 1)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def lanes(typing, indices, values, start, stop, W, bias, out):
    """``out[j] = bias[j] + sum of values[k] * W[indices[k], j]``, j < LANES; W is (words, LANES).

    Word after word in the order of the row: the same bits as a scalar loop of ``fma``.
    """
    sig = types.void(indices, values, types.int64, types.int64, W, bias, out)

    def codegen(context, builder, sig, args):
        arrays = (_pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4, 5, 6))
        ids, xs, weights, first, result = arrays

        def step(k, acc):
            offset = builder.mul(_feature(builder, ids, k), ir.Constant(_I64, LANES))
            at = _load_lanes(builder, builder.gep(weights, [offset]))
            x = _splat(builder, builder.load(builder.gep(xs, [k])))
            return _fma(builder, x, at, acc)

        (total,) = _unrolled(builder, args[2], args[3], 1, _load_lanes(builder, first), step)
        builder.store(total, builder.bitcast(result, _VEC.as_pointer())).align = 4
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def add_lanes(typing, indices, values, start, stop, change, W):
    """``W[indices[k], j] += values[k] * change[j]`` over the row, j < LANES."""
    sig = types.void(indices, values, types.int64, types.int64, change, W)

    def codegen(context, builder, sig, args):
        arrays = (_pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4, 5))
        ids, xs, steps, weights = arrays

        def step(k, added):
            offset = builder.mul(_feature(builder, ids, k), ir.Constant(_I64, LANES))
            place = builder.gep(weights, [offset])
            x = _splat(builder, builder.load(builder.gep(xs, [k])))
            new = _fma(builder, x, added, _load_lanes(builder, place))
            builder.store(new, builder.bitcast(place, _VEC.as_pointer())).align = 4
            return added

        _unrolled(builder, args[2], args[3], 1, _load_lanes(builder, steps), step)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def visit_lanes(
    typing, signs, margins, square, half_pos, half_neg, small, moving, alpha, first, extremes,
    change, bias,
):  # fmt: skip
    """One row's step of dual descent for LANES labels; whether any dual variable moved.

    ``alpha[first:first + LANES]`` belongs to the row and changes, and so does ``bias``; bit j of
    ``signs`` (uint32) tells whether the row is positive for lane j; ``half_pos`` and ``half_neg``
    are 1/(2C); ``moving`` is 1 for lanes that descend, else 0. ``extremes`` (2, LANES) widens to
    hold the projected gradients; ``change`` receives what margins per product gain.

    All in vectors as wide as those of ``lanes`` and ``add_lanes``: a store that is narrower than
    the load after it cannot be passed on, and the load waits until all stores before it are done.
    """
    sig = types.boolean(
        types.uint32, margins, types.float32, half_pos, half_neg, types.float32, moving, alpha,
        types.int64, extremes, change, bias,
    )  # fmt: skip

    def codegen(context, builder, sig, args):
        def place(i):
            return _pointer(context, builder, sig.args[i], args[i])

        def keep(vector, pointer):
            builder.store(vector, builder.bitcast(pointer, _VEC.as_pointer())).align = 4

        def choose(where, a, b):
            return builder.select(where, a, b)

        margin, pos, neg, moves = (_load_lanes(builder, place(i)) for i in (1, 3, 4, 6))
        zero, one, minus = (ir.Constant(_VEC, [v] * LANES) for v in (0.0, 1.0, -1.0))
        positive = builder.bitcast(args[0], ir.VectorType(ir.IntType(1), LANES))
        sign, half = choose(positive, one, minus), choose(positive, pos, neg)
        own = builder.gep(place(7), [args[8]])
        old = _load_lanes(builder, own)
        gradient = builder.fsub(builder.fmul(sign, margin), one)
        gradient = builder.fadd(gradient, builder.fmul(old, half))
        down = choose(builder.fcmp_ordered("<", gradient, zero), gradient, zero)
        projected = choose(builder.fcmp_ordered(">", old, zero), gradient, down)
        for row, order in enumerate((">", "<")):
            at = builder.gep(place(9), [ir.Constant(_I64, row * LANES)])
            known = _load_lanes(builder, at)
            keep(choose(builder.fcmp_ordered(order, projected, known), projected, known), at)
        whole = builder.fadd(_splat(builder, args[2]), half)
        new = builder.fsub(old, builder.fdiv(gradient, whole))
        new = choose(builder.fcmp_ordered(">", new, zero), new, zero)
        far = builder.or_(
            builder.fcmp_ordered(">", projected, _splat(builder, args[5])),
            builder.fcmp_ordered("<", projected, builder.fneg(_splat(builder, args[5]))),
        )
        delta = builder.fmul(choose(far, moves, zero), builder.fsub(new, old))
        step = builder.fmul(delta, sign)
        keep(builder.fadd(old, delta), own)
        keep(step, place(10))
        keep(builder.fadd(_load_lanes(builder, place(11)), step), place(11))
        moved = builder.bitcast(builder.fcmp_unordered("!=", delta, zero), _I32)
        return builder.icmp_unsigned("!=", moved, ir.Constant(_I32, 0))

    return sig, codegen


def _narrow_lanes(half):
    """``lanes`` with W in 16 bits, half-precision floats or integers: half the memory to read."""

    @intrinsic
    def margins(typing, indices, values, start, stop, W, bias, out):
        sig = types.void(indices, values, types.int64, types.int64, W, bias, out)

        def codegen(context, builder, sig, args):
            arrays = (_pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4, 5, 6))
            ids, xs, weights, first, result = arrays
            short = ir.VectorType(ir.HalfType() if half else _I16, LANES)

            def step(k, acc):
                offset = builder.mul(_feature(builder, ids, k), ir.Constant(_I64, LANES))
                place = builder.bitcast(builder.gep(weights, [offset]), short.as_pointer())
                at = builder.load(place)
                at.align = 2
                wide = builder.fpext(at, _VEC) if half else builder.sitofp(at, _VEC)
                return _fma(builder, _splat(builder, builder.load(builder.gep(xs, [k]))), wide, acc)

            (total,) = _unrolled(builder, args[2], args[3], 1, _load_lanes(builder, first), step)
            builder.store(total, builder.bitcast(result, _VEC.as_pointer())).align = 4
            return context.get_dummy_value()

        return sig, codegen

    return margins


def _narrow_column(half):
    """``W[first + u, lane] = scale * w[first + u]`` in 16 bits for LANES words u."""

    @intrinsic
    def column(typing, w, first, scale, W, lane):
        sig = types.void(w, types.int64, types.float32, W, types.int64)

        def codegen(context, builder, sig, args):
            weights, result = (_pointer(context, builder, sig.args[i], args[i]) for i in (0, 3))
            wide = _load_lanes(builder, builder.gep(weights, [args[1]]))
            wide = builder.fmul(wide, _splat(builder, args[2]))
            integers = ir.VectorType(_I16, LANES)
            if half:
                narrow = builder.fptrunc(wide, ir.VectorType(ir.HalfType(), LANES))
                narrow = builder.bitcast(narrow, integers)
            else:
                narrow = builder.fptosi(wide, integers)
            offset = builder.add(builder.mul(args[1], ir.Constant(_I64, LANES)), args[4])
            base = builder.gep(result, [offset])
            for u in range(LANES):
                value = builder.extract_element(narrow, ir.Constant(_I32, u))
                builder.store(value, builder.gep(base, [ir.Constant(_I64, u * LANES)]))
            return context.get_dummy_value()

        return sig, codegen

    return column


def _has_half():
    """Whether the processor converts half precision; without it LLVM would call what is missing."""
    return platform.machine() not in ("x86_64", "AMD64") or binding.get_host_cpu_features().get(
        "f16c", False
    )


narrow_lanes, narrow_column = _narrow_lanes(_has_half()), _narrow_column(_has_half())
LARGEST = np.float32(1024.0 if _has_half() else 32767.0)  # largest narrow weight


@intrinsic
def above(typing, values, thresholds):
    """Bit j is set where ``values[j] > thresholds[j]``, j < LANES; or above one float32 for all."""
    sig = types.uint64(values, thresholds)

    def codegen(context, builder, sig, args):
        loaded = []
        for typ, value in zip(sig.args, args, strict=True):
            if isinstance(typ, types.Float):
                loaded.append(_splat(builder, value))
            else:
                loaded.append(_load_lanes(builder, _pointer(context, builder, typ, value)))
        mask = builder.fcmp_ordered(">", *loaded)
        return builder.zext(builder.bitcast(mask, ir.IntType(LANES)), _I64)

    return sig, codegen


@intrinsic
def large(typing, values, first, least):
    """Bit j is set where ``abs(values[first + j]) >= least``, j < LANES."""
    sig = types.uint64(values, types.int64, types.float32)

    def codegen(context, builder, sig, args):
        base = _pointer(context, builder, sig.args[0], args[0])
        loaded = _load_lanes(builder, builder.gep(base, [args[1]]))
        least = _splat(builder, args[2])
        mask = builder.or_(
            builder.fcmp_ordered(">=", loaded, least),
            builder.fcmp_ordered("<=", loaded, builder.fneg(least)),
        )
        return builder.zext(builder.bitcast(mask, ir.IntType(LANES)), _I64)

    return sig, codegen


@intrinsic
def lowest_bit(typing, mask):
    """Position of the lowest set bit of a non-zero mask."""
    sig = types.int64(types.uint64)

    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return sig, codegen


@intrinsic
def count_bits(typing, mask):
    """Number of set bits."""
    sig = types.int64(types.uint64)

    def codegen(context, builder, sig, args):
        return builder.ctpop(args[0])

    return sig, codegen


@intrinsic
def fma(typing, a, b, c):
    """a * b + c in one rounding, float32."""
    sig = types.float32(types.float32, types.float32, types.float32)

    def codegen(context, builder, sig, args):
        return _fma(builder, *args)

    return sig, codegen


@intrinsic
def prefetch(typing, array, position):
    """Ask for ``array[position]`` to be brought near; no effect on any value."""
    sig = types.void(array, types.int64)

    def codegen(context, builder, sig, args):
        pointer = _pointer(context, builder, sig.args[0], args[0])
        byte = ir.IntType(8).as_pointer()
        fn = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        )
        place = builder.bitcast(builder.gep(pointer, [args[1]]), byte)
        read, near, data = (ir.Constant(_I32, v) for v in (0, 3, 1))
        builder.call(fn, [place, read, near, data])
        return context.get_dummy_value()

    return sig, codegen


@njit(nogil=True, cache=True)
def mix(seed, key):
    """A non-zero 64-bit state from a seed and a key (splitmix)."""
    z = types.uint64(seed) * types.uint64(0x9E3779B97F4A7C15) + types.uint64(key)
    z += types.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> types.uint64(30))) * types.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> types.uint64(27))) * types.uint64(0x94D049BB133111EB)
    return (z ^ (z >> types.uint64(31))) | types.uint64(1)


@njit(nogil=True, cache=True)
def step(state):
    """The next state of a 64-bit xorshift generator."""
    x = types.uint64(state)
    x ^= x << types.uint64(13)
    x ^= x >> types.uint64(7)
    return x ^ (x << types.uint64(17))


@njit(nogil=True, cache=True)
def below(state, limit):
    """A number in [0, limit) from a state; limit fits 32 bits."""
    high = types.uint64(state) >> types.uint64(32)
    return types.int64((high * types.uint64(limit)) >> types.uint64(32))


@njit(nogil=True, cache=True)
def grown(array, needed):
    """The array, or a copy with room for at least ``needed`` values."""
    if needed <= array.shape[0]:
        return array
    larger = np.empty(max(needed, 2 * array.shape[0]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@njit(nogil=True, cache=True)
def squares(indptr, values, out):
    """|x|^2 + 1 of every row into ``out`` (n,)."""
    for i in range(out.shape[0]):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(values[p] * values[p])
        out[i] = total + 1.0


@njit(nogil=True, cache=True)
def compact(indptr, indices, values, rows, place, sub_indptr, sub_indices, sub_values, words):
    """Copy some rows and renumber their words by first occurrence; returns the number of words.

    ``place`` (words,) is scratch filled with -1, and left so. ``words`` receives the old numbers.
    """
    found = 0
    k = 0
    sub_indptr[0] = 0
    for r in range(rows.shape[0]):
        if r + 2 < rows.shape[0]:
            ahead = rows[r + 2]
            for p in range(indptr[ahead], indptr[ahead + 1], 16):  # a cache line
                prefetch(indices, p)
                prefetch(values, p)
        i = rows[r]
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p]
            if place[f] < 0:
                place[f] = found
                words[found] = f
                found += 1
            sub_indices[k] = place[f]
            sub_values[k] = values[p]
            k += 1
        sub_indptr[r + 1] = k
    for w in range(found):
        place[words[w]] = -1
    return found


@njit(nogil=True, cache=True)
def in_order(numbers, place, bits, groups, order):
    """Places of distinct numbers in increasing order of these, into ``order``.

    A number is a bit of ``bits``, whose words are bits of ``groups``: far cheaper than sorting, and
    the cost is that of the numbers. ``place`` is scratch of -1, the others of zeros; left so.
    """
    six, low = np.uint64(6), np.uint64(63)
    for k in range(numbers.shape[0]):
        word = np.uint64(numbers[k])
        place[numbers[k]] = k
        bits[word >> six] |= np.uint64(1) << (word & low)
        word >>= six
        groups[word >> six] |= np.uint64(1) << (word & low)
    found = 0
    for g in range(groups.shape[0]):
        while groups[g]:
            w = 64 * g + lowest_bit(groups[g])
            groups[g] &= groups[g] - np.uint64(1)
            while bits[w]:
                number = 64 * w + lowest_bit(bits[w])
                bits[w] &= bits[w] - np.uint64(1)
                order[found] = place[number]
                place[number] = -1
                found += 1


def constant(*arrays):
    """Read-only views: one compiled version of a kernel serves mapped and ordinary arrays."""
    views = tuple(np.ascontiguousarray(array)[:] for array in arrays)
    for view in views:
        view.flags.writeable = False
    return views
