"""Labels into nested clusters: the levels from which a label tree is numbered."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Parts, parts
from coattail.errors import ConfigError
from coattail.kernels import cluster, node_texts
from coattail.kernels.compact_rows import compact
from coattail.kernels.lanes import LANES
from coattail.kernels.runtime import pool
from coattail.kernels.runtime.scratch import kept
from coattail.kernels.sparse import constant
from coattail.labels.tree import Tree
from coattail.labels.tree_params import BalancedTree, KmeansTree, ShallowTree

Clusters = list[NDArray[np.int32]]
LAID_ANEW = 16  # clusters of a level before which rows are laid out anew
TASKS = 64  # parts of a level that threads take in turn


def partitions(
    params: BalancedTree | KmeansTree | ShallowTree,
    V: sp.csr_matrix,
    seen: NDArray[np.int32],
    seed: int,
) -> list[Clusters]:
    """Clusters level by level, the root's single one first; V holds unit rows, one per label."""
    if isinstance(params, KmeansTree):
        return _unbalanced(params, V, seen, seed)
    levels = _halved(params, V, seen, seed)
    return _shallow(params, levels) if isinstance(params, ShallowTree) else levels


def _halved(
    params: BalancedTree | ShallowTree, V: sp.csr_matrix, seen: NDArray[np.int32], seed: int
) -> list[Clusters]:
    """Halve every cluster of a level until all fit a leaf; sizes in a level differ by at most 1."""
    rows, n_words, names = parts(V), V.shape[1], np.arange(V.shape[0], dtype=np.int32)
    members, bounds = seen.copy(), np.array([0, len(seen)])  # of all clusters, one behind another
    limits = (params.tolerance, params.max_iterations)

    def halve(some: tuple[int, int]) -> None:
        first, last = some
        own = constant(bounds[first : last + 1])
        with kept("sums", 2 * n_words, np.float32) as sums:
            cluster.halve_each(
                *rows, sums.reshape(-1, 2), members, *own, seed, key + first, *limits
            )

    levels, key = [[seen]], 0
    while np.diff(bounds).max() > params.leaf:
        n = len(bounds) - 1
        if n == LAID_ANEW:
            # Cluster by cluster, and words in that order, too: those of a cluster share the cache.
            (rows, n_words), names = _alone(rows, n_words, members), names[members]
            members = np.arange(len(members), dtype=np.int32)
        list(pool.each(halve, pool.chunks(n, -(-n // TASKS))))
        key += n
        # Unique: where some clusters have one label and others two, the former stay.
        bounds = np.unique(np.concatenate([bounds, bounds[:-1] + (np.diff(bounds) + 1) // 2]))
        levels.append(np.split(names[members], bounds[1:-1]))
    return levels


def _shallow(params: ShallowTree, levels: list[Clusters]) -> list[Clusters]:
    """Keep the finest level and every log2(group)-th above it, at most ``levels`` of them."""
    step = params.group.bit_length() - 1
    if params.group != 1 << step:
        raise ConfigError(f"build_plt: group is {params.group}; wanted a power of two")
    kept = levels[:0:-step][: params.levels]  # finest first, without the root
    return [levels[0], *kept[::-1]]


def _unbalanced(
    params: KmeansTree, V: sp.csr_matrix, seen: NDArray[np.int32], seed: int
) -> list[Clusters]:
    """Split clusters larger than a leaf into at most k, ``levels`` times; others stay."""
    rng = np.random.default_rng(seed)
    levels, rows = [[seen]], parts(V)
    for _ in range(params.levels):
        next_level: Clusters = []
        for members in levels[-1]:
            if len(members) > params.leaf:
                # Only the words of these labels: centres over all words would cost more than they.
                own, n_words = _alone(rows, V.shape[1], members)
                found = _kmeans(params, own, n_words, np.arange(len(members), dtype=np.int32), rng)
                next_level += [members[part] for part in found]
        if not next_level:
            break
        levels.append(next_level)
    return levels


def _alone(rows: Parts, n_words: int, members: NDArray[np.int32]) -> tuple[Parts, int]:
    """The rows of some labels with only the words they have, and the number of those."""
    arrays = constant(*rows)
    nnz = int((arrays[0][members + 1] - arrays[0][members]).sum())
    own = Parts(
        np.empty(len(members) + 1, np.int64), np.empty(nnz, np.int32), np.empty(nnz, np.float32)
    )
    place, words = np.full(n_words, -1, np.int32), np.empty(min(nnz, n_words), np.int32)
    return own, compact(*arrays, *constant(members), place, *own, words)


def _kmeans(
    params: KmeansTree,
    rows: Parts,
    n_words: int,
    members: NDArray[np.int32],
    rng: np.random.Generator,
) -> Clusters:
    """Spherical k-means; empty clusters vanish, single labels join their next best cluster."""
    k = min(params.k, len(members))
    blocks = -(-k // LANES)
    W = np.zeros((blocks, n_words, LANES), np.float32)
    allowed = np.zeros(blocks * LANES, bool)
    allowed[:k] = True
    # Start: k distinct labels are the centres.
    chosen = members[rng.choice(len(members), k, replace=False)].astype(np.int32)
    assigned, previous = np.arange(k, dtype=np.int32), -np.inf
    _place(rows, chosen, assigned, W)
    for _ in range(params.max_iterations):
        assigned, cosines = _assign(rows, members, W, allowed)
        mean = float(cosines.mean(dtype=np.float64))
        if mean - previous < params.tolerance:
            break
        previous = mean
        _place(rows, members, assigned, W)
    sizes = np.bincount(assigned, minlength=len(allowed))
    single = sizes[assigned] == 1
    if single.any() and (sizes > 1).any():
        assigned[single], _ = _assign(rows, members[single], W, sizes > 1)
    found = (members[assigned == j] for j in range(k))
    return [cluster_ for cluster_ in found if len(cluster_)]


def _place(
    rows: Parts, members: NDArray[np.int32], assigned: NDArray[np.int32], W: NDArray[np.float32]
) -> None:
    """Centres of all clusters into W (blocks, words, LANES)."""

    def block(b: int) -> None:
        cluster.centres(*rows, members, assigned, b, W[b])

    list(pool.each(block, range(len(W))))


def _assign(
    rows: Parts, members: NDArray[np.int32], W: NDArray[np.float32], allowed: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    assigned = np.empty(len(members), np.int32)
    cosines = np.empty(len(members), np.float32)

    def chunk(limits: tuple[int, int]) -> None:
        part = slice(*limits)
        nearest = partial(cluster.nearest, *rows, members[part], W, allowed)
        nearest(assigned[part], cosines[part])

    list(pool.each(chunk, pool.chunks(len(members), 256)))
    return assigned, cosines


def regrouped(tree: Tree, Y: sp.csr_matrix, room: int) -> Tree:
    """The tree with labels moved to the leaf that most of their texts reach anyway.

    A text is trained, and searched, in every leaf that has one of its labels: the fewer, the less
    work, and the less there is to get wrong on the way. Frequent labels choose first; a leaf takes
    nobody beyond ``room`` labels, and those that lose all are dropped.
    """
    Y = sp.csr_matrix(Y, copy=True)
    Y.eliminate_zeros()
    numbered = sp.csr_matrix((np.arange(Y.nnz), Y.indices, Y.indptr), shape=Y.shape)
    of_label = numbered.T.tocsr()  # data: the place of the entry in Y
    texts = constant(of_label.indptr.astype(np.int64), of_label.indices, of_label.data)
    by_count = np.argsort(-np.diff(of_label.indptr), kind="stable")
    order = by_count[tree.leaf[by_count] >= 0].astype(np.int32)
    leaf, size = tree.leaf.copy(), np.diff(tree.first_label)
    bounds, order = constant(Y.indptr.astype(np.int64), order)
    node_texts.move_labels(*texts, bounds, order, room, leaf[Y.indices], leaf, size)
    moved = Tree(tree.parent, leaf)
    return moved.restrict(np.arange(tree.n_labels, dtype=np.int32))
