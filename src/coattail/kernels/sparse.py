"""Sparse primitives written as LLVM code, because numba leaves gathers scalar.

The functions below are numba intrinsics, which only compiled code can call. They take arrays, not
addresses, so that the arrays stay alive while they work. They check no bounds. A row is
``indices[start:stop]`` and ``values[start:stop]``; the indices of a row must be distinct.
``lanes`` has the primitives for many labels side by side; it builds on the first functions here.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()


def pointer(context, builder, typ, value):
    return context.make_array(typ)(context, builder, value).data


def feature(builder, indices, k):
    return builder.zext(builder.load(builder.gep(indices, [k])), I64)


def fused(builder, a, b, c):
    """a * b + c in one rounding, so that every path to a score gives the same bits."""
    if a.type == F32:
        return builder.fma(a, b, c)
    name = f"llvm.fma.v{a.type.count}f32"
    if name not in builder.module.globals:
        ir.Function(builder.module, ir.FunctionType(a.type, [a.type] * 3), name)
    return builder.call(builder.module.globals[name], [a, b, c])


def unrolled(builder, start, stop, unroll, init, step):
    """``for k in range(start, stop)`` with ``unroll`` independent accumulators; their list.

    ``step(k, accumulator)`` emits one iteration and returns the new accumulator.
    """
    entry = builder.basic_block
    head, body, tail_head, tail_body, end = (
        builder.append_basic_block(name) for name in ("head", "body", "tailhead", "tail", "end")
    )
    last = builder.sub(stop, ir.Constant(I64, unroll - 1))
    builder.branch(head)
    builder.position_at_end(head)
    k = builder.phi(I64)
    k.add_incoming(start, entry)
    accumulators = [builder.phi(init.type) for _ in range(unroll)]
    for accumulator in accumulators:
        accumulator.add_incoming(init, entry)
    builder.cbranch(builder.icmp_signed("<", k, last), body, tail_head)
    builder.position_at_end(body)
    for u, accumulator in enumerate(accumulators):
        new = step(builder.add(k, ir.Constant(I64, u)), accumulator)
        accumulator.add_incoming(new, body)
    k.add_incoming(builder.add(k, ir.Constant(I64, unroll)), body)
    builder.branch(head)
    builder.position_at_end(tail_head)
    rest = builder.phi(I64)
    rest.add_incoming(k, head)
    first = builder.phi(init.type)
    first.add_incoming(accumulators[0], head)
    builder.cbranch(builder.icmp_signed("<", rest, stop), tail_body, end)
    builder.position_at_end(tail_body)
    first.add_incoming(step(rest, first), tail_body)
    rest.add_incoming(builder.add(rest, ir.Constant(I64, 1)), tail_body)
    builder.branch(tail_head)
    builder.position_at_end(end)
    return [first, *accumulators[1:]]


@intrinsic
def dot(typing, indices, values, start, stop, w):
    """Sum of ``values[k] * w[indices[k]]`` over the row."""
    sig = types.float32(indices, values, types.int64, types.int64, w)

    def codegen(context, builder, sig, args):
        ids, xs, weights = (pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4))

        def step(k, acc):
            x = builder.load(builder.gep(xs, [k]))
            at = builder.load(builder.gep(weights, [feature(builder, ids, k)]))
            return fused(builder, x, at, acc)

        sums = unrolled(builder, args[2], args[3], 4, ir.Constant(F32, 0.0), step)
        pairs = builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3])
        return builder.fadd(*pairs)

    return sig, codegen


@intrinsic
def dot_pair(typing, indices, values, start, stop, W):
    """Sums of ``values[k] * W[indices[k], j]`` over the row, j < 2; W is (words, 2)."""
    sig = types.UniTuple(types.float32, 2)(indices, values, types.int64, types.int64, W)
    pair = ir.VectorType(F32, 2)

    def codegen(context, builder, sig, args):
        ids, xs, weights = (pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4))

        def step(k, acc):
            offset = builder.shl(feature(builder, ids, k), ir.Constant(I64, 1))
            place = builder.bitcast(builder.gep(weights, [offset]), pair.as_pointer())
            at = builder.load(place)
            at.align = 4
            x = builder.load(builder.gep(xs, [k]))
            both = ir.Constant(pair, ir.Undefined)
            for j in range(2):
                both = builder.insert_element(both, x, ir.Constant(I32, j))
            return fused(builder, both, at, acc)

        sums = unrolled(builder, args[2], args[3], 4, ir.Constant(pair, [0.0, 0.0]), step)
        total = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
        ends = [builder.extract_element(total, ir.Constant(I32, j)) for j in range(2)]
        return context.make_tuple(builder, sig.return_type, ends)

    return sig, codegen


@intrinsic
def axpy(typing, indices, values, start, stop, scale, w):
    """``w[indices[k]] += scale * values[k]`` over the row."""
    sig = types.void(indices, values, types.int64, types.int64, types.float32, w)

    def codegen(context, builder, sig, args):
        ids, xs, weights = (pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 5))

        def group(k, size):
            # Distinct indices: all loads of a group may go ahead of its stores.
            new = []
            for u in range(size):
                at = builder.add(k, ir.Constant(I64, u))
                place = builder.gep(weights, [feature(builder, ids, at)])
                x = builder.load(builder.gep(xs, [at]))
                new.append((place, fused(builder, args[4], x, builder.load(place))))
            for place, value in new:
                builder.store(value, place)

        def loop(first, last, size):
            entry = builder.basic_block
            head, body, end = (builder.append_basic_block(n) for n in ("head", "body", "end"))
            limit = builder.sub(last, ir.Constant(I64, size - 1))
            builder.branch(head)
            builder.position_at_end(head)
            k = builder.phi(I64)
            k.add_incoming(first, entry)
            builder.cbranch(builder.icmp_signed("<", k, limit), body, end)
            builder.position_at_end(body)
            group(k, size)
            k.add_incoming(builder.add(k, ir.Constant(I64, size)), body)
            builder.branch(head)
            builder.position_at_end(end)
            return k

        loop(loop(args[2], args[3], 4), args[3], 1)
        return context.get_dummy_value()

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
        return fused(builder, *args)

    return sig, codegen


@intrinsic
def prefetch(typing, array, position):
    """Ask for ``array[position]`` to be brought near; no effect on any value."""
    sig = types.void(array, types.int64)

    def codegen(context, builder, sig, args):
        base = pointer(context, builder, sig.args[0], args[0])
        byte = ir.IntType(8).as_pointer()
        fn = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
        )
        place = builder.bitcast(builder.gep(base, [args[1]]), byte)
        read, near, data = (ir.Constant(I32, v) for v in (0, 3, 1))
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


def constant(*arrays):
    """Read-only views: one compiled version of a kernel serves mapped and ordinary arrays."""
    views = tuple(np.ascontiguousarray(array)[:] for array in arrays)
    for view in views:
        view.flags.writeable = False
    return views
