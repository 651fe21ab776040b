"""Sparse primitives for many labels side by side, in LLVM vectors; see ``sparse``.

A label is a lane of the vectors. There are LANES of them; a function that takes ``signs`` has as
many lanes as its integers have bits: 32, or 8 for few labels. The number of lanes does not change
the result of any.
"""

import platform

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from coattail.kernels.sparse import F32, I32, I64, feature, fused, pointer, unrolled

LANES = 32  # labels whose margins are accumulated side by side: four 8-wide registers

_I16 = ir.IntType(16)
_VEC = ir.VectorType(F32, LANES)


def _splat(builder, scalar, width=LANES):
    undefined = ir.Constant(ir.VectorType(F32, width), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
    zeros = ir.Constant(ir.VectorType(I32, width), [ir.Constant(I32, 0)] * width)
    return builder.shuffle_vector(first, undefined, zeros)


def _load_lanes(builder, pointer, width=LANES):
    vector = builder.load(builder.bitcast(pointer, ir.VectorType(F32, width).as_pointer()))
    vector.align = 4
    return vector


def _store_lanes(builder, vector, pointer):
    builder.store(vector, builder.bitcast(pointer, vector.type.as_pointer())).align = 4


def _sum_lanes(context, builder, sig, args, width):
    """Code of ``lanes``."""
    arrays = (pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4, 5, 6))
    ids, xs, weights, first, result = arrays

    def step(k, acc):
        offset = builder.mul(feature(builder, ids, k), ir.Constant(I64, width))
        at = _load_lanes(builder, builder.gep(weights, [offset]), width)
        x = _splat(builder, builder.load(builder.gep(xs, [k])), width)
        return fused(builder, x, at, acc)

    (total,) = unrolled(builder, args[2], args[3], 1, _load_lanes(builder, first, width), step)
    _store_lanes(builder, total, result)
    return context.get_dummy_value()


@intrinsic
def lanes(typing, indices, values, start, stop, W, bias, out):
    """``out[j] = bias[j] + sum of values[k] * W[indices[k], j]``, j < LANES; W is (words, LANES).

    Word after word in the order of the row: the same bits as a scalar loop of ``fma``.
    """
    sig = types.void(indices, values, types.int64, types.int64, W, bias, out)
    return sig, lambda *emit: _sum_lanes(*emit, LANES)


@intrinsic
def sum_lanes(typing, indices, values, start, stop, W, bias, out, signs):
    """``lanes`` for as many lanes as ``signs`` has bits; W is (words * lanes,)."""
    sig = types.void(indices, values, types.int64, types.int64, W, bias, out, signs)
    return sig, lambda *emit: _sum_lanes(*emit, signs.bitwidth)


@intrinsic
def add_lanes(typing, indices, values, start, stop, change, W, signs):
    """``W[indices[k], j] += values[k] * change[j]`` over the row, for every bit j of ``signs``."""
    sig = types.void(indices, values, types.int64, types.int64, change, W, signs)

    def codegen(context, builder, sig, args):
        arrays = (pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4, 5))
        ids, xs, steps, weights = arrays
        width = signs.bitwidth

        def step(k, added):
            offset = builder.mul(feature(builder, ids, k), ir.Constant(I64, width))
            place = builder.gep(weights, [offset])
            x = _splat(builder, builder.load(builder.gep(xs, [k])), width)
            new = fused(builder, x, added, _load_lanes(builder, place, width))
            _store_lanes(builder, new, place)
            return added

        unrolled(builder, args[2], args[3], 1, _load_lanes(builder, steps, width), step)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def visit_lanes(
    typing, signs, margins, square, own, half_pos, half_neg, small, moving, alpha, first, extremes,
    change, bias,
):  # fmt: skip
    """One step of dual descent on one row, for many labels; returns whether a variable moved.

    Bit j of ``signs`` is set if the row is positive for lane j. The step changes ``bias`` and the
    row's dual variables times signs, which begin at ``alpha[first]``. ``change`` receives their
    change. ``own`` is the part of ``square`` that belongs to words of no other row, which
    ``margins`` leave out. ``half_pos`` and ``half_neg`` are 1/(2C);
    ``moving`` is 1 for lanes that still descend, else 0; ``extremes`` (2, lanes) widens to hold the
    projected gradients.

    All vectors are as wide as those of ``sum_lanes`` and ``add_lanes``. The processor can pass on a
    store to the load that follows only if the store is at least as wide; otherwise the load waits
    until the store has reached the cache.
    """
    sig = types.boolean(
        signs, margins, types.float32, types.float32, half_pos, half_neg, types.float32,
        moving, alpha, types.int64, extremes, change, bias,
    )  # fmt: skip
    width = signs.bitwidth

    def codegen(context, builder, sig, args):
        def place(i):
            return pointer(context, builder, sig.args[i], args[i])

        def load(pointer):
            return _load_lanes(builder, pointer, width)

        def keep(vector, pointer):
            _store_lanes(builder, vector, pointer)

        def all_of(scalar):
            return _splat(builder, scalar, width)

        def choose(where, a, b):
            return builder.select(where, a, b)

        margin, pos, neg, moves = (load(place(i)) for i in (1, 4, 5, 7))
        vector = ir.VectorType(F32, width)
        zero, one, minus = (ir.Constant(vector, [v] * width) for v in (0.0, 1.0, -1.0))
        positive = builder.bitcast(args[0], ir.VectorType(ir.IntType(1), width))
        sign, half = choose(positive, one, minus), choose(positive, pos, neg)
        kept = builder.gep(place(8), [args[9]])
        signed = load(kept)
        old = builder.fmul(sign, signed)
        gradient = builder.fsub(builder.fmul(sign, margin), one)
        # The weights of a row's own words are values times sign times alpha, so that their part of
        # the margin is own * sign * alpha.
        pull = builder.fadd(all_of(args[3]), half)
        gradient = builder.fadd(gradient, builder.fmul(old, pull))
        down = choose(builder.fcmp_ordered("<", gradient, zero), gradient, zero)
        projected = choose(builder.fcmp_ordered(">", old, zero), gradient, down)
        for row, order in enumerate((">", "<")):
            at = builder.gep(place(10), [ir.Constant(I64, row * width)])
            known = load(at)
            keep(choose(builder.fcmp_ordered(order, projected, known), projected, known), at)
        whole = builder.fadd(all_of(args[2]), half)
        new = builder.fsub(old, builder.fdiv(gradient, whole))
        new = choose(builder.fcmp_ordered(">", new, zero), new, zero)
        far = builder.or_(
            builder.fcmp_ordered(">", projected, all_of(args[6])),
            builder.fcmp_ordered("<", projected, builder.fneg(all_of(args[6]))),
        )
        delta = builder.fmul(choose(far, moves, zero), builder.fsub(new, old))
        step = builder.fmul(delta, sign)
        keep(builder.fadd(signed, step), kept)
        keep(step, place(11))
        keep(builder.fadd(load(place(12)), step), place(12))
        mask = ir.IntType(width)
        moved = builder.bitcast(builder.fcmp_unordered("!=", delta, zero), mask)
        return builder.icmp_unsigned("!=", moved, ir.Constant(mask, 0))

    return sig, codegen


@intrinsic
def width(typing, signs):
    """Lanes of an array of ``signs``, a constant of its type."""
    bits = signs.dtype.bitwidth
    return types.int64(signs), lambda *emit: ir.Constant(I64, bits)


def _narrow_lanes(half):
    """``lanes`` with W in 16 bits, half-precision floats or integers: half the memory to read."""

    @intrinsic
    def margins(typing, indices, values, start, stop, W, bias, out):
        sig = types.void(indices, values, types.int64, types.int64, W, bias, out)

        def codegen(context, builder, sig, args):
            arrays = (pointer(context, builder, sig.args[i], args[i]) for i in (0, 1, 4, 5, 6))
            ids, xs, weights, first, result = arrays
            short = ir.VectorType(ir.HalfType() if half else _I16, LANES)

            def step(k, acc):
                offset = builder.mul(feature(builder, ids, k), ir.Constant(I64, LANES))
                place = builder.bitcast(builder.gep(weights, [offset]), short.as_pointer())
                at = builder.load(place)
                at.align = 2
                wide = builder.fpext(at, _VEC) if half else builder.sitofp(at, _VEC)
                return fused(
                    builder, _splat(builder, builder.load(builder.gep(xs, [k]))), wide, acc
                )

            (total,) = unrolled(builder, args[2], args[3], 1, _load_lanes(builder, first), step)
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
            weights, result = (pointer(context, builder, sig.args[i], args[i]) for i in (0, 3))
            wide = _load_lanes(builder, builder.gep(weights, [args[1]]))
            wide = builder.fmul(wide, _splat(builder, args[2]))
            integers = ir.VectorType(_I16, LANES)
            if half:
                narrow = builder.fptrunc(wide, ir.VectorType(ir.HalfType(), LANES))
                narrow = builder.bitcast(narrow, integers)
            else:
                narrow = builder.fptosi(wide, integers)
            offset = builder.add(builder.mul(args[1], ir.Constant(I64, LANES)), args[4])
            base = builder.gep(result, [offset])
            for u in range(LANES):
                value = builder.extract_element(narrow, ir.Constant(I32, u))
                builder.store(value, builder.gep(base, [ir.Constant(I64, u * LANES)]))
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
                loaded.append(_load_lanes(builder, pointer(context, builder, typ, value)))
        mask = builder.fcmp_ordered(">", *loaded)
        return builder.zext(builder.bitcast(mask, ir.IntType(LANES)), I64)

    return sig, codegen


@intrinsic
def large(typing, values, first, scale, least, signs):
    """Bit j is set where ``abs(scale * values[first + j]) >= least``, for every bit j of signs."""
    sig = types.uint64(values, types.int64, types.float32, types.float32, signs)
    width = signs.bitwidth

    def codegen(context, builder, sig, args):
        base = pointer(context, builder, sig.args[0], args[0])
        loaded = _load_lanes(builder, builder.gep(base, [args[1]]), width)
        loaded = builder.fmul(loaded, _splat(builder, args[2], width))
        least = _splat(builder, args[3], width)
        mask = builder.or_(
            builder.fcmp_ordered(">=", loaded, least),
            builder.fcmp_ordered("<=", loaded, builder.fneg(least)),
        )
        return builder.zext(builder.bitcast(mask, ir.IntType(width)), I64)

    return sig, codegen
