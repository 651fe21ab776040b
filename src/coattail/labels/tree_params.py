"""Settings of label trees: flat, balanced, k-means, shallow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coattail.config import Params


class _Clustered(Params):
    """What all methods that cluster labels share."""

    leaf: int = Field(100, ge=1, description="labels in a leaf, at most")
    trees: int = Field(1, ge=1, description="trees, each from its own seed")
    seed: int = Field(0, ge=0, description="seed of the first tree; the others count up")
    tolerance: float = Field(1e-4, ge=0.0, description="gain in mean cosine that ends clustering")
    max_iterations: int = Field(50, ge=1, description="rounds of k-means per node, at most")
    representation: Literal["input", "cooccurrence", "both", "companions"] = Field(
        "input",
        description="what a label is to the clustering: its texts' words, labels, or both; "
        "companions: its texts' labels, the rare ones first",
    )
    regroup: bool = Field(
        False, description="move labels to the leaf that most of their texts reach anyway"
    )


class FlatTree(Params):
    """No inner level: all labels hang under the root."""

    method: Literal["flat"] = Field("flat", description="no clustering")


class BalancedTree(_Clustered):
    """Balanced spherical 2-means, halved until a cluster fits a leaf (Parabel)."""

    method: Literal["balanced"] = Field("balanced", description="balanced 2-means")


class KmeansTree(_Clustered):
    """Unbalanced spherical k-means, shallow and wide (Bonsai)."""

    method: Literal["kmeans"] = Field("kmeans", description="k-way unbalanced k-means")
    k: int = Field(100, ge=2, description="clusters of a node, at most")
    levels: int = Field(1, ge=1, description="levels of clusters between the root and the labels")


class ShallowTree(_Clustered):
    """A balanced binary tree of which only some levels are kept (AttentionXML: K, M, H)."""

    method: Literal["shallow"] = Field("shallow", description="compressed balanced tree")
    leaf: int = Field(8, ge=1, description="labels in a leaf, at most (M)")
    group: int = Field(8, ge=2, description="children of an inner node below the root (K, 2^c)")
    levels: int = Field(1, ge=1, description="levels of clusters kept, the finest first (H)")


TreeParams = Annotated[
    FlatTree | BalancedTree | KmeansTree | ShallowTree, Field(discriminator="method")
]
