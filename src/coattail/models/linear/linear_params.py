"""Hyper-parameters of the linear models: one frozen class per model, told apart by ``model``."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from coattail.config import Params
from coattail.labels.weighting import Weighting
from coattail.models.kinds import union
from coattail.models.linear.linear_kinds import KINDS


class WiredParams(Params):
    """What every linear model says about its place in the pipeline; a plugin's too."""

    train: str = Field(
        "features/tfidf/train", description="training folder under data/: plain or augmented blocks"
    )
    tree: str = Field("flat", description="label tree under data/plt/")
    merge: Literal["scores", "platt"] = Field(
        "scores",
        description="how rankings of several blocks (Taug) become one: by their scores, or by "
        "probabilities, each block's from a sigmoid that is fitted on validation",
    )
    refit: bool = Field(
        False,
        description="once validation is ranked, train again on train and validation together; that "
        "model ranks test and new texts",
    )
    propensity_a: float | None = Field(
        None, gt=0.0, description="A of the propensities behind weights; null: the dataset's"
    )
    propensity_b: float | None = Field(None, gt=0.0, description="B; null: the dataset's")

    @property
    def propensity_constants(self) -> tuple[float, float]:
        """A and B, the usual ones where nothing was said."""
        a, b = self.propensity_a, self.propensity_b
        return (0.55 if a is None else a, 1.5 if b is None else b)

    def of_dataset(self, constants: tuple[float, float]) -> Self:
        """The same params with A and B of the dataset where they are null."""
        given = {"propensity_a": self.propensity_a, "propensity_b": self.propensity_b}
        filled = dict(zip(given, constants, strict=True))
        return self.model_copy(update=filled | {k: v for k, v in given.items() if v is not None})


class _Weighted(WiredParams):
    """Weights on the positive part of the loss, and C of rare labels."""

    weighting: Weighting = Field(
        "none",
        description="positives weigh 1, 2q - 1, (2q - 1) r, or q r + q - 1 (balanced first), with "
        "r = (1 - beta)/(1 - beta^n)",
    )
    beta: float = Field(0.9, ge=0.0, lt=1.0, description="class balance of pwcb and pwcb_first")
    normalise: bool = Field(
        False, description="scale the weights to mean 1 (over all labels, or a tree's level)"
    )
    tail_c: float = Field(
        1.0, gt=0.0, description="C of a tail label is this times C (flat level and leaves)"
    )
    head_labels: float = Field(
        0.1, ge=0.0, le=1.0, description="share of labels, most frequent first, that tail_c spares"
    )


class _BinaryProblems(_Weighted):
    """One binary problem per label or node, solved to a tolerance."""

    loss: Literal["squared_hinge", "logistic"] = Field(
        "squared_hinge", description="loss of a binary problem"
    )
    unbiased: bool = Field(
        False,
        description="estimate the logistic loss on the complete labels from the recorded ones: a "
        "positive costs q l(1, s) - (q - 1) l(0, s)",
    )
    C: float = Field(1.0, gt=0.0, description="weight of the loss against 1/2 |w|^2")
    eps: float = Field(
        0.05, gt=0.0, description="tolerance: spread of projected gradients, relative gradient norm"
    )
    gap: float = Field(
        1e-3, gt=0.0, description="loss outside the active rows a finished label may have, relative"
    )
    max_epochs: int = Field(50, ge=1, description="passes of coordinate descent per round, at most")
    max_rounds: int = Field(8, ge=1, description="searches for active rows per label, at most")
    negatives: int = Field(
        256, ge=1, description="random negatives of the first round; twice as many texts are all"
    )
    prune: float = Field(0.01, ge=0.0, description="weights with |w| below this are dropped")
    memory_mb: int = Field(1024, ge=16, description="working memory of the solver per thread")
    seed: int = Field(0, ge=0, description="order of coordinate descent")

    @model_validator(mode="after")
    def _unbiased_where_there_is_a_minimum(self) -> Self:
        if self.unbiased and self.loss != "logistic":
            raise ValueError(
                "unbiased needs loss: logistic; the unbiased squared hinge falls without end as "
                "the score of a positive grows, so it has no minimum to train to"
            )
        if self.unbiased and self.weighting != "none":
            raise ValueError(
                "unbiased needs weighting: none; weights 2q - 1 are another answer to the same "
                "missing labels"
            )
        return self


class OvrParams(_BinaryProblems):
    """One classifier per label against all texts (DiSMEC)."""

    model: Literal["ovr"] = Field("ovr", description="one-vs-rest")
    output: Literal["margin", "probability"] = Field(
        "margin", description="scores: raw margins, or exp(-max(0, 1 - s)^2) and sigmoid"
    )
    shrink_norms: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="each label's classifier is divided by |w| to this power; 1: all are as long",
    )


class PltParams(_BinaryProblems):
    """A label tree with a classifier per node: Parabel, Bonsai, plain PLT by preset."""

    model: Literal["plt"] = Field("plt", description="probabilistic label tree")
    tree: str = Field("balanced", description="label trees under data/plt/")
    tree_per_block: bool = Field(
        False,
        description="each block of Taug clusters its own labels by its own texts, in the way of "
        "`tree`; false: it takes its part of that tree",
    )
    beam: int = Field(10, ge=1, description="nodes kept per level and tree when predicting")
    discount: float = Field(
        1.0, gt=0.0, le=1.0, description="factor on the parent's log-score (Bonsai's code: 0.98)"
    )
    # Looser and shorter than one-vs-rest: more would not improve a tree's ranking
    # (docs/results/linear.md).
    eps: float = Field(
        0.3, gt=0.0, description="tolerance: spread of projected gradients, relative gradient norm"
    )
    max_epochs: int = Field(8, ge=1, description="passes of coordinate descent per round, at most")
    max_visits: int = Field(
        524_288, ge=1, description="texts a node visits in all its passes; three passes always"
    )
    prune: float = Field(0.1, ge=0.0, description="weights with |w| below this are dropped")


class FastxmlParams(WiredParams):
    """Instance trees that split texts by nDCG (FastXML), or by its propensity-scored form."""

    model: Literal["fastxml"] = Field("fastxml", description="ensemble of instance trees")
    trees: int = Field(50, ge=1, description="instance trees")
    leaf: int = Field(10, ge=1, description="texts in a leaf, at most")
    leaf_labels: int = Field(100, ge=1, description="labels kept per leaf")
    C: float = Field(5.0, gt=0.0, description="weight of a split's logistic loss against |w|_1")
    newton: int = Field(10, ge=1, description="outer steps of the separator's solver")
    propensity: bool = Field(
        False, description="gains weighted by 1/p, and re-ranking by label centres (PfastreXML)"
    )
    alpha: float = Field(
        0.8, ge=0.0, le=1.0, description="PfastreXML: share of the trees in the final score"
    )
    gamma: float = Field(30.0, gt=0.0, description="PfastreXML: sharpness of the label centres")
    seed: int = Field(0, ge=0, description="first assignment of texts at every node")


class NearestParams(WiredParams):
    """The labels of the nearest training texts."""

    model: Literal["nearest"] = Field("nearest", description="votes of the nearest texts")
    neighbours: int = Field(50, ge=1, le=10_000, description="training texts that vote")


LinearParams: Any = union(KINDS)
"""Settings of any linear model of coattail's own; a plugin's join in coattail.pipeline.registry."""
