"""Settings of HTTN and its rivals; no torch here, so that reading params.yaml stays quick."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from coattail.config import Params
from coattail.labels.weighting import Weighting
from coattail.models.deep.transfer.transfer_kinds import KINDS
from coattail.models.kinds import union


class EncoderParams(Params):
    """What all of them share: the text encoder and how it is trained."""

    # --- the text encoder
    dim: int = Field(128, ge=1, description="size of a text's vector (d)")
    hidden: int = Field(64, ge=1, description="LSTM units per direction")
    embedding_dim: int = Field(100, ge=1, description="size of word vectors if none are given")
    embedding_start: Literal["random", "labels"] = Field(
        "labels", description="without given vectors: random, or the words' label profiles (SVD)"
    )
    max_tokens: int = Field(128, ge=1, description="a text is cut after so many words")
    dropout: float = Field(0.2, ge=0.0, lt=1.0, description="share of word vector entries dropped")
    scale: float = Field(10.0, gt=0.0, description="length of a text's vector at the start")
    offset: bool = Field(
        True, description="learn one number that is added to all logits (the paper has none)"
    )
    # --- training
    epochs: int = Field(8, ge=1, description="passes over the texts")
    batch: int = Field(64, ge=1, description="texts per step")
    lr: float = Field(2e-3, gt=0.0, description="step size of word vectors and LSTM")
    lr_top: float = Field(1e-2, gt=0.0, description="step size of everything above the LSTM")
    beta2: float = Field(0.99, ge=0.0, lt=1.0, description="Adam's memory of squared gradients")
    weighting: Weighting = Field(
        "none", description="weights of positives, as of linear models; always of mean 1"
    )
    beta: float = Field(0.9, ge=0.0, lt=1.0, description="beta of PW-cb")
    patience: int = Field(
        0, ge=0, description="stop after more epochs than this without progress; 0: never"
    )
    pieces: int = Field(
        1,
        ge=1,
        description="parts of a batch that CPU threads or processes compute side by side; it "
        "changes the order of sums and, with dropout, what is dropped",
    )
    valid_texts: int = Field(1000, ge=1, description="validation texts, drawn at random")
    predict_batch: int = Field(128, ge=1, description="texts per step when predicting")
    seed: int = Field(0, ge=0, description="seed of weights, order and samples")


class HeadTailParams(EncoderParams):
    """Models that treat frequent and rare labels differently."""

    head_share: float = Field(
        0.6, gt=0.0, le=1.0, description="share of the labels, most frequent first, in the head"
    )
    head_count: int | None = Field(
        None, ge=1, description="number of head labels, instead of head_share"
    )


class PrototypeParams(HeadTailParams):
    """Head-to-tail transfer and the two baselines with its network."""

    tail_rows: ClassVar[Literal["transferred", "learned", "prototypes"]]
    """Where the classifier rows of tail labels come from."""

    model: str
    # --- prototypes
    t: int = Field(5, ge=1, description="texts sampled for a prototype")
    sets: int = Field(30, ge=1, le=1000, description="prototypes per head label (S)")
    # --- transfer
    learner: Literal["gradient", "ridge"] = Field(
        "gradient", description="how W is found: Adam as in the paper, or in closed form"
    )
    transfer_epochs: int = Field(8, ge=1, description="gradient: passes over the sets")
    transfer_lr: float = Field(0.01, gt=0.0, description="gradient: step size")
    ridge: float = Field(0.01, gt=0.0, description="ridge: penalty, relative to a mean prototype")
    attention: bool = Field(True, description="mix a tail prototype with those of head labels")
    sharpness: float = Field(
        1.0, gt=0.0, description="factor on the similarities of the attention (the paper's: 1)"
    )
    finetune: bool = Field(False, description="train everything on the sampled tail texts")
    finetune_epochs: int = Field(2, ge=1, description="passes over the sampled tail texts")
    finetune_lr: float = Field(1e-4, gt=0.0, description="step size of the fine-tuning")
    ensemble: int = Field(
        1, ge=1, le=100, description="samplings of tail texts whose scores are averaged (G)"
    )

    @model_validator(mode="after")
    def _one_network_per_ensemble(self) -> Self:
        if self.ensemble > 1 and self.finetune:
            raise ValueError("fine-tuning changes the network, an ensemble shares it: use one")
        return self


class HttnParams(PrototypeParams):
    """Head-to-tail transfer (Xiao et al. 2021)."""

    tail_rows = "transferred"
    model: Literal["httn"] = Field("httn", description="head-to-tail transfer")


class JointParams(PrototypeParams):
    """HTTN's network without a transfer: all labels are head labels."""

    tail_rows = "learned"
    model: Literal["joint"] = Field("joint", description="all labels learned together")


class ImprintingParams(PrototypeParams):
    """HTTN's network without its transfer matrix (Qi et al. 2018)."""

    tail_rows = "prototypes"
    model: Literal["imprinting"] = Field("imprinting", description="prototypes as rows")


class BbnParams(EncoderParams):
    """Bilateral branches (Zhou et al. 2020): texts as they come, and texts of rare labels."""

    model: Literal["bbn"] = Field(description="bilateral branches")


class OltrParams(EncoderParams):
    """Open long-tailed recognition (Liu et al. 2019): a memory of what labels look like."""

    model: Literal["oltr"] = Field(description="open long-tailed recognition")
    memory_epochs: int = Field(4, ge=1, description="passes with the memory, after epochs without")
    memory_loss: float = Field(
        0.01, ge=0.0, description="weight of the loss that draws texts to their labels' centroids"
    )
    margin: float = Field(
        1.0, gt=0.0, description="distance that a text should keep from other labels' centroids"
    )
    cosine_scale: float = Field(16.0, gt=0.0, description="factor on the cosine of text and label")
    reach: float = Field(
        1.0, gt=0.0, description="length of a vector at distance one from its nearest centroid"
    )


class LtmcpParams(HeadTailParams):
    """Two kinds of classifiers (Yuan et al. 2019): a network for the head, words for the tail."""

    model: Literal["ltmcp"] = Field(description="two kinds of classifiers")
    C: float = Field(16.0, gt=0.0, description="weight of the loss in the tail's linear models")


class DxmlParams(EncoderParams):
    """Deep extreme multi-label learning (Zhang et al. 2018): texts placed in a label graph."""

    model: Literal["dxml"] = Field(description="label graph")
    walks: int = Field(10, ge=1, description="random walks from every label")
    walk_length: int = Field(40, ge=2, description="labels on a walk")
    window: int = Field(5, ge=1, description="steps within which two labels count as together")
    neighbours: int = Field(20, ge=1, description="training texts whose labels are averaged")

    @model_validator(mode="after")
    def _nothing_to_weigh(self) -> DxmlParams:
        if self.weighting != "none":
            raise ValueError("dxml has no cross-entropy whose positives could be weighted")
        return self


TransferParams: Any = union(KINDS)
"""Settings of any model of `transfer` of coattail's own; a plugin's join in the registry."""
