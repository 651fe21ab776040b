"""AttentionXML over a label tree: one network per level, candidates from the level above."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from coattail.arrays import Ragged, TopK, best_first, topk_of_csr
from coattail.errors import ModelError
from coattail.models.deep import batching
from coattail.models.deep.deep_model import load_weights, weights_of
from coattail.models.deep.deep_params import AttentionXmlParams
from coattail.models.deep.estimators.tree_levels import Family, Level, choose_parents, levels_of
from coattail.models.deep.estimators.word_model import TokenModel
from coattail.models.deep.fit_data import FitData, RunContext
from coattail.models.deep.nets.attentionxml import AttentionNet
from coattail.models.deep.training.batch_pieces import workers, works_alone
from coattail.models.deep.training.checkpoint import Checkpoint
from coattail.models.deep.training.fitting import (
    Columns,
    Judge,
    Lesson,
    course_of,
    start_weights,
    validation_sample,
)
from coattail.models.deep.training.loop import Moment, Run
from coattail.models.deep.training.ranking import rank_all


class Chain:
    """The networks of one tree, top down."""

    def __init__(self, params: AttentionXmlParams, levels: Sequence[Level], device: str) -> None:
        self.params, self.levels, self.device = params, list(levels), device
        self.threads = 0  # torch's choice
        self.families = [Family(level) for level in levels]
        self.nets: list[AttentionNet] = []

    def rank(self, tokens: Ragged, k: int, depth: int | None = None) -> TopK:
        """The best k items of the last level (or of ``depth``), by product along the path."""
        last = len(self.nets) - 1 if depth is None else depth
        top: TopK | None = None
        for level in range(last + 1):
            wanted = k if level == last else self.params.candidates
            top = self.rank_level(level, tokens, top, wanted)
        assert top is not None
        return top

    def rank_level(self, level: int, tokens: Ragged, above: TopK | None, k: int) -> TopK:
        """The best k items of a level among the children of the items ``above``."""
        lengths = batching.used_lengths(tokens, self.params.max_tokens)

        def rank_rows(rows: NDArray[np.int64]) -> TopK:
            batch = batching.pad(tokens, rows, self.params.max_tokens, self.device)
            items, path = self._candidates(level, rows, above)
            logits = self._logits(level, batch, items)
            return best_first(items, 1 / (1 + np.exp(-np.clip(logits, -60, 60))) * path, k)

        batches = batching.sorted_batches(lengths, self.params.predict_batch)
        with workers(self.threads, works_alone(self.nets[level], self.device)) as each:
            return rank_all(tokens.n, k, batches, rank_rows, each)

    def _candidates(
        self, level: int, rows: NDArray[np.int64], above: TopK | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Items to score per text (-1 pads) and the score of the path so far."""
        if above is None:
            items = np.tile(np.arange(self.levels[level].n_items), (len(rows), 1))
            return items, np.ones(items.shape)
        items, source = self.families[level].columns(above.labels[rows].astype(np.int64))
        path = np.take_along_axis(above.scores[rows], np.maximum(source, 0), axis=1)
        return items, np.where(source >= 0, path, 0.0).astype(np.float64)

    @torch.inference_mode()
    def _logits(
        self, level: int, batch: batching.Batch, items: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        net = self.nets[level]
        encoded = net.encode(batch)
        columns = None if level == 0 else torch.from_numpy(np.maximum(items, 0)).to(self.device)
        pieces = [
            net.logits(encoded.states, encoded.mask, block)
            for block in net.blocks(columns, encoded.states.device)
        ]
        return torch.cat(pieces, dim=1).cpu().numpy().astype(np.float64)

    def training_columns(self, level: int, above: TopK, above_targets: sp.csr_matrix) -> Columns:
        """Candidates while training: children of chosen parents, padded with random items."""
        family, params = self.families[level], self.params

        def columns(rows: NDArray[np.int64], at: Moment) -> Tensor:
            parents = choose_parents(above_targets, above, rows, params.candidates)
            items, _ = family.columns(parents)
            rng = np.random.default_rng([params.seed, at.step, 19, at.piece])
            noise = rng.integers(0, family.n_items, items.shape)
            return torch.from_numpy(np.where(items >= 0, items, noise)).to(self.device)

        return columns


class LevelModel(TokenModel):
    """AttentionXML with a tree (or several, whose scores are averaged).

    Attributes
    ----------
    chains_ : one per tree.
    """

    params: AttentionXmlParams

    def explain(self, row: NDArray, wanted: list[int] | NDArray) -> NDArray[np.float32]:
        """Attention weights of the first tree's label level: (labels, words)."""
        chain = self.chains_[0]
        items = chain.levels[-1].item[np.asarray(wanted, np.int64)]
        if np.any(items < 0):
            raise ModelError("a label was asked for that no training text has; it has no attention")
        return self._weigh(chain.nets[-1], row, torch.from_numpy(items))

    def _checked(self, data: FitData[Ragged]) -> FitData[Ragged]:
        data = super()._checked(data)
        if not data.trees:
            raise ModelError(f"tree {self.params.tree!r} was asked for but none was given")
        for tree in data.trees:
            if tree.n_labels != data.Y.shape[1]:
                raise ModelError(
                    f"data/plt/{self.params.tree} has {tree.n_labels} labels but Y has "
                    f"{data.Y.shape[1]}; run dvc repro build_plt"
                )
        return data

    def _learn(self, data: FitData[Ragged], context: RunContext) -> None:
        """Level by level, tree by tree."""
        run = Run(context, Checkpoint.of(context.checkpoint, self.params, data.named()))
        self._take_sizes(data, self.params)
        self.chains_ = []
        for number, tree in enumerate(data.trees):
            params = self.params.model_copy(update={"seed": self.params.seed + 1000 * number})
            chain = Chain(params, levels_of(tree), self.device_)
            chain.threads = self.threads_
            self.chains_.append(chain)
            for level in range(len(chain.levels)):
                name = f"tree{number}-level{level}"
                kept = run.checkpoint.part(name, tree=[tree.parent, tree.leaf])
                run.train(course_of(self._lesson(chain, level, data), self.device_), kept)
                chain.nets[level].eval()

    def _lesson(self, chain: Chain, level: int, data: FitData[Ragged]) -> Lesson:
        """What the network of a level learns; the levels above it have learned already."""
        here, params, tokens = chain.levels[level], chain.params, data.inputs
        targets = here.targets(data.Y)
        net = self._net(params, here.n_items)
        start_weights(net, params, tokens, targets, data.vectors)
        columns = None
        if level:
            if params.init_from_above:
                _inherit(net, chain.nets[-1])
            above = chain.rank(tokens, params.candidates)
            columns = chain.training_columns(level, above, chain.levels[level - 1].targets(data.Y))
        chain.nets.append(net.to(self.device_))
        return Lesson(
            f"train {params.model} level {level + 1} of {len(chain.levels)}",
            net,
            params,
            tokens,
            targets,
            data.propensity,
            _judge(chain, level, data.valid),
            over_labels=level == len(chain.levels) - 1,
            columns=columns,
        )

    def _net(self, params: AttentionXmlParams, n_items: int) -> AttentionNet:
        with torch.random.fork_rng(devices=[]):
            return AttentionNet(params, n_items, self.vocabulary_size_, self.dim_, with_head=False)

    def _ranked(self, inputs: Ragged, k: int) -> TopK:
        """The mean over trees; a label that a tree does not give counts 0."""
        batching.check_tokens(inputs, self.vocabulary_size_, "texts to rank")
        tops = [_as_labels(chain.rank(inputs, k), chain) for chain in self.chains_]
        if len(tops) == 1:
            return tops[0]
        total = tops[0].to_csr(self.n_labels_)
        for top in tops[1:]:
            total = sp.csr_matrix(total + top.to_csr(self.n_labels_))
        total.data /= np.float32(len(tops))
        return topk_of_csr(total, k)

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"levels": [len(chain.levels) for chain in self.chains_]}

    def _write(self, folder: Path) -> None:
        """Per tree and level the weights and two arrays of the tree."""
        for number, chain in enumerate(self.chains_):
            for depth, (level, net) in enumerate(zip(chain.levels, chain.nets, strict=True)):
                stem = f"tree{number}-level{depth}"
                np.save(folder / f"{stem}-parent.npy", level.parent)
                np.save(folder / f"{stem}-item.npy", level.item)
                save_file(weights_of(net), folder / f"{stem}.safetensors")

    def _read(self, facts: dict[str, Any], folder: Path) -> None:
        if "levels" not in facts:
            raise ModelError(f"{folder} is not a model over a tree")
        self._read_sizes(facts)
        self.chains_ = []
        for number, depth in enumerate(facts["levels"]):
            stems = [folder / f"tree{number}-level{level}" for level in range(depth)]
            chain = Chain(self.params, [_read_level(stem) for stem in stems], self.device_)
            for stem, level in zip(stems, chain.levels, strict=True):
                net = self._net(self.params, level.n_items)
                load_weights(net, stem.with_suffix(".safetensors"))
                chain.nets.append(net.to(self.device_).eval())
            self.chains_.append(chain)


def _judge(chain: Chain, level: int, valid: tuple[Ragged, sp.csr_matrix] | None) -> Judge | None:
    """Ranks the items of this level for validation texts, whose parents are predicted (once)."""
    if valid is None:
        return None
    tokens, Y = validation_sample(*valid, chain.params)
    truth = chain.levels[level].targets(Y)
    above = chain.rank(tokens, chain.params.candidates, level - 1) if level else None
    return lambda: (chain.rank_level(level, tokens, above, 5), truth)


def _as_labels(top: TopK, chain: Chain) -> TopK:
    """Items of the last level as label ids (both in the same order, so ties stay as they are)."""
    label = np.flatnonzero(chain.levels[-1].item >= 0).astype(np.int32)
    return TopK(np.where(top.labels >= 0, label[top.labels], -1), top.scores, top.kind)


@torch.no_grad()
def _inherit(net: AttentionNet, above: AttentionNet) -> None:
    """Start encoder and shared layers where the level above ended; attention stays fresh."""
    weights = above.state_dict()
    own = net.state_dict()
    for name, tensor in own.items():
        if name.startswith(("words.", "lstm.", "fc.")):
            tensor.copy_(weights[name])


def _read_level(stem: Path) -> Level:
    try:
        parent, item = (
            np.load(f"{stem}-{part}.npy", allow_pickle=False) for part in ("parent", "item")
        )
    except FileNotFoundError as error:
        raise ModelError(f"{error.filename} is missing; train the model again") from None
    return Level(parent, item)
