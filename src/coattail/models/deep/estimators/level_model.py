"""AttentionXML over a label tree: one network per level, candidates from the level above."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from coattail.arrays import Ragged, TopK, best_first, topk_of_csr
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.labels.tree import Tree
from coattail.models import begun_with
from coattail.models.deep import batching
from coattail.models.deep.deep_params import AttentionXmlParams
from coattail.models.deep.device import keep_freed_memory, resolve
from coattail.models.deep.device import threads as use_threads
from coattail.models.deep.estimators.tree_levels import Family, Level, choose_parents, levels_of
from coattail.models.deep.estimators.word_model import (
    FORMAT,
    check_input,
    load_weights,
    memory_advice,
    named_inputs,
    params_of,
    read_facts,
)
from coattail.models.deep.nets.attentionxml import AttentionNet
from coattail.models.deep.training.batch_pieces import workers, works_alone
from coattail.models.deep.training.fitting import (
    Columns,
    Judge,
    fit_net,
    start_weights,
    validation_sample,
)
from coattail.models.deep.training.loop import Log, Moment
from coattail.models.fitted import Fitted


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
            top = self._rank_level(level, tokens, top, wanted)
        assert top is not None
        return top

    def _rank_level(self, level: int, tokens: Ragged, above: TopK | None, k: int) -> TopK:
        found = np.full((tokens.n, k), -1, np.int32)
        scores = np.full((tokens.n, k), -np.inf, np.float32)
        lengths = batching.used_lengths(tokens, self.params.max_tokens)

        def rank(rows: NDArray[np.int64]) -> None:
            batch = batching.pad(tokens, rows, self.params.max_tokens, self.device)
            items, path = self._candidates(level, rows, above)
            logits = self._logits(level, batch, items)
            score = 1 / (1 + np.exp(-np.clip(logits, -60, 60))) * path
            top = best_first(items, score, k)
            found[rows], scores[rows] = top.labels, top.scores

        with workers(self.threads, works_alone(self.nets[level], self.device)) as each:
            each(rank, batching.sorted_batches(lengths, self.params.predict_batch))
        return TopK(found, scores, "probability")

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
        encoded = net.encode(batch, None)
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


class LevelModel(Fitted):
    """AttentionXML with a tree (or several, whose scores are averaged).

    Attributes
    ----------
    chains_ : one per tree; n_labels_, vocabulary_size_, dim_ : sizes.
    """

    reads: ClassVar[str] = "tokens"

    def __init__(self, params: AttentionXmlParams) -> None:
        self.params = params

    def fit(
        self,
        tokens: Ragged,
        Y: sp.csr_matrix,
        *,
        vocabulary_size: int,
        valid: tuple[Ragged, sp.csr_matrix] | None = None,
        vectors: NDArray | None = None,
        trees: Sequence[Tree] | None = None,
        propensity: tuple[float, float] = (0.55, 1.5),
        device: str = "cpu",
        threads: int = 0,
        log: Log | None = None,
        checkpoint: Path | None = None,
    ) -> Self:
        """Train level by level; see ``DeepModel.fit``. ``log`` counts epochs over all levels."""
        Y, valid = check_input(tokens, Y, valid, vocabulary_size, vectors)
        if not trees:
            raise ModelError(f"tree {self.params.tree!r} was asked for but none was given")
        for tree in trees:
            if tree.n_labels != Y.shape[1]:
                raise ModelError(
                    f"data/plt/{self.params.tree} has {tree.n_labels} labels but Y has "
                    f"{Y.shape[1]}; run dvc repro build_plt"
                )
        self.device_ = resolve(device)
        if self.device_ == "cpu":
            keep_freed_memory()
        self.n_labels_, self.vocabulary_size_ = Y.shape[1], vocabulary_size
        self.dim_ = self.params.embedding_dim if vectors is None else vectors.shape[1]
        self.chains_ = []
        things = named_inputs(tokens, Y, valid, vocabulary_size, vectors, propensity)
        inputs = begun_with.inputs(self.params, things) if checkpoint else {}
        step = _Counter(log)
        with use_threads(threads), memory_advice(self.params, self.device_):
            for number, tree in enumerate(trees):
                params = self.params.model_copy(update={"seed": self.params.seed + 1000 * number})
                chain = Chain(params, levels_of(tree), self.device_)
                chain.threads = torch.get_num_threads()
                self.chains_.append(chain)
                own = inputs | {"tree": begun_with.digest([tree.parent, tree.leaf])}
                for level in range(len(chain.levels)):
                    kept = (own, _level_file(checkpoint, number, level))
                    self._fit_level(chain, level, tokens, Y, valid, vectors, propensity, step, kept)
        return self

    def _fit_level(
        self,
        chain: Chain,
        level: int,
        tokens: Ragged,
        Y: sp.csr_matrix,
        valid: tuple[Ragged, sp.csr_matrix] | None,
        vectors: NDArray | None,
        propensity: tuple[float, float],
        log: Log,
        kept: tuple[begun_with.Inputs, Path | None],
    ) -> None:
        """``kept``: what this tree's training is begun with, and the checkpoint of the level."""
        here, params = chain.levels[level], chain.params
        targets = here.targets(Y)
        net = self._net(params, here.n_items)
        start_weights(net, params, tokens, targets, vectors)
        columns = None
        if level:
            if params.init_from_above:
                _inherit(net, chain.nets[-1])
            above = chain.rank(tokens, params.candidates)
            above_targets = chain.levels[level - 1].targets(Y)
            columns = chain.training_columns(level, above, above_targets)
        chain.nets.append(net.to(self.device_))
        fit_net(
            net,
            params,
            tokens,
            targets,
            _judge(chain, level, valid),
            device=self.device_,
            propensity=propensity,
            name=f"train {params.model} level {level + 1} of {len(chain.levels)}",
            inputs=kept[0],
            over_labels=level == len(chain.levels) - 1,
            columns=columns,
            log=log,
            checkpoint=kept[1],
        )

    def _net(self, params: AttentionXmlParams, n_items: int) -> AttentionNet:
        with torch.random.fork_rng(devices=[]):
            return AttentionNet(params, n_items, self.vocabulary_size_, self.dim_, with_head=False)

    def predict(self, tokens: Ragged, k: int) -> TopK:
        """The best k labels of every text; the mean over trees, absent labels counting 0."""
        batching.check_tokens(tokens, self.vocabulary_size_, "texts to rank")
        with memory_advice(self.params, self.device_):
            tops = [_as_labels(chain.rank(tokens, k), chain) for chain in self.chains_]
        if len(tops) == 1:
            return tops[0]
        total = tops[0].to_csr(self.n_labels_)
        for top in tops[1:]:
            total = sp.csr_matrix(total + top.to_csr(self.n_labels_))
        total.data /= np.float32(len(tops))
        return topk_of_csr(total, k)

    def explain(self, row: NDArray, wanted: list[int] | NDArray) -> NDArray[np.float32]:
        """Attention weights of the first tree's label level: (labels, words)."""
        chain = self.chains_[0]
        items = chain.levels[-1].item[np.asarray(wanted, np.int64)]
        if np.any(items < 0):
            raise ModelError("a label was asked for that no training text has; it has no attention")
        tokens = Ragged(np.array([0, len(row)], np.int64), np.asarray(row, np.int32))
        batching.check_tokens(tokens, self.vocabulary_size_, "text to explain")
        batch = batching.pad(tokens, np.array([0]), self.params.max_tokens, self.device_)
        weights = chain.nets[-1].weigh(batch, torch.from_numpy(items).to(self.device_))
        return weights[0, :, : int(batch.lengths[0])].cpu().numpy()

    def save(self, folder: str | Path) -> None:
        """Write params.json, and per tree and level the weights and two arrays of the tree."""
        facts = {
            "format": FORMAT,
            "params": self.params.model_dump(mode="json"),
            "n_labels": self.n_labels_,
            "vocabulary_size": self.vocabulary_size_,
            "dim": self.dim_,
            "levels": [len(chain.levels) for chain in self.chains_],
        }
        with atomic_folder(folder) as temporary:
            (temporary / "params.json").write_text(json.dumps(facts, indent=1) + "\n")
            for number, chain in enumerate(self.chains_):
                for depth, (level, net) in enumerate(zip(chain.levels, chain.nets, strict=True)):
                    stem = f"tree{number}-level{depth}"
                    np.save(temporary / f"{stem}-parent.npy", level.parent)
                    np.save(temporary / f"{stem}-item.npy", level.item)
                    tensors = {name: t.detach().cpu() for name, t in net.state_dict().items()}
                    save_file(tensors, temporary / f"{stem}.safetensors")

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Self:
        facts, folder = read_facts(folder), Path(folder)
        params = params_of(facts)
        if not isinstance(params, AttentionXmlParams) or "levels" not in facts:
            raise ModelError(f"{folder} is not a model over a tree")
        model = cls(params)
        model.device_ = resolve(device)
        model.n_labels_, model.vocabulary_size_ = facts["n_labels"], facts["vocabulary_size"]
        model.dim_, model.chains_ = facts["dim"], []
        for number, depth in enumerate(facts["levels"]):
            stems = [folder / f"tree{number}-level{level}" for level in range(depth)]
            chain = Chain(params, [_read_level(stem) for stem in stems], model.device_)
            for stem, level in zip(stems, chain.levels, strict=True):
                net = model._net(params, level.n_items)
                load_weights(net, stem.with_suffix(".safetensors"))
                chain.nets.append(net.to(model.device_).eval())
            model.chains_.append(chain)
        return model


class _Counter:
    """Numbers the epochs of all levels in one row, as a chart wants them."""

    def __init__(self, log: Log | None) -> None:
        self.log, self.epoch = log, 0

    def __call__(self, numbers: dict[str, float], epoch: int) -> None:
        if self.log is not None:
            self.log(numbers, self.epoch)
        self.epoch += 1


def _judge(chain: Chain, level: int, valid: tuple[Ragged, sp.csr_matrix] | None) -> Judge | None:
    """Ranks the items of this level for validation texts, whose parents are predicted (once)."""
    if valid is None:
        return None
    tokens, Y = validation_sample(*valid, chain.params)
    truth = chain.levels[level].targets(Y)
    above = chain.rank(tokens, chain.params.candidates, level - 1) if level else None
    return lambda: (chain._rank_level(level, tokens, above, 5), truth)


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


def _level_file(checkpoint: Path | None, tree: int, level: int) -> Path | None:
    if checkpoint is None:
        return None
    return checkpoint.with_name(f"{checkpoint.stem}-tree{tree}-level{level}{checkpoint.suffix}")


def _read_level(stem: Path) -> Level:
    try:
        parent, item = (
            np.load(f"{stem}-{part}.npy", allow_pickle=False) for part in ("parent", "item")
        )
    except FileNotFoundError as error:
        raise ModelError(f"{error.filename} is missing; train the model again") from None
    return Level(parent, item)
