"""LTMCP: a network for frequent labels beside linear classifiers of words for rare ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from coattail.arrays import Ragged, TopK, as_csr, best_first
from coattail.models.deep.training.word_start import bags, word_rarity
from coattail.models.deep.transfer import prototypes
from coattail.models.deep.transfer.encoder_model import EncoderModel, Held, Log, check_ids, ranked
from coattail.models.deep.transfer.encoder_net import Texts
from coattail.models.deep.transfer.transfer_params import LtmcpParams
from coattail.models.linear.linear_params import OvrParams
from coattail.models.linear.ovr import Ovr


class Ltmcp(EncoderModel):
    """Long-tail learning by two kinds of classifiers (after Yuan et al. 2019).

    More in docs/explanation/transfer.md.

    Attributes
    ----------
    head_ : int64 (head,) and rows_ : float32 (head, d)
        Labels of the network and their classifier rows.
    tail_ : int64 (tail,) and linear_ : Ovr or None
        Labels of the linear classifiers, and these; None without a tail.
    rarity_ : float64 (vocabulary,)
        Weights of the words in a bag.
    """

    params: LtmcpParams
    linear_: Ovr | None

    def predict(self, tokens: Ragged, k: int) -> TopK:
        """The best k labels of every text; both kinds of probabilities side by side."""
        check_ids(tokens, self.net_.vocabulary_size)
        head = self._predict(tokens, k, self._rank)
        if self.linear_ is None:
            return head
        tail = self.linear_.predict(as_csr(bags(tokens, self.rarity_), "bags"), k)
        there = tail.labels >= 0
        named = np.where(there, self.tail_[np.where(there, tail.labels, 0)], -1)
        both = np.hstack([head.labels, named]), np.hstack([head.scores, tail.scores])
        return best_first(*both, k)

    def _learn(self, tokens: Ragged, Y: sp.csr_matrix, valid: Held | None, log: Log | None) -> None:
        p = self.params
        self.head_, self.tail_ = prototypes.split_labels(Y, p)
        # On every text: the network has to know that some texts are the tail's business.
        self.rows_ = self._learn_rows(tokens, Y, self.head_, valid, log, "head classifier", True)
        self.rarity_ = word_rarity(tokens, self.net_.vocabulary_size)
        self.linear_ = None
        if len(self.tail_):
            settings = OvrParams(
                loss="logistic",
                output="probability",
                C=p.C,
                weighting=p.weighting,
                beta=p.beta,
                propensity_a=self.propensity_[0],
                propensity_b=self.propensity_[1],
                seed=p.seed,
            )
            cut = as_csr(Y[:, self.tail_], "Y")
            self.linear_ = Ovr(settings).fit(as_csr(bags(tokens, self.rarity_), "bags"), cut)

    def _rank(self, texts: Texts, k: int) -> TopK:
        return ranked(torch.sigmoid(self.net_.logits(texts, self.rows_)), self.head_, k)

    def _tensors(self) -> dict[str, Tensor]:
        arrays = {"head": self.head_, "tail": self.tail_, "rarity": self.rarity_}
        return {name: torch.from_numpy(a) for name, a in arrays.items()} | {"rows": self.rows_}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.rows_ = tensors["rows"]
        self.head_, self.tail_ = (tensors[name].cpu().numpy() for name in ("head", "tail"))
        self.rarity_ = tensors["rarity"].cpu().numpy()

    def _save_more(self, folder: Path) -> None:
        if self.linear_ is not None:
            self.linear_.save(folder / "tail")

    def _load_more(self, folder: Path) -> None:
        self.linear_ = Ovr.load(folder / "tail") if len(self.tail_) else None
