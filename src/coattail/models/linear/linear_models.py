"""From parameters to a linear model, from a folder to a model, from blocks to one model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK, best_first
from coattail.data.features import Block
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.labels import tree_building
from coattail.labels.tree import Tree
from coattail.labels.tree_params import TreeParams
from coattail.models import find_kind
from coattail.models.kinds import ModelKind
from coattail.models.linear import merging
from coattail.models.linear.linear_kinds import KINDS
from coattail.models.linear.linear_params import WiredParams
from coattail.models.linear.problem_groups import tail_mask, texts_per_label
from coattail.models.ranking.calibration import Calibration

BLOCKS = "blocks"
"""What `Blocks` writes where a model writes its name."""


class Model(Protocol):
    """What every model can do."""

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> Any: ...
    def predict(self, X: sp.csr_matrix, k: int) -> TopK: ...
    def save(self, folder: str | Path) -> None: ...


def build(
    params: WiredParams,
    trees: list[Tree] | None = None,
    *,
    partial: str | Path | None = None,
    tail: NDArray[np.bool_] | None = None,
    counted: sp.csr_matrix | None = None,
) -> Model:
    """An untrained model.

    Parameters
    ----------
    params : settings of a linear model; ``model`` says of which
    trees : label trees of a ``plt``; without them it clusters the labels itself
    partial : folder for finished groups of labels or trees; a killed fit goes on from there
    tail : bool (L,), labels that ``tail_c`` is for; without it the rare ones of Y
    counted : csr (texts, L), labels of the texts that weights count; without it those of Y
    """
    given = {"trees": trees, "partial": partial, "tail": tail, "counted": counted}
    model: Model = kind_of(params).build(params, **given)
    return model


def kind_of(params: Any) -> ModelKind:
    """What the registry knows of a model with these settings."""
    return find_kind.named(params.model, KINDS, "train_linear")


def load(folder: str | Path) -> Model:
    """The model in a folder, whatever kind it is."""
    name = find_kind.name_in(folder)
    if name == BLOCKS:
        return Blocks.load(folder)
    model: Model = find_kind.load(folder, KINDS, "train_linear")
    return model


def fit_blocks(
    params: WiredParams,
    trees: list[Tree] | None,
    blocks: list[Block],
    n_labels: int,
    *,
    counted: sp.csr_matrix | None = None,
    recipe: TreeParams | None = None,
    partial: str | Path | None = None,
) -> Model:
    """Train one base per block of labels; a single block of all labels gives the plain model.

    Parameters
    ----------
    counted : csr (texts, n_labels)
        Labels of the original texts. A label's frequency is counted there, where a block has
        copies of texts; by default in the blocks.
    recipe : how a block's own trees are built, if it has its own
    """
    whole = np.arange(n_labels)
    if len(blocks) == 1 and np.array_equal(blocks[0].labels, whole):
        if params.merge != "scores":
            raise ModelError(
                f"merge: {params.merge} has nothing to merge, for data/{params.train} is one block "
                "of labels; take a training set of augment_tails that has two, or merge: scores"
            )
        X, Y = blocks[0].X, blocks[0].Y
        copied = counted is not None and counted.shape[0] < X.shape[0]
        plain = build(params, trees, partial=partial, counted=counted if copied else None)
        return plain.fit(X, Y)
    tail = None
    if "tail" in kind_of(params).takes:
        tail = tail_mask(params, _frequency(blocks, n_labels, counted))  # type: ignore[arg-type]
    models = []
    for block in blocks:
        model = build(
            params,
            _trees_of(block, trees, params, recipe),
            partial=Path(partial) / block.name if partial else None,
            tail=None if tail is None else tail[block.labels],
            counted=None if counted is None else sp.csr_matrix(counted[:, block.labels]),
        )
        models.append(model.fit(block.X, block.Y))
    names = [block.name for block in blocks]
    labels = [np.asarray(block.labels, np.int32) for block in blocks]
    return Blocks(names, labels, models, n_labels, Path(partial) if partial else None)


def _frequency(
    blocks: list[Block], n_labels: int, counted: sp.csr_matrix | None
) -> NDArray[np.int64]:
    if counted is not None:
        return texts_per_label(counted)
    counts = np.zeros(n_labels, np.int64)
    for block in blocks:
        counts[block.labels] = texts_per_label(block.Y)
    return counts


def _trees_of(
    block: Block, trees: list[Tree] | None, params: WiredParams, recipe: TreeParams | None
) -> list[Tree] | None:
    if not trees:
        return None
    if getattr(params, "tree_per_block", False):
        if recipe is None:
            raise ModelError(
                f"tree_per_block: data/plt/{params.tree} does not say how it was built; "
                "run dvc repro build_plt"
            )
        return tree_building.build(recipe, block.X, block.Y)
    return [tree.restrict(block.labels) for tree in trees]


def solver_figures(model: Model) -> dict[str, float]:
    """How the solvers of a model that was just trained ended; empty for one without any."""
    if hasattr(model, "unconverged_"):
        return {"unconverged": model.unconverged_}
    if isinstance(model, Blocks):
        inside = [solver_figures(part) for part in model.models_]
        if all(inside):
            return {"unconverged": sum(figures["unconverged"] for figures in inside)}
    return {}


def add_classifier(
    model: Any, name: str, new: sp.csr_matrix, training: Callable[[], sp.csr_matrix]
) -> None:
    """One label more for one-vs-rest: its texts against all training texts."""
    if isinstance(model, Blocks):
        raise ModelError(
            "a model of several blocks is not plain one-vs-rest; only that takes a label without "
            "training everything again"
        )
    X = sp.vstack([training(), new], format="csr")
    truth = np.zeros((X.shape[0], 1), np.float32)
    truth[-new.shape[0] :] = 1
    one = type(model)(model.params).fit(X, sp.csr_matrix(truth))
    model.W_ = sp.csr_matrix(sp.hstack([model.W_, one.W_], format="csr"))
    model.bias_ = np.concatenate([model.bias_, one.bias_])


class Blocks:
    """Bases for disjoint sets of labels.

    Their scores are put side by side as they are or, after `calibrate`, as probabilities.
    """

    def __init__(
        self,
        names: list[str],
        labels: list[NDArray[np.int32]],
        models: list[Model],
        n_labels: int,
        partial: Path | None = None,
    ) -> None:
        self.names_, self.labels_, self.models_ = names, labels, models
        self.n_labels_, self._partial = n_labels, partial
        self.maps_: list[Calibration] | None = None

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> Blocks:
        """Train every base again on its own labels of (X, Y)."""
        for labels, model in zip(self.labels_, self.models_, strict=True):
            model.fit(X, sp.csr_matrix(Y[:, labels]))
        return self

    def predict(self, X: sp.csr_matrix, k: int) -> TopK:
        """The k best labels of every row over all bases."""
        tops = [model.predict(X, k) for model in self.models_]
        if self.maps_ is not None:
            three = zip(self.maps_, tops, self.labels_, strict=True)
            tops = [merging.mapped(map_, top, len(labels)) for map_, top, labels in three]
        return self._merged(tops, k)

    def calibrate(self, X: sp.csr_matrix, Y: sp.csr_matrix, k: int) -> TopK:
        """Fit a map per base on texts that none has seen; their ranking, out of fold."""
        pairs = [
            merging.fitted(model.predict(X, k), sp.csr_matrix(Y[:, labels]))
            for model, labels in zip(self.models_, self.labels_, strict=True)
        ]
        self.maps_ = [map_ for map_, _ in pairs]
        return self._merged([top for _, top in pairs], k)

    def _merged(self, tops: list[TopK], k: int) -> TopK:
        found = [
            np.where(top.labels >= 0, labels[top.labels], -1)
            for top, labels in zip(tops, self.labels_, strict=True)
        ]
        scores = np.hstack([top.scores for top in tops])
        return best_first(np.hstack(found), scores, k, tops[0].kind)

    def save(self, folder: str | Path) -> None:
        """One folder with a model folder per block."""
        with atomic_folder(folder) as out:
            index = {"model": BLOCKS, "blocks": self.names_, "n_labels": self.n_labels_}
            if self.maps_ is not None:
                index["maps"] = [map_.to_json() for map_ in self.maps_]
            (out / "params.json").write_text(json.dumps(index, indent=1) + "\n")
            for name, labels, model in zip(self.names_, self.labels_, self.models_, strict=True):
                model.save(out / name)
                np.save(out / name / "labels.npy", labels)
        if self._partial is not None:
            shutil.rmtree(self._partial, ignore_errors=True)

    @classmethod
    def load(cls, folder: str | Path) -> Blocks:
        folder = Path(folder)
        index = json.loads((folder / "params.json").read_text())
        names = index["blocks"]
        labels = [np.load(folder / name / "labels.npy", allow_pickle=False) for name in names]
        made = cls(names, labels, [load(folder / name) for name in names], index["n_labels"])
        if "maps" in index:
            made.maps_ = [Calibration.from_json(one) for one in index["maps"]]
        return made
