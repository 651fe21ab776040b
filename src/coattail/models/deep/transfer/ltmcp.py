"""LTMCP: a network for frequent labels beside linear classifiers of words for rare ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from coattail.arrays import Ragged, TopK, as_csr, best_first
from coattail.models.deep.batching import Batch
from coattail.models.deep.fit_data import FitData
from coattail.models.deep.training import processes
from coattail.models.deep.training.loop import Run
from coattail.models.deep.training.word_start import bags, word_rarity
from coattail.models.deep.transfer import prototypes
from coattail.models.deep.transfer.encoder_model import EncoderModel, ranked
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

    def _ranked(self, inputs: Ragged, k: int) -> TopK:
        """Both kinds of probabilities side by side."""
        head = super()._ranked(inputs, k)
        if self.linear_ is None:
            return head
        tail = self.linear_.predict(as_csr(bags(inputs, self.rarity_), "bags"), k)
        there = tail.labels >= 0
        named = np.where(there, self.tail_[np.where(there, tail.labels, 0)], -1)
        both = np.hstack([head.labels, named]), np.hstack([head.scores, tail.scores])
        return best_first(*both, k)

    def _teach(self, data: FitData[Ragged], run: Run) -> None:
        self.head_, self.tail_ = prototypes.split_labels(data.Y, self.params)
        # On every text: the network has to know that some texts are the tail's business.
        self.rows_ = self._learn_rows(data, self.head_, run, "head classifier", every_text=True)
        self.rarity_ = word_rarity(data.inputs, self.net_.vocabulary_size)
        self.linear_ = self._linear(data, run) if len(self.tail_) else None

    def _linear(self, data: FitData[Ragged], run: Run) -> Ovr:
        p = self.params
        settings = OvrParams(
            loss="logistic",
            output="probability",
            C=p.C,
            weighting=p.weighting,
            beta=p.beta,
            propensity_a=data.propensity[0],
            propensity_b=data.propensity[1],
            seed=p.seed,
        )
        bag = as_csr(bags(data.inputs, self.rarity_), "bags")
        # Every process fits it; one of them keeps what is done.
        kept = run.checkpoint.part("tail").path if processes.leads() else None
        return Ovr(settings, partial=kept).fit(bag, as_csr(data.Y[:, self.tail_], "Y"))

    def _rank(self, texts: Batch, k: int) -> TopK:
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
